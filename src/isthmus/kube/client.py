"""A typed client of one API server: the verbs, as values in and values or errors.py's exceptions out.

Reflectors, controllers, the elector and the event recorder call it. Each call builds the request, sends it
through transport.py, and repeats it as retry.py allows, inside one deadline. Bodies are encoded and answers
decoded here, once, and only the fields that the caller named; objects read are frozen and never written back.
Writes pass the WriteGate as they leave. Nothing here knows a kind of ours.
"""

from __future__ import annotations

import enum
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from isthmus import __version__
from isthmus.api.meta import Object, Raw, Resource
from isthmus.clock import Clock, SystemClock
from isthmus.errors import IsthmusError
from isthmus.kube import answers, errors, retry
from isthmus.kube.answers import Page, Written
from isthmus.kube.config import ClusterConfig
from isthmus.kube.discovery import Discovery
from isthmus.kube.gate import OpenGate, WriteGate
from isthmus.kube.limiter import Limiter
from isthmus.kube.metrics import ClientMetrics
from isthmus.kube.stream import WatchStream
from isthmus.kube.transport import Transport

__all__ = ["Client", "Page", "PatchKind", "WriteGate", "Written"]

T = TypeVar("T", bound=Object)

PAGE: Final = 500
"""Objects per page of a list."""
WATCH_GRACE_S: Final = 5.0
"""How much longer than the server's own limit the client waits for the end of a watch."""
_JSON: Final = "application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_METADATA_LIST: Final = _METADATA.replace("Metadata;", "MetadataList;")
_encode: Final = msgspec.json.Encoder().encode


class PatchKind(enum.Enum):
    """How the server reads the body of a patch; the value is its content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML


class Client:
    """See the module. Use as an async context manager, on one event loop.

    `qps` and `burst`: a client-side rate, none by default. `timeout_s` bounds each call with all its repeats
    (one page of a list is one call). `gate` is asked as each write leaves.
    """

    def __init__(  # noqa: PLR0913 - the composition root's knobs
        self,
        config: ClusterConfig,
        *,
        user_agent: str = f"isthmus/{__version__}",
        qps: float = 0,
        burst: int = 0,
        clock: Clock | None = None,
        timeout_s: float = 30,
        gate: WriteGate | None = None,
        metrics: ClientMetrics | None = None,
    ) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._limiter = Limiter(qps, burst, self._clock) if qps > 0 else None
        self._transport = Transport(
            config, user_agent=user_agent, clock=self._clock, gate=gate or OpenGate(), metrics=metrics
        )
        self._discovery = Discovery(self.get_raw, self._clock)

    @property
    def config(self) -> ClusterConfig:
        """What it was made with."""
        return self._config

    async def __aenter__(self) -> Client:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    # Reads

    async def get(self, resource: Resource[T], namespace: str, name: str) -> T:
        """One object. Raises NotFound where it is not there, WrongAnswer where it does not fit its type."""
        path = _path(resource, namespace, name)
        body = await self._call("GET", path, repeatable=True)
        return answers.read_object(body, resource.type, f"GET {path}")

    async def list_page(  # noqa: PLR0913 - the API's own parameters
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
        continue_: str = "",
        resource_version: str | None = None,
        resource_version_match: str | None = None,
    ) -> Page[T]:
        """One page. An empty namespace means all; `limit` 0 means no paging.

        Raises Expired where `continue_` has become too old.
        """
        path = _path(resource, namespace)
        query = _query(
            labelSelector=label_selector,
            fieldSelector=field_selector,
            limit=str(limit) if limit else "",
            resourceVersion=resource_version,
            resourceVersionMatch=resource_version_match,
        )
        # `continue` is a Python word.
        if continue_:
            query += ("&" if query else "?") + urlencode({"continue": continue_})
        body = await self._call("GET", path + query, repeatable=True)
        return answers.read_page(body, resource.type, f"GET {path}")

    async def list_all(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE,
    ) -> AsyncIterator[Page[T]]:
        """The whole list of one instant, page by page. Raises Expired where it took too long: begin again."""
        continue_ = ""
        while True:
            page = await self.list_page(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=limit,
                continue_=continue_,
            )
            yield page
            continue_ = page.continue_
            if not continue_:
                return

    def watch(  # noqa: PLR0913 - the API's own parameters
        self,
        resource: Resource[Any],
        namespace: str = "",
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_s: float,
        idle_s: float | None = None,
        bookmarks: bool = True,
    ) -> AbstractAsyncContextManager[WatchStream]:
        """A stream of event lines after `resource_version`, which the server ends after `timeout_s`.

        A server that has not ended it `WATCH_GRACE_S` later is taken for unreachable, so no half-open
        connection outlives that; a stream that is silent for `idle_s` ends too (R18). No retry: watch.py
        decides what follows. Entering raises ApiError or Unreachable; iterating raises Unreachable or
        WrongAnswer.
        """
        query = _query(
            watch="1",
            resourceVersion=resource_version,
            allowWatchBookmarks="true" if bookmarks else "",
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=str(max(1, round(timeout_s))),
        )
        return self._transport.watch(
            _path(resource, namespace) + query,
            {"Accept": _JSON},
            lifetime_s=timeout_s + WATCH_GRACE_S,
            idle_s=idle_s,
        )

    async def get_raw(self, path: str) -> bytes:
        """The body at `path` (`/version`, `/apis`, `/openapi/v3`, ...), which may have a query."""
        return await self._call("GET", path, repeatable=True)

    async def served(self, resource: Resource[Any]) -> bool:
        """Whether the server has the resource in that group and version. Raises what went wrong; that there
        is no such API is an answer."""
        return await self._discovery.served(resource)

    # Writes

    async def create(self, resource: Resource[Any], namespace: str, body: Raw | bytes) -> Written:
        """POST. Sent again only where it surely was not received (never left, or 429).

        Raises AlreadyExists; after Unreachable with `sent` the object may or may not be there.
        """
        return await self._write("POST", _path(resource, namespace), body, _JSON, repeatable=False)

    async def apply(  # noqa: PLR0913 - the API's own parameters
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        body: Raw | bytes,
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
    ) -> Written:
        """Server-side apply. Raises Conflict where another manager owns a field and `force` is off."""
        query = _query(fieldManager=field_manager, force="true" if force else "")
        path = _path(resource, namespace, name, subresource) + query
        return await self._write("PATCH", path, body, _APPLY, repeatable=True)

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        body: Raw | list[Raw] | bytes,
        *,
        kind: PatchKind,
        subresource: str = "",
    ) -> Written:
        """PATCH of one kind. JSON patches are not repeated, since they need not be idempotent.

        A metadata.resourceVersion or uid in a merge patch, or a JSON patch's `test`, are its preconditions:
        Conflict or Invalid where they fail.
        """
        path = _path(resource, namespace, name, subresource)
        return await self._write("PATCH", path, body, kind.value, repeatable=kind is not PatchKind.JSON)

    async def update(
        self, resource: Resource[Any], namespace: str, name: str, body: Raw | bytes, *, subresource: str = ""
    ) -> Written:
        """PUT of a whole object that we own alone (a Lease). Raises Conflict where its version is old."""
        path = _path(resource, namespace, name, subresource)
        return await self._write("PUT", path, body, _JSON, repeatable=False)

    async def delete(  # noqa: PLR0913 - the API's own parameters
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_period_s: int | None = None,
    ) -> None:
        """DELETE, only of the object with that `uid` and `resource_version` where given.

        `propagation`: Background, Foreground or Orphan. Raises NotFound where it is gone, Conflict where a
        precondition fails. With a `uid`, a lost answer is asked for again.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        raw_options = _delete_options(
            propagationPolicy=propagation,
            gracePeriodSeconds=grace_period_s,
            preconditions={key: value for key, value in preconditions.items() if value is not None} or None,
        )
        await self._call(
            "DELETE",
            _path(resource, namespace, name),
            _encode(raw_options),
            content_type=_JSON,
            accept=_METADATA,
            repeatable=uid is not None,
        )

    async def delete_collection(
        self,
        resource: Resource[Any],
        namespace: str,
        *,
        label_selector: str,
        grace_period_s: int | None = None,
    ) -> None:
        """DELETE of all that match. Raises ValueError for an empty selector, which would match everything."""
        if not label_selector:
            raise ValueError("delete_collection without a label selector")
        await self._call(
            "DELETE",
            _path(resource, namespace) + _query(labelSelector=label_selector),
            _encode(_delete_options(gracePeriodSeconds=grace_period_s)),
            content_type=_JSON,
            accept=_METADATA_LIST,
            repeatable=False,
        )

    async def _write(
        self, method: str, target: str, body: Raw | list[Raw] | bytes, content_type: str, *, repeatable: bool
    ) -> Written:
        data = body if isinstance(body, bytes) else _encode(body)
        answer = await self._call(
            method, target, data, content_type=content_type, accept=_METADATA, repeatable=repeatable
        )
        return answers.read_written(answer, f"{method} {target}")

    async def _call(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        content_type: str = "",
        accept: str = _JSON,
        repeatable: bool,
    ) -> bytes:
        deadline = self._clock.monotonic() + self._timeout_s
        failures = 0
        while True:
            if self._limiter is not None:
                await self._limiter.wait()
            left = deadline - self._clock.monotonic()
            error: IsthmusError
            headers = {"Accept": accept}
            if content_type:
                headers["Content-Type"] = content_type
            try:
                answer = await self._transport.send(method, target, body, headers, timeout_s=max(left, 0.1))
            except errors.Unreachable as unreachable:
                error = unreachable
            else:
                if answer.status < 300:
                    return answer.body
                error = answers.error_from(
                    answer.status,
                    answer.body,
                    f"{method} {target}",
                    headers=answer.headers,
                    now=self._clock.now(),
                )
            failures += 1
            if isinstance(error, errors.Unauthorized):
                self._transport.renew()
            delay = retry.delay_after(
                error,
                failures=failures,
                repeatable=repeatable,
                renewable=self._transport.renewable,
                jitter=random.random(),
            )
            if delay is None or self._clock.monotonic() + delay >= deadline:
                raise error
            await self._clock.sleep(delay)


def _path(resource: Resource[Any], namespace: str, name: str = "", subresource: str = "") -> str:
    return resource.path(quote(namespace, safe=""), quote(name, safe=""), subresource)


def _query(**parameters: str | None) -> str:
    given = {key: value for key, value in parameters.items() if value is not None and value != ""}
    return f"?{urlencode(given)}" if given else ""


def _delete_options(**options: Any) -> Raw:
    raw_options: Raw = {"apiVersion": "v1", "kind": "DeleteOptions"}
    return raw_options | {key: value for key, value in options.items() if value is not None}
