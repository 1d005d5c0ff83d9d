"""The work queue as a pure state machine: which key may be worked on next, and when.

runtime/queue.py wraps it for tasks that wait. It keeps: a key is never worked on twice at once (INV: one
worker per key); a key that is added while it is worked on is queued again when that is done; a key is queued
at most once; keys are taken in the order in which they were queued, so none starves; of several wishes for
later the earliest wins. Memory is bounded by the number of keys that are queued, running, waiting or failing.
Time and jitter are arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

MAX_DOUBLINGS = 60


class Backoff(NamedTuple):
    """Delays of a key's 1st, 2nd, ... failure in a row: base_s, doubled each time up to max_s, less up to
    `spread` of it at random."""

    base_s: float = 0.005
    max_s: float = 300.0
    spread: float = 0.2

    def delay(self, failures: int, jitter: float) -> float:
        """Seconds to wait after `failures` earlier failures; `jitter` is from 0 to 1."""
        full = min(self.max_s, self.base_s * 2.0 ** min(failures, MAX_DOUBLINGS))
        return full * (1.0 - self.spread * jitter)


class QueueState(Generic[K]):
    """See the module. All times are seconds on one monotonic clock."""

    __slots__ = ("_failures", "_heap", "_order", "_ready", "_running", "_seq", "_wakes", "backoff")

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self._ready: dict[K, float] = {}  # queued, or to be queued when done: key -> since when
        self._order: deque[K] = deque()  # those of _ready that may be taken
        self._running: dict[K, float] = {}  # key -> since when
        self._wakes: dict[K, float] = {}  # key -> when to add it
        self._heap: list[tuple[float, int, K]] = []  # _wakes by time; entries that are not in it are void
        self._seq = 0
        self._failures: dict[K, int] = {}

    @property
    def depth(self) -> int:
        """Keys that may be taken now."""
        return len(self._order)

    @property
    def waiting(self) -> int:
        """Keys that wait for their time."""
        return len(self._wakes)

    @property
    def failing(self) -> int:
        """Keys with at least one failure since they were last forgotten."""
        return len(self._failures)

    @property
    def running(self) -> dict[K, float]:
        """Keys that are being worked on, and since when. Not to be changed."""
        return self._running

    def add(self, key: K, now: float) -> bool:
        """Queue `key` unless it is queued. True if it was not."""
        if key in self._ready:
            return False
        self._ready[key] = now
        if key not in self._running:
            self._order.append(key)
        return True

    def add_at(self, key: K, at: float) -> None:
        """Queue `key` at the time `at`, or earlier if that was wished before."""
        earlier = self._wakes.get(key)
        if earlier is not None and earlier <= at:
            return
        self._wakes[key] = at
        self._seq += 1
        heappush(self._heap, (at, self._seq, key))
        if len(self._heap) > 2 * len(self._wakes) + 64:
            self._heap = [entry for entry in self._heap if self._wakes.get(entry[2]) == entry[0]]
            heapify(self._heap)

    def next_wake(self) -> float | None:
        """When the first waiting key is due; None if none waits."""
        heap = self._heap
        while heap and self._wakes.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def wake_due(self, now: float) -> int:
        """Queue every waiting key whose time has come. Returns how many came to be queued."""
        count = 0
        while (at := self.next_wake()) is not None and at <= now:
            key = heappop(self._heap)[2]
            del self._wakes[key]
            count += self.add(key, now)
        return count

    def take(self, now: float) -> tuple[K, float] | None:
        """The key that has been queued the longest, and for how many seconds; None if none may be taken."""
        if not self._order:
            return None
        key = self._order.popleft()
        since = self._ready.pop(key)
        self._running[key] = now
        return key, now - since

    def done(self, key: K, now: float) -> float:
        """Work on `key` has ended; returns how long it took. Raises KeyError if it was not running."""
        since = self._running.pop(key)
        if key in self._ready:
            self._order.append(key)
        return now - since

    def retry(self, key: K, now: float, jitter: float, *, at_least_s: float = 0.0) -> float:
        """Queue `key` again after its backoff, or `at_least_s` if that is longer. Returns the delay."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = max(at_least_s, self.backoff.delay(failures, jitter))
        self.add_at(key, now + delay)
        return delay

    def forget(self, key: K) -> None:
        """Work on `key` went well: its next failure is the first again."""
        self._failures.pop(key, None)
