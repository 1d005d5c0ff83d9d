"""A clock that only moves when a test says so, so that no test waits for real time.

`FakeClock` is an isthmus.clock.Clock. A component that sleeps on it stays asleep until the test calls
`await clock.advance(seconds)`, which wakes sleepers in the order of their deadlines (ties: first come first
woken), each at exactly its own time, and lets every task run until it waits again. Wall and monotonic time
move together, unless a test steps the wall clock alone with `step_wall`.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Final

TURNS: Final = 50
"""Turns of the event loop that `settle` gives: more than any chain of tasks that wake one another."""


async def settle(turns: int = TURNS) -> None:
    """Let every task that can run do so until it waits for something."""
    for _ in range(turns):
        await asyncio.sleep(0)


class FakeClock:
    """See the module. `now`: wall time at the start, in seconds since the epoch."""

    def __init__(self, now: float = 1_790_000_000.0, *, monotonic: float = 1000.0) -> None:
        self._wall = now
        self._monotonic = monotonic
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """Wall time in seconds since the epoch."""
        return self._wall

    def monotonic(self) -> float:
        """Monotonic time in seconds; starts at 1000, so that 0 is visibly "never"."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Sleep until a test has advanced the clock by `seconds`; one turn of the loop where not positive."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time on by `seconds`, waking each sleeper on the way at its own time."""
        await settle()
        target = self._monotonic + seconds
        while True:
            due = self.next_deadline()
            if due is None or due > target:
                break
            self._move_to(due)
            _, _, future = heapq.heappop(self._sleepers)
            future.set_result(None)
            await settle()
        self._move_to(target)
        await settle()

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as NTP or a person does; no sleeper notices."""
        self._wall += seconds

    def next_deadline(self) -> float | None:
        """Monotonic time at which the next sleeper wakes; None where nobody sleeps."""
        while self._sleepers and self._sleepers[0][2].done():  # cancelled
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    @property
    def sleepers(self) -> int:
        """How many tasks sleep now."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def _move_to(self, monotonic: float) -> None:
        self._wall += monotonic - self._monotonic
        self._monotonic = max(self._monotonic, monotonic)


class InstantClock(FakeClock):
    """A clock on which every sleep is over at once and moves time on; `slept` lists the lengths.

    For one component alone: with several sleepers, time would run for all of them.
    """

    def __init__(self, now: float = 1_790_000_000.0, *, monotonic: float = 1000.0) -> None:
        super().__init__(now, monotonic=monotonic)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Note the length, move on, and give other tasks a turn."""
        self.slept.append(seconds)
        self._move_to(self._monotonic + max(0.0, seconds))
        await asyncio.sleep(0)
