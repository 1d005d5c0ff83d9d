"""The work queue that controllers wait on: runtime/queue_state.py with a clock, waiting tasks and metrics.

Subscribers of caches `add` keys, a controller's workers `get` them, and `run` (one supervised task per queue)
brings in those whose time has come. All calls come from the event loop; only `get` and `run` wait. Its
metrics have controller-runtime's names, labels and meaning.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from isthmus.api.meta import Key
from isthmus.clock import Clock
from isthmus.errors import IsthmusError
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.queue_state import Backoff, QueueState
from isthmus.runtime.tasks import wait_event

BUCKETS: Final = tuple(10.0**exponent for exponent in range(-8, 4))
"""Seconds: what controller-runtime's workqueue histograms use."""


class QueueShutDown(IsthmusError):
    """The queue gives out no more keys."""


class WorkQueue:
    """See the module.

    `seed`: where it is given, keys are dropped until `open()`, which then adds every key that `seed` yields.
    So a replica that does not lead does not collect the keys of objects that are long gone.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        metrics: Metrics,
        *,
        backoff: Backoff = Backoff(),  # noqa: B008 - immutable
        seed: Callable[[], Iterable[Key]] | None = None,
    ) -> None:
        self.name = name
        self.clock = clock
        self._state: QueueState[Key] = QueueState(backoff)
        self._seed = seed
        self._accepting = seed is None
        self._shut = False
        self._getters: deque[asyncio.Future[None]] = deque()
        self._sooner = asyncio.Event()
        self._asleep_until: float | None = None
        self._adds = 0
        self._retries = 0
        self._register(metrics)

    def __len__(self) -> int:
        """Keys that a worker could take now."""
        return self._state.depth

    @property
    def idle(self) -> bool:
        """Whether no key is queued or being worked on (some may wait for their time)."""
        return not self._state.depth and not self._state.running

    def open(self) -> None:
        """Workers have started: accept keys from now on."""
        if self._accepting or self._shut:
            return
        self._accepting = True
        if self._seed is not None:
            for key in self._seed():
                self.add(key)

    def add(self, key: Key) -> None:
        """Queue `key` unless it is queued already."""
        if self._accepting and self._state.add(key, self.clock.monotonic()):
            self._adds += 1
            if self._getters:
                self._wake_getter()

    def add_after(self, key: Key, seconds: float) -> None:
        """Queue `key` in `seconds` from now; of several such wishes the earliest wins."""
        if seconds <= 0:
            self.add(key)
        elif self._accepting:
            self._state.add_at(key, self.clock.monotonic() + seconds)
            self._wake_runner()

    def add_at(self, key: Key, wall: float) -> None:
        """Queue `key` at the wall time `wall` (seconds since the epoch), as the clock stands now."""
        self.add_after(key, wall - self.clock.now())

    async def get(self) -> Key:
        """The next key; it is this worker's alone until `done`. Raises QueueShutDown after shut_down()."""
        while True:
            if self._shut:
                raise QueueShutDown(f"queue {self.name} is shut down")
            taken = self._state.take(self.clock.monotonic())
            if taken is not None:
                self._waited.observe(taken[1])
                return taken[0]
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except BaseException:
                if getter.done() and not getter.cancelled():
                    self._wake_getter()  # the key that this one was woken for is another's now
                else:
                    with contextlib.suppress(ValueError):
                        self._getters.remove(getter)
                raise

    def done(self, key: Key) -> None:
        """Work on `key` has ended, well or not; call it once for each get."""
        self._worked.observe(self._state.done(key, self.clock.monotonic()))
        if self._state.depth and self._getters:
            self._wake_getter()

    def retry(self, key: Key, *, at_least_s: float = 0.0) -> float:
        """Queue `key` again after its backoff, or `at_least_s` where that is longer. Returns the delay."""
        if not self._accepting:
            return 0.0
        jitter = random.random()
        delay = self._state.retry(key, self.clock.monotonic(), jitter, at_least_s=at_least_s)
        self._retries += 1
        self._wake_runner()
        return delay

    def forget(self, key: Key) -> None:
        """Start the backoff of `key` anew."""
        self._state.forget(key)

    def shut_down(self) -> None:
        """Give out no more keys and accept none. Work that runs may still call done."""
        self._shut = True
        self._accepting = False
        while self._getters:
            self._wake_getter()

    async def run(self) -> None:
        """Queue keys whose time has come, for ever."""
        while True:
            now = self.clock.monotonic()
            added = self._state.wake_due(now)
            self._adds += added
            for _ in range(min(added, len(self._getters))):
                self._wake_getter()
            self._sooner.clear()
            self._asleep_until = self._state.next_wake()
            if self._asleep_until is None:
                await self._sooner.wait()
            else:
                await wait_event(self._sooner, self._asleep_until - now, self.clock)

    def _wake_getter(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _wake_runner(self) -> None:
        """Only if the first wake-up is earlier than the runner believes."""
        if self._asleep_until is None or (self._state.next_wake() or 0.0) < self._asleep_until:
            self._sooner.set()

    def _unfinished(self) -> float:
        now = self.clock.monotonic()
        return sum(now - since for since in self._state.running.values())

    def _longest(self) -> float:
        return self.clock.monotonic() - min(self._state.running.values(), default=self.clock.monotonic())

    def _register(self, metrics: Metrics) -> None:
        labels = {"name": self.name, "controller": self.name}
        state = self._state
        for name, text, read in (
            ("workqueue_depth", "Keys in the queue.", lambda: float(state.depth)),
            ("workqueue_unfinished_work_seconds", "Seconds of work in progress.", self._unfinished),
            ("workqueue_longest_running_processor_seconds", "Age of the oldest work.", self._longest),
            ("isthmus_workqueue_waiting", "Keys that wait for their time.", lambda: float(state.waiting)),
            ("isthmus_workqueue_failing", "Keys in backoff.", lambda: float(state.failing)),
        ):
            metrics.read_gauge(name, text, read, **labels)
        metrics.read_counter("workqueue_adds_total", "Keys added.", lambda: float(self._adds), **labels)
        metrics.read_counter(
            "workqueue_retries_total",
            "Keys queued again after a failure.",
            lambda: float(self._retries),
            **labels,
        )
        names = tuple(labels)
        self._waited = metrics.histogram(
            "workqueue_queue_duration_seconds", "How long keys stay queued.", names, buckets=BUCKETS
        ).labels(**labels)
        self._worked = metrics.histogram(
            "workqueue_work_duration_seconds", "How long work on a key takes.", names, buckets=BUCKETS
        ).labels(**labels)
