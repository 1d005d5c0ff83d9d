"""Time as a dependency: everything that waits or stamps takes a Clock, so that tests own time.

`SystemClock` is the only reader of the machine's clocks in production code (ruff bans the others). Wall time
is seconds since the epoch, in UTC; monotonic time is seconds since some fixed point and never goes back.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
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


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time as Kubernetes writes it (metav1.Time or MicroTime).

    Raises ValueError where it is not one.
    """
    return datetime.fromisoformat(text).timestamp()


def format_time(seconds: float) -> str:
    """metav1.Time: RFC 3339 in UTC with whole seconds, for example `2026-11-30T22:02:10Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """metav1.MicroTime: RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
