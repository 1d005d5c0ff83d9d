"""Tells people what the operator does, as events.k8s.io/v1 Events, without ever getting in the way of doing
it.

Controllers call `emit`, which neither waits nor raises; one supervised task (`run`) sends, one request at a
time. Repeats of an event become its series, sent at most every SPACING_S; runtime/event_state.py says what is
a repeat and what is too much. What cannot be sent is dropped and counted: events are news, not state, and no
decision may depend on one. Rights needed: create and patch on events in events.k8s.io.
"""

from __future__ import annotations

import asyncio
import heapq
import secrets
from collections import deque
from typing import Any, Final, Literal, NamedTuple, Protocol

from isthmus import logs
from isthmus.api.coordination import EVENTS
from isthmus.api.meta import Object, Raw, Resource
from isthmus.api.times import format_micro_time
from isthmus.clock import Clock
from isthmus.errors import IsthmusError, WorldError
from isthmus.kube.client import PatchKind, Written
from isthmus.kube.errors import AlreadyExists, ApiError, NotFound, WriteRefused
from isthmus.runtime.event_state import Series, SeriesBook, SpamFilter
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import wait_event

log = logs.get(__name__)

EventType = Literal["Normal", "Warning"]

QUEUE_LIMIT: Final = 1000
SPACING_S: Final = 10.0
"""Seconds between two updates of one series."""
PURGE_S: Final = 60.0
TRIES: Final = 5
FIRST_RETRY_S: Final = 1.0
NOTE_BYTES: Final = 1024
FIELD_CHARS: Final = 128
NAME_CHARS: Final = 253 - 17


class ObjectRef(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""

    @classmethod
    def to(cls, resource: Resource[Any], obj: Object) -> ObjectRef:
        """A reference to this state of a decoded object."""
        meta = obj.metadata
        return cls(
            resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid, meta.resource_version
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """The object, in whatever state."""
        return self[:5]

    def raw(self) -> Raw:
        """As JSON, without what is empty."""
        names = ("apiVersion", "kind", "namespace", "name", "uid", "resourceVersion")
        return {name: value for name, value in zip(names, self, strict=True) if value}


class EventClient(Protocol):
    """What is needed of kube.client.Client."""

    async def create(self, resource: Resource[Any], namespace: str, body: Raw) -> Written:
        """See Client.create."""

    async def patch(
        self, resource: Resource[Any], namespace: str, name: str, body: Raw, *, kind: PatchKind
    ) -> Written:
        """See Client.patch."""


class _What(NamedTuple):
    regarding: ObjectRef
    related: ObjectRef | None
    type: EventType
    reason: str
    action: str
    note: str
    name: str


class EventRecorder:
    """See the module. `controller`: a qualified name, say `isthmus.dev/operator`; `instance`: this
    process."""

    def __init__(
        self, client: EventClient, *, controller: str, instance: str, clock: Clock, metrics: Metrics
    ) -> None:
        self._client = client
        self.controller = controller
        self._instance = instance[:FIELD_CHARS]
        self._clock = clock
        self._spam = SpamFilter()
        self._book: SeriesBook[_What] = SeriesBook()
        self._new: deque[Series[_What]] = deque()
        self._repeats: list[tuple[float, int, Series[_What]]] = []
        self._seq = 0
        self._news = asyncio.Event()
        self._closing = asyncio.Event()
        self._said: set[str] = set()
        self._sent = metrics.counter("isthmus_events_sent_total", "Requests that told an event.")
        self._dropped = metrics.counter(
            "isthmus_events_dropped_total", "Events that were not told, by cause.", ["cause"]
        )

    def emit(
        self,
        regarding: ObjectRef,
        *,
        type: EventType,
        reason: str,
        action: str,
        note: str,
        related: ObjectRef | None = None,
    ) -> None:
        """Say once more that this happened to `regarding`. Never waits, never raises.

        `reason` (why) and `action` (what was done) are CamelCase words; `note` is for people and is cut at
        1,024 bytes.
        """
        try:
            self._emit(_What(regarding, related, type, reason, action, note, ""))
        except Exception:
            self._drop("error")
            log.exception("an event could not be noted", reason=reason)

    @property
    def backlog(self) -> int:
        """Events and series updates that wait to be sent."""
        return len(self._new) + len(self._repeats)

    def stop(self) -> None:
        """Send what waits, without spacing, and let run() return. The caller bounds how long that may
        take."""
        self._closing.set()
        self._news.set()

    async def run(self) -> None:
        """Send, until stop() and nothing waits."""
        purged = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            if now - purged >= PURGE_S:
                purged = now
                self._book.purge(now)
                self._spam.purge(now)
            series = self._take(now)
            if series is not None:
                await self._send(series)
                continue
            if self._closing.is_set():
                return
            self._news.clear()
            if self._repeats:
                await wait_event(self._news, min(PURGE_S, self._repeats[0][0] - now), self._clock)
            elif len(self._book) or len(self._spam):
                await wait_event(self._news, PURGE_S, self._clock)
            else:
                await self._news.wait()

    def _emit(self, what: _What) -> None:
        now, wall = self._clock.monotonic(), self._clock.now()
        subject = what.regarding.identity
        # The subject in whatever state, and the related object as it was read: what is said again of another
        # state of it is news (PR-79, PR-80).
        key = (subject, what.related, what.type, what.reason, what.action)
        series = self._book.repeat(key, now, wall)
        if not self._spam.allow(subject, now):
            self._drop("too many")
            return
        if series is None:
            if len(self._new) >= QUEUE_LIMIT:
                self._drop("queue full")
                return
            self._new.append(self._book.begin(key, what._replace(name=_name(what)), now, wall))
        elif not series.waiting:
            series.waiting = True
            self._seq += 1
            due = now if series.sent_at is None else max(now, series.sent_at + SPACING_S)
            heapq.heappush(self._repeats, (due, self._seq, series))
        self._news.set()

    def _take(self, now: float) -> Series[_What] | None:
        """What to send now: news before repeats, and repeats when they are due (all at the end)."""
        if self._new:
            return self._new.popleft()
        if self._repeats and (self._closing.is_set() or self._repeats[0][0] <= now):
            return heapq.heappop(self._repeats)[2]
        return None

    async def _send(self, series: Series[_What]) -> None:
        series.waiting = False
        delay = FIRST_RETRY_S
        for attempt in range(TRIES):
            try:
                await self._request(series)
            except AlreadyExists:
                pass  # a try before this one was received after all
            except WriteRefused:
                return self._drop("not leading")
            except WorldError as error:
                if attempt + 1 == TRIES or self._closing.is_set():
                    return self._give_up(error)
                after = (error.retry_after_s or 0.0) if isinstance(error, ApiError) else 0.0
                await wait_event(self._closing, max(delay, after), self._clock)
                delay *= 2
                continue
            except IsthmusError as error:
                return self._give_up(error)
            series.sent_at = self._clock.monotonic()
            self._sent.inc()
            return None
        return None

    async def _request(self, series: Series[_What]) -> None:
        what = series.what
        namespace = what.regarding.namespace or "default"
        if series.sent_at is not None:
            raw_patch: Raw = {"series": _raw_series(series)}
            try:
                await self._client.patch(EVENTS, namespace, what.name, raw_patch, kind=PatchKind.MERGE)
                return
            except NotFound:  # it has expired on the server
                series.what = what._replace(name=_name(what))
        await self._client.create(EVENTS, namespace, self._raw(series))

    def _raw(self, series: Series[_What]) -> Raw:
        what = series.what
        namespace = what.regarding.namespace or "default"
        raw_event: Raw = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": what.name, "namespace": namespace},
            "eventTime": format_micro_time(series.first_wall),
            "reportingController": self.controller,
            "reportingInstance": self._instance,
            "action": what.action[:FIELD_CHARS],
            "reason": what.reason[:FIELD_CHARS],
            "regarding": what.regarding.raw(),
            "note": _cut(what.note),
            "type": what.type,
        }
        if what.related is not None:
            raw_event["related"] = what.related.raw()
        if series.count > 1:
            raw_event["series"] = _raw_series(series)
        return raw_event

    def _give_up(self, error: IsthmusError) -> None:
        self._drop("failed")
        if type(error).__name__ not in self._said:
            self._said.add(type(error).__name__)
            log.warning("an event could not be sent; later ones of this sort fail silently", error=str(error))

    def _drop(self, cause: str) -> None:
        self._dropped.labels(cause).inc()


def _raw_series(series: Series[_What]) -> Raw:
    return {"count": series.count, "lastObservedTime": format_micro_time(series.last_wall)}


def _name(what: _What) -> str:
    """A name that sorts under the object's, is unique, and stays within a DNS subdomain's length."""
    return f"{what.regarding.name[:NAME_CHARS].rstrip('.-')}.{secrets.token_hex(8)}"


def _cut(note: str) -> str:
    """At most NOTE_BYTES in UTF-8, which is what the API server measures."""
    data = note.encode(errors="replace")
    if len(data) <= NOTE_BYTES:
        return data.decode()
    return data[: NOTE_BYTES - 3].decode(errors="ignore") + "…"
