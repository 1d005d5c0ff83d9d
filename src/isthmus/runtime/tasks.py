"""Long tasks under supervision: none ends unnoticed, none outlives its owner.

A Supervisor owns every task that its component starts. A task that ends although nobody asked it to (it
returned, raised, or was cancelled from elsewhere) is logged and counted, and then, as its policy says, either
started again or reported through `failed`, whose owner takes the process down (R22). runtime/manager.py has
one for the process, a controller one for its workers. It must not decide how a process ends.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from isthmus import logs
from isthmus.clock import Clock
from isthmus.runtime.metrics import Metrics

log = logs.get(__name__)

FIRST_RESTART_S: Final = 0.1
MAX_RESTART_S: Final = 5.0
HEALTHY_S: Final = 60.0
"""A task that ran this long starts its restart delays anew."""


class Policy(enum.Enum):
    """What an unexpected end of a task means."""

    FATAL = "fatal"
    RESTART = "restart"


class TaskFailure(NamedTuple):
    """Which task ended, and with what exception (None: it returned, or was cancelled from elsewhere)."""

    name: str
    cause: BaseException | None


async def wait_first(*waits: Awaitable[Any]) -> None:
    """Return when the first of `waits` is done; the others are cancelled and have ended by then.

    What the first one raised is raised.
    """
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # noqa: TID251 - awaited below, whatever happens
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not task.cancelled() and (cause := task.exception()) is not None:
                raise cause
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_event(event: asyncio.Event, seconds: float, clock: Clock) -> bool:
    """Wait until `event` is set, for at most `seconds` on `clock`. Returns whether it is set."""
    if not event.is_set():
        await wait_first(event.wait(), clock.sleep(seconds))
    return event.is_set()


class _Entry:
    __slots__ = ("fn", "name", "policy", "resting", "task", "told", "until")

    def __init__(
        self, name: str, fn: Callable[[], Awaitable[None]], policy: Policy, until: asyncio.Event | None
    ) -> None:
        self.name = name
        self.fn = fn
        self.policy = policy
        self.until = until
        self.told = False
        self.resting = False
        self.task: asyncio.Task[None] | None = None

    @property
    def stopping(self) -> bool:
        """Whether its end is expected."""
        return self.told or (self.until is not None and self.until.is_set())


class Supervisor:
    """An async context manager. Leaving it cancels what still runs and waits for it."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._group = asyncio.TaskGroup()
        self._entries: dict[str, _Entry] = {}
        self._ends = metrics.counter(
            "isthmus_task_unexpected_ends_total", "Long tasks that ended unasked.", ["task"]
        )
        self.failed = asyncio.Event()
        self.failure: TaskFailure | None = None

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for entry in self._entries.values():
            entry.told = True
            if entry.task is not None:
                entry.task.cancel()
        await self._group.__aexit__(None, None, None)  # what the body raised goes its own way

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks that are under supervision now."""
        return tuple(self._entries)

    def start(
        self,
        name: str,
        fn: Callable[[], Awaitable[None]],
        *,
        policy: Policy = Policy.FATAL,
        until: asyncio.Event | None = None,
    ) -> asyncio.Task[None]:
        """Run `fn()` until it is told to end, by `finish` or by the event `until`. Raises ValueError where a
        task of that name runs.

        `fn` is called again for each restart. The task is returned for tests and reports; end it by name.
        """
        if name in self._entries:
            raise ValueError(f"task {name} runs already")
        entry = self._entries[name] = _Entry(name, fn, policy, until)
        entry.task = self._group.create_task(self._supervise(entry), name=name)
        entry.task.add_done_callback(lambda task: self._ended(entry, task))
        return entry.task

    async def finish(self, names: Iterable[str], deadline_s: float | None = None) -> bool:
        """The named tasks are expected to end now: wait for them, cancel those that have not ended after
        `deadline_s` seconds (at once if 0, never if None), and return whether none had to be. Unknown names
        have ended."""
        entries = [self._entries[name] for name in names if name in self._entries]
        for entry in entries:
            entry.told = True
            if entry.resting and entry.task is not None:
                entry.task.cancel()
        tasks = [entry.task for entry in entries if entry.task is not None]
        if not tasks:
            return True
        if deadline_s is None:
            await asyncio.wait(tasks)
        elif deadline_s > 0:
            await wait_first(asyncio.wait(tasks), self._clock.sleep(deadline_s))
        late = [task for task in tasks if not task.done()]
        for task in late:
            task.cancel()
        await asyncio.wait(tasks)
        return not late

    async def _supervise(self, entry: _Entry) -> None:
        rest = 0.0
        while True:
            cause, ran_s = await self._run_once(entry, rest)
            if entry.stopping:
                if cause is not None:
                    log.warning("a task failed while it was being stopped", task=entry.name, exc_info=cause)
                return
            if entry.policy is Policy.FATAL:
                self._fail(entry, cause)
                return
            rest = min(MAX_RESTART_S, rest * 2) if rest and ran_s < HEALTHY_S else FIRST_RESTART_S
            self._ends.labels(entry.name).inc()
            log.error(
                "a task ended unasked; starting it again", task=entry.name, delay_s=rest, exc_info=cause
            )

    def _ended(self, entry: _Entry, task: asyncio.Task[None]) -> None:
        del self._entries[entry.name]
        if task.cancelled() and not entry.stopping:
            self._fail(entry, None)  # cancelled before its first step

    def _fail(self, entry: _Entry, cause: BaseException | None) -> None:
        self._ends.labels(entry.name).inc()
        log.error("a task ended unasked; the process must end", task=entry.name, exc_info=cause)
        if self.failure is None:
            self.failure = TaskFailure(entry.name, cause)
            self.failed.set()

    async def _run_once(self, entry: _Entry, rest_s: float) -> tuple[BaseException | None, float]:
        """Rest, then run to the end, however it comes, and say how long that took. A cancellation that did
        not come from the owner is such an end."""
        began = self._clock.monotonic()
        try:
            if rest_s:
                entry.resting = True
                await self._clock.sleep(rest_s)
                entry.resting = False
            began = self._clock.monotonic()
            if not entry.stopping:
                await entry.fn()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if entry.stopping or task is None:
                raise
            task.uncancel()
        except Exception as cause:
            return cause, self._clock.monotonic() - began
        finally:
            entry.resting = False
        return None, self._clock.monotonic() - began
