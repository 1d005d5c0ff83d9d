import asyncio

import pytest
from structlog.testing import capture_logs

from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import Policy, Supervisor, wait_event, wait_first
from tests.support.clock import FakeClock, settle


class Long:
    """A long task whose runs are counted and which a test can end."""

    def __init__(self) -> None:
        self.runs = 0
        self.cuts = 0
        self.outcome: asyncio.Future[None] | None = None

    async def __call__(self) -> None:
        self.runs += 1
        self.outcome = asyncio.get_running_loop().create_future()
        try:
            await self.outcome
        except asyncio.CancelledError:
            self.cuts += 1
            raise

    def end(self, error: Exception | None = None) -> None:
        assert self.outcome is not None
        if error is None:
            self.outcome.set_result(None)
        else:
            self.outcome.set_exception(error)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.covers("R22")
@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled"])
async def test_fatal_task_that_ends_must_be_reported(clock: FakeClock, how: str) -> None:
    long, metrics = Long(), Metrics()
    with capture_logs() as logs:
        async with Supervisor(clock, metrics) as tasks:
            task = tasks.start("watch", long)
            await settle()
            assert not tasks.failed.is_set()
            error = ValueError("broken")
            if how == "is cancelled":
                task.cancel()
            else:
                long.end(error if how == "raises" else None)
            await asyncio.wait_for(tasks.failed.wait(), 1)
            assert tasks.failure == ("watch", error if how == "raises" else None)
            assert "watch" not in tasks
    assert [entry["task"] for entry in logs] == ["watch"]
    assert metrics.value("isthmus_task_unexpected_ends_total", task="watch") == 1


async def test_first_failure_must_be_the_one_reported(clock: FakeClock) -> None:
    async def end() -> None:
        await clock.sleep(1)

    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("one", end)
        tasks.start("two", end)
        await clock.advance(1)
        assert tasks.failure is not None
        assert tasks.failure.name == "one"


@pytest.mark.covers("R22")
@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled"])
async def test_restartable_task_that_ends_must_be_back_within_five_seconds(
    clock: FakeClock, how: str
) -> None:
    long = Long()
    async with Supervisor(clock, Metrics()) as tasks:
        task = tasks.start("events", long, policy=Policy.RESTART)
        await settle()
        for run in range(2, 12):
            if how == "is cancelled":
                task.cancel()
            else:
                long.end(ValueError("broken") if how == "raises" else None)
            await clock.advance(5)
            assert long.runs == run
        assert not tasks.failed.is_set()


async def test_restart_delays_must_grow_and_start_anew_after_a_healthy_while(clock: FakeClock) -> None:
    long = Long()
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("events", long, policy=Policy.RESTART)
        await settle()
        delays = []
        for healthy_s in (0.0, 0.0, 0.0, 60.0):
            await clock.advance(healthy_s)
            long.end()
            await settle()
            deadline = clock.next_deadline()
            assert deadline is not None
            delays.append(round(deadline - clock.monotonic(), 3))
            await clock.advance(5)
        assert delays == [0.1, 0.2, 0.4, 0.1]


async def test_task_cancelled_while_it_rests_must_run_again_all_the_same(clock: FakeClock) -> None:
    long = Long()
    async with Supervisor(clock, Metrics()) as tasks:
        task = tasks.start("events", long, policy=Policy.RESTART)
        await settle()
        long.end()
        await settle()
        task.cancel()
        await clock.advance(5)
        assert long.runs == 2


async def test_resting_task_must_end_at_once_when_it_is_to_finish(clock: FakeClock) -> None:
    long = Long()
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("events", long, policy=Policy.RESTART)
        await settle()
        long.end()
        await settle()
        assert await tasks.finish(["events"])
        assert long.runs == 1


async def test_finish_must_wait_and_then_cut(clock: FakeClock) -> None:
    slow, quick = Long(), Long()
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("slow", slow)
        tasks.start("quick", quick)
        await settle()
        finishing = asyncio.get_running_loop().create_task(tasks.finish(["slow", "quick", "unknown"], 10))
        await clock.advance(9)
        quick.end()
        await settle()
        assert not finishing.done()
        await clock.advance(1)
        assert await finishing is False
        assert (slow.cuts, quick.cuts) == (1, 0)
        assert tasks.names == ()
        assert await tasks.finish(["slow"], 10)
        assert not tasks.failed.is_set()


async def test_finish_must_say_whether_all_ended_by_themselves(clock: FakeClock) -> None:
    long = Long()
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("long", long)
        await settle()
        finishing = asyncio.get_running_loop().create_task(tasks.finish(["long"]))
        await settle()
        long.end()
        assert await finishing is True


async def test_failure_during_stop_must_be_logged_but_not_reported(clock: FakeClock) -> None:
    long = Long()
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("long", long)
        await settle()
        finishing = asyncio.get_running_loop().create_task(tasks.finish(["long"], 5))
        await settle()
        with capture_logs() as logs:
            long.end(ValueError("late"))
            await finishing
        assert logs[0]["task"] == "long"
        assert not tasks.failed.is_set()


async def test_task_must_be_allowed_to_end_once_its_event_is_set(clock: FakeClock) -> None:
    long, rests, over = Long(), Long(), asyncio.Event()
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("long", long, policy=Policy.RESTART, until=over)
        tasks.start("rests", rests, policy=Policy.RESTART, until=over)
        await settle()
        rests.end()
        await settle()
        over.set()
        long.end()
        await clock.advance(5)
        assert tasks.names == ()
        assert (long.runs, rests.runs) == (1, 1)


@pytest.mark.covers("R22")
async def test_task_cancelled_before_it_began_must_be_reported(clock: FakeClock) -> None:
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("long", Long(), policy=Policy.RESTART).cancel()
        await settle()
        assert tasks.failure == ("long", None)
        assert tasks.names == ()


async def test_leaving_must_cancel_and_await_every_task(clock: FakeClock) -> None:
    long = Long()
    async with Supervisor(clock, Metrics()) as tasks:
        task = tasks.start("long", long, policy=Policy.RESTART)
        await settle()
    assert task.done()
    assert long.cuts == 1


async def test_owner_that_fails_must_not_leave_tasks_behind(clock: FakeClock) -> None:
    long = Long()

    async def own() -> None:
        async with Supervisor(clock, Metrics()) as tasks:
            tasks.start("long", long)
            await settle()
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        await own()
    assert long.cuts == 1


async def test_name_must_be_free(clock: FakeClock) -> None:
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("long", Long())
        with pytest.raises(ValueError, match="long"):
            tasks.start("long", Long())


async def test_wait_first_must_cancel_the_others_and_raise_what_the_first_raised(clock: FakeClock) -> None:
    long = Long()

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await wait_first(long(), fail())
    assert long.cuts == 1
    await wait_first(long(), asyncio.sleep(0))
    assert long.cuts == 2


async def test_wait_event_must_end_at_the_event_or_the_time(clock: FakeClock) -> None:
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(wait_event(event, 5, clock))
    await clock.advance(5)
    assert waiting.result() is False
    waiting = loop.create_task(wait_event(event, 5, clock))
    await settle()
    event.set()
    await settle()
    assert waiting.result() is True
    assert await wait_event(event, 5, clock)
