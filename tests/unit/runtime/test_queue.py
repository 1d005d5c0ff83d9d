import asyncio

import pytest

from isthmus.api.meta import Key
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.queue import QueueShutDown, WorkQueue
from isthmus.runtime.queue_state import Backoff
from tests.support.clock import FakeClock, settle

A: Key = ("ns", "a")
B: Key = ("ns", "b")


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.queue = WorkQueue("q", self.clock, self.metrics, backoff=Backoff(spread=0))

    def value(self, name: str) -> float | None:
        return self.metrics.value(name, name="q", controller="q")


@pytest.fixture
def world() -> World:
    return World()


async def test_waiting_worker_must_get_a_key_when_it_is_added(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(world.queue.get()), group.create_task(world.queue.get())
        await settle()
        world.queue.add(A)
        world.queue.add(A)
        await settle()
        assert (first.done(), second.done()) == (True, False)
        world.queue.add(B)
    assert (first.result(), second.result()) == (A, B)


async def test_key_added_while_worked_on_must_wait_until_done(world: World) -> None:
    world.queue.add(A)
    assert await world.queue.get() == A
    world.queue.add(A)
    async with asyncio.TaskGroup() as group:
        again = group.create_task(world.queue.get())
        await settle()
        assert not again.done()
        world.queue.done(A)
    assert again.result() == A


async def test_cancelled_worker_never_takes_a_key_with_it(world: World) -> None:
    first = asyncio.get_running_loop().create_task(world.queue.get())
    second = asyncio.get_running_loop().create_task(world.queue.get())
    await settle()
    world.queue.add(A)  # wakes the first
    first.cancel()
    await settle()
    assert first.cancelled()
    assert second.result() == A


async def test_worker_cancelled_while_it_waits_must_leave_the_line(world: World) -> None:
    loop = asyncio.get_running_loop()
    first, second, third = (loop.create_task(world.queue.get()) for _ in range(3))
    await settle()
    first.cancel()
    await settle()
    second.cancel()
    world.queue.add(A)  # skips the second, whose task has not run yet
    await settle()
    assert third.result() == A
    assert (first.cancelled(), second.cancelled()) == (True, True)


async def test_later_keys_must_come_when_their_time_has_come(world: World) -> None:
    runner = asyncio.get_running_loop().create_task(world.queue.run())
    world.queue.add_after(A, 10)
    await settle()
    world.queue.add_after(B, 5)  # earlier than what the runner sleeps for
    world.queue.add_after(A, 20)  # later than the first wish: void
    await world.clock.advance(4)
    assert len(world.queue) == 0
    await world.clock.advance(1)
    assert await world.queue.get() == B
    getter = asyncio.get_running_loop().create_task(world.queue.get())
    await world.clock.advance(5)
    assert getter.result() == A
    world.queue.add_after(("ns", "c"), 0)
    assert await world.queue.get() == ("ns", "c")
    world.queue.add_at(("ns", "d"), world.clock.now() + 3)
    await world.clock.advance(3)
    assert await world.queue.get() == ("ns", "d")
    runner.cancel()
    await settle()


async def test_failed_key_must_come_back_after_its_backoff(world: World) -> None:
    runner = asyncio.get_running_loop().create_task(world.queue.run())
    assert [round(world.queue.retry(A), 3) for _ in range(3)] == [0.005, 0.01, 0.02]
    assert world.queue.retry(A, at_least_s=7) == 7
    world.queue.forget(A)
    assert world.queue.retry(A) == 0.005
    await world.clock.advance(0.005)
    assert len(world.queue) == 1
    assert world.value("workqueue_retries_total") == 5
    runner.cancel()
    await settle()


async def test_shut_down_must_end_every_worker_and_take_no_more_keys(world: World) -> None:
    loop = asyncio.get_running_loop()
    world.queue.add(A)
    await world.queue.get()
    waiting = [loop.create_task(world.queue.get()) for _ in range(3)]
    await settle()
    world.queue.add(B)
    await settle()
    world.queue.shut_down()
    await settle()
    assert waiting[0].result() == B
    assert all(isinstance(task.exception(), QueueShutDown) for task in waiting[1:])
    world.queue.add(("ns", "c"))
    world.queue.add_after(("ns", "c"), 1)
    assert world.queue.retry(A) == 0
    world.queue.done(A)
    world.queue.open()
    assert len(world.queue) == 0
    with pytest.raises(QueueShutDown):
        await world.queue.get()


async def test_queue_with_a_seed_must_drop_keys_until_it_is_opened() -> None:
    queue = WorkQueue("q", FakeClock(), Metrics(), seed=lambda: [A, B])
    queue.add(("ns", "gone"))
    queue.add_after(("ns", "gone"), 1)
    queue.retry(("ns", "gone"))
    queue.open()
    queue.open()
    assert len(queue) == 2
    assert [await queue.get(), await queue.get()] == [A, B]
    assert not queue.idle


async def test_queue_must_measure_itself_as_controller_runtime_does(world: World) -> None:
    world.queue.add(A)
    world.queue.add(B)
    world.queue.add_after(("ns", "c"), 100)
    await world.clock.advance(2)
    assert world.value("workqueue_depth") == 2
    assert world.value("workqueue_longest_running_processor_seconds") == 0
    await world.queue.get()
    await world.clock.advance(3)
    await world.queue.get()
    await world.clock.advance(1)
    assert world.value("workqueue_depth") == 0
    assert world.value("workqueue_adds_total") == 2
    assert world.value("workqueue_queue_duration_seconds_sum") == 7
    assert world.value("workqueue_unfinished_work_seconds") == 5
    assert world.value("workqueue_longest_running_processor_seconds") == 4
    assert world.value("isthmus_workqueue_waiting") == 1
    world.queue.done(A)
    world.queue.done(B)
    assert world.value("workqueue_work_duration_seconds_sum") == 5
    assert world.queue.idle
