"""What each pool did in the last two minutes: counts and times to the first byte, in slots of two seconds.

proxy.py records each request at a pool when it has ended; ui.py shows rates, percentiles and a line over
time. Bounded: SLOTS slots of at most SAMPLES times for each pool, and `keep` drops pools that have left.
Pure; `now` is monotonic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final, NamedTuple

SLOT_S: Final = 2.0
SLOTS: Final = 60
SAMPLES: Final = 64
"""Times to the first byte that one slot keeps."""
RECENT: Final = 15
"""Slots that rates and percentiles are of: half a minute."""


class _Slot:
    __slots__ = ("errors", "first_s", "number", "requests")

    def __init__(self, number: int) -> None:
        self.number = number
        self.requests = self.errors = 0
        self.first_s: list[float] = []


class Traffic(NamedTuple):
    """Of one pool: requests and errors a second, seconds to the first byte (None where nothing was measured),
    and requests a second in each slot, oldest first."""

    requests_per_s: float
    errors_per_s: float
    first_byte_p50_s: float | None
    first_byte_p99_s: float | None
    line: tuple[float, ...]


class History:
    """See the module."""

    def __init__(self) -> None:
        self._pools: dict[str, deque[_Slot]] = {}

    def record(self, pool_id: str, first_s: float, ok: bool, now: float) -> None:
        """A request at this pool has ended."""
        slots = self._pools.setdefault(pool_id, deque(maxlen=SLOTS))
        number = int(now / SLOT_S)
        if not slots or slots[-1].number < number:
            slots.append(_Slot(number))
        slot = slots[-1]
        slot.requests += 1
        slot.errors += not ok
        if len(slot.first_s) < SAMPLES:
            slot.first_s.append(first_s)

    def traffic(self, pool_id: str, now: float) -> Traffic:
        """What the pool did lately; nothing for one that is not known."""
        last = int(now / SLOT_S)
        by_number = {slot.number: slot for slot in self._pools.get(pool_id, ())}
        recent = [by_number[n] for n in range(last - RECENT + 1, last + 1) if n in by_number]
        times = sorted(each for slot in recent for each in slot.first_s)
        span_s = RECENT * SLOT_S
        line = [
            (by_number[n].requests if n in by_number else 0) / SLOT_S
            for n in range(last - SLOTS + 1, last + 1)
        ]
        return Traffic(
            sum(slot.requests for slot in recent) / span_s,
            sum(slot.errors for slot in recent) / span_s,
            times[len(times) // 2] if times else None,
            times[min(len(times) - 1, len(times) * 99 // 100)] if times else None,
            tuple(line),
        )

    def keep(self, pool_ids: Collection[str]) -> None:
        """Forget all others."""
        for pool_id in self._pools.keys() - set(pool_ids):
            del self._pools[pool_id]
