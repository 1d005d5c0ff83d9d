"""A Reflector keeps a sink in step with one collection of the API server, for as long as the process lives.

app/operator.py makes one per resource and namespace and runs each as a supervised task; runtime/cache.py is
the sink. Decisions are watch_state.py's; this shell only does the I/O that the phase asks for. Lines are
decoded and handed to the sink in one go per piece that the socket gave, then the loop gets its turn. A sink
that raises for one object is logged and counted, and the watch goes on (R22). `age` says how long ago the
server last proved to be there. A watch that is silent for `idle_s` is opened anew, which costs one request
where all is merely quiet, and finds a path that died without a word within a minute (R18).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from isthmus import logs
from isthmus.api.meta import Object, Resource
from isthmus.clock import Clock, SystemClock
from isthmus.errors import IsthmusError
from isthmus.kube import errors, watch_lines, watch_state
from isthmus.kube.client import PAGE, Client
from isthmus.kube.metrics import WatchMetrics
from isthmus.kube.watch_state import (
    Arrived,
    Effect,
    Ended,
    Garbled,
    Input,
    Opened,
    Phase,
    Remove,
    Replace,
    Report,
    State,
    Tick,
    Upsert,
)

T = TypeVar("T", bound=Object)

log = logs.get(__name__)


class Sink(Protocol[T]):
    """Where the objects go. `source` tells apart the reflectors that fill one sink."""

    def replace(self, source: str, items: list[T], resource_version: str) -> None:
        """`items` is all there is in `source`; what was there before and is not in it has been deleted."""

    def upsert(self, source: str, obj: T) -> None:
        """An object was added or changed."""

    def remove(self, source: str, obj: T) -> None:
        """An object was deleted; `obj` is its last state."""

    def progress(self, source: str, resource_version: str) -> None:
        """Everything up to this version has been handed over. After each batch of events."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`watch_s`: how long the server keeps one watch open, up to twice that by chance, so that watches do not
    all end at once. `idle_s`: how long it may be silent; bookmarks come once a minute, later where nothing
    happens at all, which is too late to tell a quiet watch from a dead path. `page`: objects per page of a
    list. `state`: pauses and periodic lists."""

    watch_s: float = 300.0
    idle_s: float = 55.0
    page: int = PAGE
    state: watch_state.Settings = watch_state.Settings()


_QUIET: Final = frozenset(("ended_early", "connection_lost", "expired"))
"""Causes that every healthy cluster shows now and then; logged at info the first time in a row."""


class Reflector(Generic[T]):
    """See the module. `synced` is set once the sink has had a full list; `last_activity` is monotonic.

    An empty `namespace` means all namespaces. `name` tells two that watch the same resource apart; it is the
    resource's by default.
    """

    def __init__(  # noqa: PLR0913 - the contract of the composition root
        self,
        client: Client,
        resource: Resource[T],
        *,
        sink: Sink[T],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        source: str = "",
        clock: Clock | None = None,
        metrics: WatchMetrics | None = None,
        settings: Settings | None = None,
        chance: Callable[[], float] = random.random,
        name: str = "",
    ) -> None:
        self.name = name or resource.name
        self._client = client
        self._resource = resource
        self._sink = sink
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._source = source
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._settings = settings or Settings()
        # A watch that the server ends on time is a healthy one, however short that time is.
        self._machine = msgspec.structs.replace(
            self._settings.state,
            healthy_s=min(self._settings.state.healthy_s, self._settings.watch_s / 2),
        )
        self._chance = chance
        self._read_line = watch_lines.reader(resource.type)
        self._state = State()
        self._log = log.bind(resource=self.name, source=source)
        self.synced = asyncio.Event()
        self.last_activity = self._clock.monotonic()

    @property
    def resource(self) -> Resource[T]:
        """What it watches."""
        return self._resource

    @property
    def source(self) -> str:
        """The name under which it fills the sink."""
        return self._source

    @property
    def phase(self) -> Phase:
        """What it is doing, for people."""
        return self._state.phase

    def age(self, now: float) -> float:
        """Seconds since the server last showed that it was there; `now` is monotonic."""
        return now - self.last_activity

    async def run(self) -> None:
        """Reflect until cancelled. Raises nothing else but programming errors."""
        while True:
            self._feed(Tick())
            match self._state.phase:
                case Phase.PAUSED:
                    await self._clock.sleep(self._state.pause_until - self._clock.monotonic())
                case Phase.LISTING:
                    await self._fetch_page()
                case Phase.CONNECTING:
                    await self._watch()
                case Phase.STREAMING:
                    raise AssertionError("a stream is read inside _watch")

    async def _fetch_page(self) -> None:
        state = self._state
        try:
            page = await self._client.list_page(
                self._resource,
                self._namespace,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                limit=self._settings.page if state.paged else 0,
                continue_=state.continue_,
            )
        except IsthmusError as error:
            self._fail(error)
            return
        self._alive()
        self._feed(Arrived(page))

    async def _watch(self) -> None:
        try:
            async with self._client.watch(
                self._resource,
                self._namespace,
                resource_version=self._state.resource_version,
                label_selector=self._label_selector,
                field_selector=self._field_selector,
                timeout_s=self._settings.watch_s * (1 + self._chance()),
                idle_s=self._settings.idle_s,
            ) as stream:
                self._alive()
                self._feed(Opened())
                async for lines in stream.batches():
                    self._alive()
                    self._take(lines)
                    if self._state.phase is not Phase.STREAMING:
                        return
                    await asyncio.sleep(0)
        except errors.WrongAnswer as error:
            self._feed(Garbled(str(error)))
        except IsthmusError as error:
            self._fail(error)
        else:
            self._feed(Ended())

    def _take(self, lines: list[bytes]) -> None:
        before = self._state.resource_version
        read = self._read_line
        for line in lines:
            self._feed(read(line))
            if self._state.phase is not Phase.STREAMING:
                break
        version = self._state.resource_version
        if version and version != before:
            self._hand_over(self._sink.progress, self._source, version)

    def _fail(self, error: IsthmusError) -> None:
        self._log.debug("list or watch failed", error=str(error))
        self._feed(watch_lines.failure_of(error), error=str(error))

    def _alive(self) -> None:
        self.last_activity = self._clock.monotonic()

    def _feed(self, event: Input, *, error: str = "") -> None:
        self._state, effects = watch_state.step(
            self._state,
            event,
            now=self._clock.monotonic(),
            jitter=self._chance(),
            settings=self._machine,
        )
        for effect in effects:
            self._carry_out(effect, error)

    def _carry_out(self, effect: Effect, error: str) -> None:
        match effect:
            case Upsert(object=obj):
                self._hand_over(self._sink.upsert, self._source, obj)
            case Remove(object=obj):
                self._hand_over(self._sink.remove, self._source, obj)
            case Replace(items=items, resource_version=version):
                self._hand_over(self._sink.replace, self._source, items, version)
                self.synced.set()
                if self._metrics is not None:
                    self._metrics.lists.labels(self.name).inc()
                self._log.debug("listed", objects=len(items), resource_version=version)
            case Report():
                self._report(effect, error)

    def _hand_over(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception:
            self._log.exception("handling a change failed")
            if self._metrics is not None:
                self._metrics.sink_errors.labels(self.name).inc()

    def _report(self, report: Report, error: str) -> None:
        metrics = self._metrics
        if report.undecodable:
            for item in report.undecodable:
                self._log.error(
                    "object passed over: it does not fit its type",
                    namespace=item.namespace,
                    name=item.name,
                    error=item.error,
                )
            if metrics is not None:
                metrics.undecodable.labels(self.name).inc(len(report.undecodable))
            return
        if metrics is not None:
            metrics.interruptions.labels(self.name, report.cause).inc()
        usual = report.cause in _QUIET and self._state.failures <= 1
        write = self._log.info if usual else self._log.warning
        write(
            "watch interrupted",
            cause=report.cause,
            detail=report.detail or error,
            failures=self._state.failures,
            pause_s=round(report.pause_s, 3),
        )
