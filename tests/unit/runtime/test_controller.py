import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from isthmus.api.meta import Key
from isthmus.errors import UserError, WorldError
from isthmus.kube.errors import Conflict, Forbidden, Throttled, Unreachable, WriteRefused
from isthmus.runtime.controller import DONE, Again, Controller, Done, Outcome
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.queue import WorkQueue
from isthmus.runtime.queue_state import Backoff
from tests.support.clock import FakeClock, settle

A: Key = ("ns", "a")
B: Key = ("ns", "b")


class World:
    """A controller whose reconcile does, for each key, what the test put into `does`."""

    def __init__(self, *, workers: int = 2, timeout_s: float = 10) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.queue = WorkQueue("c", self.clock, self.metrics, backoff=Backoff(base_s=1, spread=0))
        self.calls: list[Key] = []
        self.does: dict[Key, Outcome | BaseException | Callable[[], Awaitable[Outcome]]] = {}
        self.controller = Controller(
            "c",
            reconcile=self.reconcile,
            queue=self.queue,
            metrics=self.metrics,
            workers=workers,
            timeout_s=timeout_s,
        )

    async def reconcile(self, key: Key) -> Outcome:
        self.calls.append(key)
        match self.does.get(key, DONE):
            case BaseException() as error:
                raise error
            case Again() | Done() as outcome:
                return outcome
            case fn:
                assert callable(fn)
                return await fn()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.run())
            await settle()
            yield
            self.controller.stop()

    def result(self, result: str) -> float | None:
        return self.metrics.value("controller_runtime_reconcile_total", controller="c", result=result)

    def value(self, name: str) -> float | None:
        return self.metrics.value(f"controller_runtime_{name}", controller="c")


async def test_done_key_must_stay_away_until_it_is_added() -> None:
    world = World()
    async with world.running():
        world.queue.add(A)
        await world.clock.advance(1000)
        assert world.calls == [A]
    assert world.result("success") == 1
    assert world.value("reconcile_errors_total") == 0


async def test_again_must_come_back_after_its_time_without_backoff() -> None:
    world = World()
    world.does[A] = Again(30)
    async with world.running():
        world.queue.add(A)
        await world.clock.advance(29)
        assert len(world.calls) == 1
        await world.clock.advance(31)
        assert len(world.calls) == 3
    assert world.result("requeue_after") == 3


async def test_failures_of_the_world_must_back_off_and_start_anew_after_success() -> None:
    world = World()
    world.does[A] = WorldError("down")
    async with world.running():
        world.queue.add(A)
        await world.clock.advance(0)
        for seconds, calls in ((1, 2), (2, 3), (4, 4)):
            await world.clock.advance(seconds)
            assert len(world.calls) == calls
        world.does[A] = DONE
        await world.clock.advance(8)
        assert len(world.calls) == 5
        world.does[A] = WorldError("down")
        world.queue.add(A)
        await world.clock.advance(1)
        assert len(world.calls) == 7
    assert (world.result("error"), world.value("reconcile_errors_total")) == (6, 6)


async def test_bug_in_one_key_never_ends_a_worker_or_delays_another_key() -> None:
    world = World(workers=1)
    world.does[A] = ZeroDivisionError("a bug")
    async with world.running():
        with capture_logs() as logs:
            world.queue.add(A)
            world.queue.add(B)
            await world.clock.advance(0)
        assert world.calls == [A, B]
        assert isinstance(logs[0]["exc_info"], ZeroDivisionError)
        world.does[A] = DONE
        await world.clock.advance(1)
        assert world.calls == [A, B, A]


async def test_user_error_must_wait_for_a_change_and_be_logged_once() -> None:
    world = World()
    world.does[A] = UserError("replicas must not be -1")
    async with world.running():
        with capture_logs() as logs:
            for _ in range(3):
                world.queue.add(A)
                await world.clock.advance(1000)
            assert (len(world.calls), len(logs)) == (3, 1)
            world.does[A] = UserError("another")
            world.queue.add(A)
            await world.clock.advance(0)
            world.does[A] = DONE
            world.queue.add(A)
            await world.clock.advance(0)
            world.does[A] = UserError("another")
            world.queue.add(A)
            await world.clock.advance(0)
        assert [entry["error"] for entry in logs] == ["replicas must not be -1", "another", "another"]
    assert world.value("terminal_reconcile_errors_total") == 5


async def test_answer_that_is_the_users_must_be_retried_since_no_watch_shows_its_cure() -> None:
    world = World()
    world.does[A] = Forbidden(403, "Forbidden", "exceeded quota")
    async with world.running():
        world.queue.add(A)
        with capture_logs() as logs:
            await world.clock.advance(1)
        assert len(world.calls) == 2
        assert logs[0]["exc_info"] is None
    assert world.value("terminal_reconcile_errors_total") == 0


async def test_many_failures_of_the_world_must_be_logged_in_one_line_without_a_traceback() -> None:
    world = World()
    lost = [Unreachable(f"POST {number % 5}") for number in range(45)]
    world.does[A] = ExceptionGroup("45 actions failed", lost)
    async with world.running():
        world.queue.add(A)
        with capture_logs() as logs:
            await world.clock.advance(0)
    assert logs[0]["exc_info"] is None
    assert logs[0]["error"] == "POST 0; POST 1; POST 2; and 2 more"


@pytest.mark.parametrize(
    "error", [Conflict(409), WriteRefused("not now"), ExceptionGroup("", [Conflict(409)])]
)
async def test_conflict_must_be_tried_again_soon_and_not_count_as_an_error(error: Exception) -> None:
    world = World()
    world.does[A] = error
    async with world.running():
        world.queue.add(A)
        with capture_logs() as logs:
            await world.clock.advance(1)
        assert len(world.calls) == 2
        assert {entry["log_level"] for entry in logs} == {"debug"}
    assert (world.result("requeue"), world.value("reconcile_errors_total")) == (2, 0)


async def test_retry_after_must_be_honoured_even_inside_a_group() -> None:
    world = World()
    world.does[A] = ExceptionGroup(
        "", [Conflict(409), ExceptionGroup("", [Throttled(429, retry_after_s=50)])]
    )
    async with world.running():
        world.queue.add(A)
        await world.clock.advance(49)
        assert len(world.calls) == 1
        await world.clock.advance(1)
        assert len(world.calls) == 2


async def test_reconcile_that_hangs_must_be_cut_at_its_time_limit() -> None:
    world = World(timeout_s=0.01)

    async def hang() -> Outcome:
        await asyncio.Event().wait()
        return DONE

    world.does[A] = hang
    async with world.running():
        world.queue.add(A)
        async with asyncio.timeout(5):
            while not world.value("reconcile_timeouts_total"):  # noqa: ASYNC110 - the limit is real time
                await asyncio.sleep(0.005)
        world.does[A] = DONE
        await world.clock.advance(1)
        assert world.calls == [A, A]
    assert world.result("error") == 1


async def test_stray_cancellation_inside_a_reconcile_must_be_a_failure_like_others() -> None:
    world = World()
    world.does[A] = asyncio.CancelledError()
    async with world.running():
        world.queue.add(A)
        await world.clock.advance(1)
        assert len(world.calls) == 2
    assert world.metrics.value("isthmus_task_unexpected_ends_total", task="c/worker-0") is None


async def test_key_must_be_worked_on_by_one_worker_at_a_time() -> None:
    world = World(workers=3)
    gate = asyncio.Event()

    async def wait() -> Outcome:
        await gate.wait()
        return DONE

    world.does[A] = wait
    async with world.running():
        world.queue.add(A)
        await settle()
        world.queue.add(A)
        world.queue.add(B)
        await settle()
        assert world.calls == [A, B]
        assert world.value("active_workers") == 1
        gate.set()
        await settle()
        assert world.calls == [A, B, A]
    assert world.value("max_concurrent_reconciles") == 3


async def test_stop_must_let_running_work_end_and_start_none() -> None:
    world = World(workers=1)
    gate = asyncio.Event()

    async def wait() -> Outcome:
        await gate.wait()
        return Again(1)

    world.does[A] = wait
    async with asyncio.TaskGroup() as group:
        run = group.create_task(world.controller.run())
        world.queue.add(A)
        world.queue.add(B)
        await settle()
        world.controller.stop()
        await world.clock.advance(10)
        assert not run.done()
        gate.set()
        await settle()
        assert run.done()
    assert world.calls == [A]
    assert world.result("requeue_after") == 1


@pytest.mark.covers("R22")
async def test_killed_worker_must_be_replaced_and_its_key_worked_on_again() -> None:
    world = World(workers=1)
    started = asyncio.Event()

    async def wait() -> Outcome:
        started.set()
        await asyncio.Event().wait()
        return DONE

    world.does[A] = wait
    async with world.running():
        world.queue.add(A)
        await started.wait()
        (worker,) = [task for task in asyncio.all_tasks() if task.get_name() == "c/worker-0"]
        world.does[A] = DONE
        worker.cancel()
        await world.clock.advance(5)
        assert world.calls == [A, A]
        assert world.result("success") == 1


async def test_busy_queue_never_starves_other_tasks() -> None:
    world = World(workers=1)
    for number in range(100):
        world.queue.add(("ns", str(number)))
    async with asyncio.TaskGroup() as group:
        group.create_task(world.controller.run())
        await settle(10)
        assert 0 < len(world.calls) < 20
        world.controller.stop()


async def test_workers_must_open_a_queue_that_has_a_seed() -> None:
    clock, metrics, calls = FakeClock(), Metrics(), []

    async def reconcile(key: Key) -> Outcome:
        calls.append(key)
        return DONE

    queue = WorkQueue("s", clock, metrics, seed=lambda: [B])
    queue.add(A)
    controller = Controller("s", reconcile=reconcile, queue=queue, metrics=metrics)
    async with asyncio.TaskGroup() as group:
        group.create_task(controller.run())
        await settle()
        controller.stop()
    assert calls == [B]
    assert metrics.value("controller_runtime_reconcile_time_seconds_count", controller="s") == 1
