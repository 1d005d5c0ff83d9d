from __future__ import annotations

import asyncio

from tests.support.clock import FakeClock, settle


async def test_advance_must_wake_sleepers_in_order_at_their_own_time() -> None:
    clock = FakeClock(now=100.0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *pauses: float) -> None:
        for pause in pauses:
            await clock.sleep(pause)
            woken.append((name, clock.now()))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 5))
        group.create_task(sleeper("twice", 1, 2))
        group.create_task(sleeper("never", 0))
        await clock.advance(4)
        assert woken == [("never", 100.0), ("twice", 101.0), ("twice", 103.0)]
        assert clock.next_deadline() == 1005.0
        await clock.advance(1)
    assert woken[-1] == ("late", 105.0)
    assert clock.sleepers == 0


async def test_cancelled_sleeper_must_not_disturb_the_others() -> None:
    clock = FakeClock()
    task = asyncio.get_running_loop().create_task(clock.sleep(1))
    await settle()
    task.cancel()
    await settle()
    assert clock.next_deadline() is None
    await clock.advance(10)
    assert task.cancelled()


def test_step_wall_must_leave_monotonic_time_alone() -> None:
    clock = FakeClock(now=50.0)
    clock.step_wall(-20)
    assert (clock.now(), clock.monotonic()) == (30.0, 1000.0)
