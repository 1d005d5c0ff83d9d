"""Runs the parts of an operator process in their order, says how healthy they are, and ends them in reverse.

app/operator.py makes the parts and hands them over; `Manager._phases` is the one list of phases, and its
order is the point (INV): servers first, so that probes and the debug port answer on every replica from before
anything is known until the very end; caches complete before this replica stands for election, so a leader can
work at once, and no worker concludes anything from a cache that is not; the lease is given back only when no
worker or event can write any more. A task that dies, and a lost lease above all, end the process with a code
other than 0. Signals are the caller's.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol

from isthmus import logs
from isthmus.clock import Clock
from isthmus.runtime.cache import AnyCache
from isthmus.runtime.controller import Controller
from isthmus.runtime.election import LeaderElector, LeaseLost
from isthmus.runtime.events import EventRecorder
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import Policy, Supervisor, wait_first

log = logs.get(__name__)

REPORT_S: Final = 10.0
"""Seconds between two log lines that name the caches that are waited for."""

Check = Callable[[], str | None]
"""None where all is well, else one line that says what is wrong (web/health.py shows it)."""


class Exit(enum.IntEnum):
    """What the process should exit with. 2 is left to usage errors."""

    STOPPED = 0
    TASK_DIED = 1
    LEASE_LOST = 3


class Server(Protocol):
    """A listener (web.server.Listener)."""

    async def serve(self) -> None:
        """Accept connections from now on. Raises UserError for a port that cannot be had."""

    async def stop(self) -> None:
        """Accept no more, and let running answers end within a time of its own."""


class Watch(Protocol):
    """What keeps a cache in step with the API server (kube.watch.Reflector)."""

    @property
    def name(self) -> str:
        """What is watched: the name of the cache that it feeds."""

    @property
    def source(self) -> str:
        """Which of the cache's sources it feeds."""

    async def run(self) -> None:
        """Watch until cancelled."""

    def age(self, now: float) -> float:
        """Seconds since the last proof that it still hears the server."""


class Watches(Protocol):
    """Whoever runs watches (the Manager)."""

    def start_watch(self, watch: Watch) -> None:
        """Watch one thing more, from now on."""

    async def stop_watch(self, watch: Watch) -> None:
        """Watch it no more."""


class Optional(Protocol):
    """Watches that come and go with their API (runtime.optional.OptionalApi)."""

    @property
    def name(self) -> str:
        """What is watched while there is any."""

    async def run(self, watches: Watches) -> None:
        """Start and stop watches as needed, until cancelled."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a process is made of. Without `election` it leads from the start. `background` names tasks that
    every replica runs as long as it runs at all; `farewells` are called when a leader's workers have ended in
    good order, while it may still write."""

    caches: Sequence[AnyCache] = ()
    watches: Sequence[Watch] = ()
    controllers: Sequence[Controller] = ()
    election: LeaderElector | None = None
    optionals: Sequence[Optional] = ()
    recorders: Sequence[EventRecorder] = ()
    farewells: Sequence[Callable[[], Awaitable[None]]] = ()
    background: Mapping[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)


class Settings(NamedTuple):
    """Seconds. `watch_age_s`: a watch that has heard nothing for longer turns liveness and readiness red. The
    others bound the stop of each phase; together they fit into the 30 that Kubernetes gives a pod."""

    watch_age_s: float = 180.0
    workers_s: float = 15.0
    farewells_s: float = 2.0
    events_s: float = 2.0
    release_s: float = 3.0
    servers_s: float = 6.0


class Phase(NamedTuple):
    """One row of the manager's list. `runs_on` leader: started once this process leads. `stop` gets how many
    seconds it has: `grace_s`, or `failed_s` where the process ends because something is wrong."""

    name: str
    runs_on: Literal["every", "leader"]
    start: Callable[[], Awaitable[None]]
    stop: Callable[[float], Awaitable[None]]
    grace_s: float
    failed_s: float


class Manager:
    """See the module. Servers are added after it is made, since they serve its checks."""

    def __init__(
        self,
        parts: Parts,
        *,
        clock: Clock,
        metrics: Metrics,
        settings: Settings = Settings(),  # noqa: B008 - immutable
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._servers: list[Server] = []
        self._watches: dict[str, Watch] = {}
        self._tasks: Supervisor | None = None
        self._watching = False
        self._leading = asyncio.Event()
        self._stop = asyncio.Event()
        self._begun: list[Phase] = []
        for watch in parts.watches:
            self._know_watch(watch)

    def _phases(self) -> tuple[Phase, ...]:
        s = self._settings
        return (
            Phase("servers", "every", self._serve, self._stop_servers, s.servers_s, s.servers_s),
            Phase("caches", "every", self._fill_caches, self._stop_caches, 0, 0),
            Phase("election", "every", self._stand, self._release, s.release_s, s.release_s),
            Phase("events", "leader", self._start_events, self._flush_events, s.events_s, s.events_s),
            Phase("workers", "leader", self._start_workers, self._stop_workers, s.workers_s, 0),
        )

    def add_server(self, server: Server) -> None:
        """Serve it in the first phase. Call before run()."""
        self._servers.append(server)

    def request_stop(self) -> None:
        """End in good order: what a SIGTERM should call. Readiness turns red at once."""
        if not self._stop.is_set():
            log.info("stopping", phase=self.phase)
            self._stop.set()

    @property
    def phase(self) -> str:
        """The last phase that has begun; "" before the first."""
        return self._begun[-1].name if self._begun else ""

    @property
    def leading(self) -> bool:
        """Whether this process has become the leader (and not: whether it still may write)."""
        return self._leading.is_set()

    async def run(self) -> Exit:
        """Run until request_stop() or a failure, and return the exit code. Raises what a phase raised while
        it started (UserError: a port in use), after the phases before it have been ended."""
        async with Supervisor(self._clock, self._metrics) as tasks:
            self._tasks = tasks
            try:
                await wait_first(self._start(), self._stop.wait(), tasks.failed.wait())
            finally:
                self._stop.set()
                await self._end()
            if tasks.failure is None:
                return Exit.STOPPED
            return Exit.LEASE_LOST if isinstance(tasks.failure.cause, LeaseLost) else Exit.TASK_DIED

    # Health

    def ready_checks(self) -> dict[str, Check]:
        """What readiness means: every cache complete and fresh, and not about to end."""
        return {"caches": self._incomplete, "watches": self._stale, "running": self._ending}

    def live_checks(self) -> dict[str, Check]:
        """What liveness means: every watch hears the API server, and no task has died."""
        return {"watches": self._stale, "tasks": self._dead}

    def _incomplete(self) -> str | None:
        names = [cache.name for cache in self._parts.caches if not cache.complete]
        return f"not complete yet: {', '.join(names)}" if names else None

    def _stale(self) -> str | None:
        now, bound = self._clock.monotonic(), self._settings.watch_age_s
        ages = {name: watch.age(now) for name, watch in self._watches.items()}
        names = [f"{name} ({age:.0f} s)" for name, age in ages.items() if age > bound]
        return f"nothing heard for more than {bound:.0f} s: {', '.join(names)}" if names else None

    def _ending(self) -> str | None:
        return "about to end" if self._stop.is_set() or self._dead() else None

    def _dead(self) -> str | None:
        failure = self._tasks.failure if self._tasks is not None else None
        return f"ended unasked: {failure.name}" if failure is not None else None

    # Watches that come and go with their API

    def start_watch(self, watch: Watch) -> None:
        """Watch one thing more, from now on. Its cache should have been told mark_unknown."""
        name = self._know_watch(watch)
        if self._watching and self._tasks is not None:
            self._tasks.start(name, watch.run)

    async def stop_watch(self, watch: Watch) -> None:
        """Watch it no more. Its cache can be told mark_absent afterwards, if its API is gone."""
        name = _watch_name(watch)
        if self._watches.pop(name, None) is not None:
            labels = {"resource": watch.name, "source": watch.source}
            self._metrics.forget("isthmus_watch_age_seconds", **labels)
            if self._tasks is not None:
                await self._tasks.finish([name], 0)

    def _know_watch(self, watch: Watch) -> str:
        name = _watch_name(watch)
        if name in self._watches:
            raise ValueError(f"{name} is watched already")
        self._watches[name] = watch
        self._metrics.read_gauge(
            "isthmus_watch_age_seconds",
            "Seconds since a watch last heard the API server.",
            lambda: watch.age(self._clock.monotonic()),
            resource=watch.name,
            source=watch.source,
        )
        return name

    # The phases, each beside its end

    async def _start(self) -> None:
        for phase in self._phases():
            if phase.runs_on == "leader":
                await self._leading.wait()
            self._begun.append(phase)
            await phase.start()
            log.debug("phase has begun", phase=phase.name)
        log.info("all phases have begun")
        await asyncio.Event().wait()

    async def _end(self) -> None:
        failed = self._supervisor().failure is not None
        while self._begun:
            phase = self._begun.pop()
            seconds = phase.failed_s if failed else phase.grace_s
            try:
                await phase.stop(seconds)
            except Exception:
                log.exception("a phase did not end well", phase=phase.name)
            log.debug("phase has ended", phase=phase.name)

    def _supervisor(self) -> Supervisor:
        if self._tasks is None:
            raise RuntimeError("the manager does not run")
        return self._tasks

    async def _serve(self) -> None:
        for server in self._servers:
            await server.serve()

    async def _stop_servers(self, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(server.stop() for server in self._servers))

    async def _fill_caches(self) -> None:
        tasks = self._supervisor()
        for name, fn in self._parts.background.items():
            tasks.start(name, fn)
        self._watching = True
        for name, watch in self._watches.items():
            tasks.start(name, watch.run)
        for optional in self._parts.optionals:
            tasks.start(_optional_name(optional), partial(optional.run, self))
        for cache in self._parts.caches:
            while not cache.complete:
                await wait_first(cache.wait_complete(), self._clock.sleep(REPORT_S))
                if not cache.complete:
                    log.info("waiting for the first list", caches=self._incomplete())

    async def _stop_caches(self, seconds: float) -> None:
        self._watching = False
        await self._supervisor().finish(map(_optional_name, self._parts.optionals), 0)
        await self._supervisor().finish([*self._watches, *self._parts.background], seconds)

    async def _stand(self) -> None:
        election = self._parts.election
        if election is None:
            self._leading.set()
        else:
            self._supervisor().start("election", lambda: election.run(self._leading.set))

    async def _release(self, seconds: float) -> None:
        if self._parts.election is not None:
            self._parts.election.stop()
            await self._supervisor().finish(["election"], seconds)

    async def _start_events(self) -> None:
        for recorder in self._parts.recorders:
            self._supervisor().start(_events_name(recorder), recorder.run, policy=Policy.RESTART)

    async def _flush_events(self, seconds: float) -> None:
        for recorder in self._parts.recorders:
            recorder.stop()
        await self._supervisor().finish(map(_events_name, self._parts.recorders), seconds)

    async def _start_workers(self) -> None:
        for controller in self._parts.controllers:
            self._supervisor().start(f"controller/{controller.name}", controller.run)

    async def _stop_workers(self, seconds: float) -> None:
        for controller in self._parts.controllers:
            controller.stop()
        names = [f"controller/{controller.name}" for controller in self._parts.controllers]
        if not await self._supervisor().finish(names, seconds):
            log.warning("reconciles were cut short", after_s=seconds)
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.farewells_s):
                    for farewell in self._parts.farewells:
                        await farewell()


def _optional_name(optional: Optional) -> str:
    return f"optional/{optional.name}"


def _events_name(recorder: EventRecorder) -> str:
    return f"events/{recorder.controller}"


def _watch_name(watch: Watch) -> str:
    return f"watch/{watch.name}" + (f"/{watch.source}" if watch.source else "")
