"""Which events are new, which are repeats, and which are too many: the pure half of runtime/events.py.

It keeps: the same thing said again about the same object within SERIES_S is counted in one series, not told
anew; one object causes at most BURST events at once and then one per REFILL_S (client-go's figures), so a
broken object cannot flood the API server; memory is bounded by LIMIT records of either sort, the least
recently used going first. Time is an argument.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

V = TypeVar("V")

BURST: Final = 25
REFILL_S: Final = 300.0
SERIES_S: Final = 360.0
"""A repeat later than this after the one before it is a new event."""
LIMIT: Final = 4096


class SpamFilter:
    """A token bucket per object."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # tokens, as of when

    def __len__(self) -> int:
        return len(self._buckets)

    def allow(self, subject: Hashable, now: float) -> bool:
        """Whether one more event about `subject` may be sent at `now`; takes a token if so."""
        tokens, since = self._buckets.pop(subject, (float(BURST), now))
        tokens = min(float(BURST), tokens + (now - since) / REFILL_S)
        allowed = tokens >= 1.0
        self._buckets[subject] = (tokens - 1.0 if allowed else tokens, now)
        if len(self._buckets) > LIMIT:
            self._buckets.popitem(last=False)
        return allowed

    def purge(self, now: float) -> None:
        """Forget the objects whose bucket would be full again."""
        for subject, (tokens, since) in list(self._buckets.items()):
            if tokens + (now - since) / REFILL_S >= BURST:
                del self._buckets[subject]


class Series(Generic[V]):
    """One thing that was said, how often, and when last (wall time). `what` is the caller's."""

    __slots__ = ("count", "first_wall", "last", "last_wall", "sent_at", "waiting", "what")

    def __init__(self, what: V, now: float, wall: float) -> None:
        self.what = what
        self.count = 1
        self.first_wall = wall
        self.last_wall = wall
        self.last = now
        self.sent_at: float | None = None
        """When what the API server has was last sent; None before it has anything."""
        self.waiting = True
        """Whether it is in line to be sent."""


class SeriesBook(Generic[V]):
    """The series that still go on, by what makes two events the same."""

    __slots__ = ("_series",)

    def __init__(self) -> None:
        self._series: OrderedDict[Hashable, Series[V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._series)

    def repeat(self, key: Hashable, now: float, wall: float) -> Series[V] | None:
        """Count one more of `key` and return its series; None if there is none that still goes on."""
        series = self._series.get(key)
        if series is None or now - series.last > SERIES_S:
            return None
        series.count += 1
        series.last = now
        series.last_wall = wall
        self._series.move_to_end(key)
        return series

    def begin(self, key: Hashable, what: V, now: float, wall: float) -> Series[V]:
        """A new series with its first event."""
        self._series.pop(key, None)
        series = self._series[key] = Series(what, now, wall)
        if len(self._series) > LIMIT:
            self._series.popitem(last=False)
        return series

    def purge(self, now: float) -> None:
        """Forget the series that have ended. The oldest come first."""
        while self._series:
            key, series = next(iter(self._series.items()))
            if now - series.last <= SERIES_S:
                return
            del self._series[key]
