"""Time as a dependency: everything that waits or stamps takes a Clock, so that tests own time.

`SystemClock` is the only reader of the machine's clocks in production code (ruff bans the others). Wall time
is seconds since the epoch, in UTC; monotonic time is seconds since some fixed point and never goes back.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What a component may ask of time."""

    def now(self) -> float:
        """Wall time in seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary fixed point; use it for every duration and deadline."""

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at once where it is not positive."""


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """See Clock.now."""
        return time.time()  # noqa: TID251 - the one place

    def monotonic(self) -> float:
        """See Clock.monotonic."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See Clock.sleep."""
        await asyncio.sleep(max(0.0, seconds))
