"""The discovery service's HTTP interface (PW-1 to PW-12): requests in, the service's answers out.

app.py mounts them. Bodies are checked by api/pools.py, who may do what by tokens.py. Everything answers from
memory, except a registration, which waits for the store. Errors are `{"error": {"code", "message"}}`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry, Counter

from isthmus import logs
from isthmus.api.pools import MAX_TEXT, Grant, InvalidField, PoolKey, RouterRef, read_registration
from isthmus.clock import Clock
from isthmus.discovery.plan.join import REGISTRATIONS
from isthmus.discovery.plan.leases import ACCEPTED, Verdict
from isthmus.discovery.service import Service
from isthmus.discovery.store import Store, StoreUnavailable
from isthmus.discovery.tokens import Tokens
from isthmus.web.routes import EVENT_STREAM, Answer, Problem, Request, Route, coded_error, get, json_body

log = logs.get(__name__)

MAX_WAIT_S: Final = 60.0

_TEXTS: Final = {
    Verdict.STALE_INCARNATION: "another run of this relay has taken over from this one",
    Verdict.STALE_REVISION: "a later revision of this run has been registered already",
    Verdict.OTHER_INCARNATION: "the pool is registered by another run of its relay",
    Verdict.UNKNOWN: "no such pool is registered",
}


class Granting(msgspec.Struct, frozen=True, kw_only=True):
    """What registrations are answered with (DS-4). Seconds."""

    heartbeat_s: float = 5.0
    lease_s: float = 15.0
    routers: tuple[RouterRef, ...] = ()


class Interface:
    """See the module."""

    def __init__(
        self,
        service: Service,
        store: Store,
        tokens: Tokens,
        granting: Granting,
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        self._service = service
        self._store = store
        self._tokens = tokens
        self._granting = granting
        self._clock = clock
        self._results = Counter(
            "gds_registrations", "Registrations and withdrawals, by result.", ["result"], registry=registry
        )

    def routes(self) -> list[Route]:
        """All of them but health and metrics."""
        return [
            Route("/pools", {"GET": self._reading(self._list), "POST": self._register}),
            get("/pools/watch", self._reading(self._watch)),
            get("/pools/unmatched", self._reading(self._unmatched)),
            Route("/pools/{cluster_id}/{namespace}/{name}", {"DELETE": self._deregister}),
            get("/routers", self._reading(self._routers)),
        ]

    def _reading(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def checked(request: Request) -> Answer:
            refusal = self._refusal(request, None)
            return refusal if refusal is not None else await handler(request)

        return checked

    async def _register(self, request: Request) -> Answer:
        if (refusal := self._refusal(request, None)) is not None:
            return self._refused(refusal)
        kind = request.header("content-type").partition(";")[0].strip().lower()
        if kind != "application/json":
            return self._count(415, "send Content-Type: application/json", code="unsupported_media_type")
        try:
            registration = read_registration(request.body)
        except InvalidField as problem:
            return self._count(400, str(problem), code="invalid_field", field=problem.field)
        if (refusal := self._refusal(request, registration.cluster_id)) is not None:
            return self._refused(refusal)
        try:
            verdict = await self._store.put(registration)
        except StoreUnavailable as problem:
            return self._away(problem)
        if verdict is Verdict.FULL:
            return self._count(503, "too many pools are registered", code="full", retry=True)
        if verdict not in ACCEPTED:
            return self._count(409, _TEXTS[verdict], code=verdict.value)
        self._results.labels(verdict.value).inc()
        granting = self._granting
        grant = Grant(
            pool_id=registration.key.pool_id,
            heartbeat_interval_secs=granting.heartbeat_s,
            lease_duration_secs=granting.lease_s,
            routers=granting.routers,
            complete=self._service.listing.complete,
        )
        return Answer(status=201 if verdict is Verdict.NEW else 200, body=json_body(grant))

    async def _deregister(self, request: Request) -> Answer:
        key = PoolKey(request.param("cluster_id"), request.param("namespace"), request.param("name"))
        if (refusal := self._refusal(request, key.cluster_id)) is not None:
            return self._refused(refusal)
        try:
            verdict = await self._store.remove(key, request.argument("incarnation") or "")
        except StoreUnavailable as problem:
            return self._away(problem)
        self._results.labels(verdict.value).inc()
        if verdict is Verdict.REMOVED:
            return Answer(status=204)
        return coded_error(404 if verdict is Verdict.UNKNOWN else 409, _TEXTS[verdict], code=verdict.value)

    async def _list(self, request: Request) -> Answer:
        service = self._service
        wait = request.argument("wait_secs")
        if wait is not None:
            seconds = _seconds(wait)
            if seconds is None:
                return coded_error(
                    400, f"wait_secs: must be a number from 0 to {MAX_WAIT_S:.0f}", code="invalid_field"
                )
            await service.wait_other(request.argument("version") or "", seconds)
        tag = f'"{service.listing.version}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if tag in [each.strip().removeprefix("W/") for each in request.header("if-none-match").split(",")]:
            return Answer(status=304, headers=headers)
        body = service.body(
            model=request.argument("model") or "", cluster_id=request.argument("cluster_id") or ""
        )
        return Answer(body=body, headers=headers)

    async def _watch(self, request: Request) -> Answer:
        version = (request.argument("from") or "")[:MAX_TEXT] or None
        return Answer(
            body=self._events(version), content_type=EVENT_STREAM, headers={"Cache-Control": "no-cache"}
        )

    async def _events(self, version: str | None) -> AsyncGenerator[bytes, None]:
        watcher = self._service.watch(version)
        if watcher is None:
            text, headers = "too many watchers; poll GET /pools instead", {"Retry-After": "5"}
            raise Problem(coded_error(503, text, code="too_many_watchers", headers=headers))
        try:
            while data := await watcher.take(self._clock):
                yield data
        finally:
            self._service.watchers.leave(watcher)

    async def _unmatched(self, _: Request) -> Answer:
        rows = [each._asdict() for each in self._service.unmatched]
        return Answer(body=json_body({"unmatched": rows, "complete": self._service.listing.complete}))

    async def _routers(self, _: Request) -> Answer:
        """Only in mode registrations are the routers all known: elsewhere `complete` is false."""
        complete = self._service.listing.mode == REGISTRATIONS
        return Answer(body=json_body({"routers": self._granting.routers, "complete": complete}))

    def _refusal(self, request: Request, cluster_id: str | None) -> Answer | None:
        status = self._tokens.refused(request.header("authorization"), cluster_id)
        if status == 401:
            headers = {"WWW-Authenticate": "Bearer"}
            return coded_error(
                401, "a bearer token is needed that is known here", code="unauthenticated", headers=headers
            )
        if status == 403:
            return coded_error(403, "this token is not for that cluster", code="permission_denied")
        return None

    def _refused(self, refusal: Answer) -> Answer:
        self._results.labels("unauthenticated" if refusal.status == 401 else "permission_denied").inc()
        return refusal

    def _count(self, status: int, message: str, *, code: str, retry: bool = False, **more: Any) -> Answer:
        self._results.labels(code).inc()
        headers = {"Retry-After": "1"} if retry else None
        return coded_error(status, message, code=code, headers=headers, **more)

    def _away(self, problem: StoreUnavailable) -> Answer:
        return self._count(503, str(problem), code="unavailable", retry=True)


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds <= MAX_WAIT_S else None
