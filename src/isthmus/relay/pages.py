"""The relay over HTTP: whose pool it is, and its three planes, each whole or as a stream of whole states
(PW-13, PW-14).

app.py puts these routes on `--bind`. `?watch=1` makes server-sent events of a page: `event: snapshot` with
the page as data, a comment each ten seconds, and a clean end when the relay stops. `?incarnation=` asks for
one run of the relay, and gets 409 from another.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Final

import msgspec

from isthmus import __version__
from isthmus.api.pools import LoadSnapshot, Message
from isthmus.api.relayfacts import CatalogSnapshot, ReadinessSnapshot, RelayIdentity
from isthmus.clock import Clock
from isthmus.relay.plan.model import Facts
from isthmus.relay.planes import Plane, TooMany
from isthmus.relay.view import View
from isthmus.web.routes import Answer, Handler, Problem, Request, Route, coded_error, get, json_body

EVENTS: Final = "text/event-stream"
HEARTBEAT_S: Final = 10.0
HEARTBEAT: Final = b": heartbeat\n\n"

Page = Callable[[Facts, int, float], Message]


class Pages:
    """See the module."""

    def __init__(self, view: View, clock: Clock) -> None:
        self._view = view
        self._clock = clock

    def routes(self) -> list[Route]:
        """The paths that are answered."""
        view = self._view
        return [
            get("/v1/relay", self._relay),
            get("/v1/catalog", self._answering(view.catalog, self._catalog)),
            get("/v1/readiness", self._answering(view.readiness, self._readiness)),
            get("/v1/load", self._answering(view.load, self._load)),
        ]

    async def _relay(self, _: Request) -> Answer:
        options, facts = self._view.options, self._view.facts
        return Answer(
            body=json_body(
                RelayIdentity(
                    cluster_id=options.cluster_id,
                    namespace=options.selection.namespace,
                    name=options.selection.name,
                    kind=options.selection.kind,
                    instance_id=options.instance,
                    incarnation=options.incarnation,
                    version=__version__,
                    models=tuple(model.id for model in facts.models) if facts else (),
                )
            )
        )

    def _answering(self, plane: Plane, page: Page) -> Handler:
        async def answer(request: Request) -> Answer:
            query = dict(request.query)
            incarnation = query.get("incarnation", "")
            if incarnation and incarnation != self._view.options.incarnation:
                return _error(409, "producer_changed", "another run of this relay answers now")
            watch = query.get("watch", "0")
            if watch not in ("0", "1"):
                return _error(400, "invalid_request", "watch must be 0 or 1")
            if watch == "1":
                return Answer(body=self._events(plane, page), content_type=EVENTS)
            return Answer(body=json_body(self._page(plane, page)))

        return answer

    def _page(self, plane: Plane, page: Page) -> Message:
        """The present state. Raises Problem while there is none."""
        if plane.facts is None:
            message = "this relay has not seen its pool yet"
            raise Problem(_error(503, "publication_unavailable", message, retry=True))
        return page(plane.facts, plane.revision, self._clock.monotonic() - plane.at)

    async def _events(self, plane: Plane, page: Page) -> AsyncGenerator[bytes, None]:
        try:
            with plane.subscribed():
                self._page(plane, page)
                revision = 0
                while not plane.closed:
                    if plane.revision > revision:
                        revision = plane.revision
                        yield (
                            b"event: snapshot\ndata: "
                            + msgspec.json.encode(self._page(plane, page))
                            + b"\n\n"
                        )
                    if not await plane.newer(revision, self._clock, HEARTBEAT_S):
                        yield HEARTBEAT
        except TooMany as problem:
            raise Problem(_error(429, "resource_limit", str(problem), retry=True)) from None

    def _catalog(self, facts: Facts, revision: int, age_s: float) -> Message:
        return CatalogSnapshot(
            incarnation=self._view.options.incarnation,
            revision=revision,
            status=facts.status,
            age_ms=_ms(age_s),
            entries=facts.catalog,
        )

    def _readiness(self, facts: Facts, revision: int, age_s: float) -> Message:
        return ReadinessSnapshot(
            incarnation=self._view.options.incarnation,
            revision=revision,
            status=facts.status,
            age_ms=_ms(age_s),
            entries=facts.readiness,
        )

    def _load(self, facts: Facts, revision: int, _: float) -> Message:
        return LoadSnapshot(
            incarnation=self._view.options.incarnation,
            revision=revision,
            status=facts.load_status,
            age_ms=_ms(self._clock.monotonic() - facts.load_at),
            entries=facts.load,
        )


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _error(status: int, code: str, message: str, *, retry: bool = False) -> Answer:
    return coded_error(status, message, code=code, headers={"Retry-After": "1"} if retry else {})
