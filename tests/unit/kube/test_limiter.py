from __future__ import annotations

import asyncio

from isthmus.kube.limiter import Limiter
from tests.support.clock import FakeClock


async def test_limiter_must_give_a_burst_and_then_the_rate_in_order() -> None:
    clock = FakeClock()
    limiter = Limiter(qps=10, burst=3, clock=clock)
    passed: list[tuple[int, float]] = []

    async def ask(number: int) -> None:
        await limiter.wait()
        passed.append((number, round(clock.monotonic() - 1000, 3)))

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(ask(number))
        await clock.advance(1)
    assert passed == [(0, 0), (1, 0), (2, 0), (3, 0.1), (4, 0.2), (5, 0.3)]


async def test_limiter_must_never_save_up_more_than_its_burst() -> None:
    clock = FakeClock()
    limiter = Limiter(qps=10, burst=2, clock=clock)
    await clock.advance(1000)
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(limiter.wait())
        await clock.advance(0)
        assert clock.sleepers == 2
        await clock.advance(0.2)
