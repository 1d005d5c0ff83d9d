import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from isthmus.api.meta import Key, Object
from isthmus.errors import UserError
from isthmus.runtime.cache import Cache
from isthmus.runtime.controller import DONE, Again, Controller, Outcome
from isthmus.runtime.election import LeaderElector
from isthmus.runtime.events import EventRecorder, ObjectRef
from isthmus.runtime.manager import Exit, Manager, Parts, Settings
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.queue import WorkQueue
from tests.support.clock import FakeClock, settle
from tests.support.things import THINGS, thing
from tests.unit.runtime.test_election import KEY as LEASE
from tests.unit.runtime.test_election import Leases
from tests.unit.runtime.test_events import Server as EventServer

A: Key = ("ns", "a")


class FakeWatch:
    """A watch that lists when the test says so."""

    def __init__(self, world: "World", source: str = "") -> None:
        self.world = world
        self.name = THINGS.name
        self.source = source
        self.heard_at = world.clock.monotonic()
        self.running = False
        self.broken = asyncio.Event()

    async def run(self) -> None:
        self.running = True
        try:
            await self.broken.wait()
        finally:
            self.running = False
            self.world.said.append("watch ended")
        raise RuntimeError("a bug in the watch")

    def age(self, now: float) -> float:
        return now - self.heard_at


class FakeServer:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.error: Exception | None = None
        self.hangs = False

    async def serve(self) -> None:
        if self.error is not None:
            raise self.error
        self.world.said.append("server up")

    async def stop(self) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        self.world.said.append("server down")
        self.world.problems_at_end = self.world.problems()


class World:
    """A manager of one of everything, and what happened in which order."""

    def __init__(
        self, *, elect: bool = True, background: dict[str, Callable[[], Awaitable[None]]] | None = None
    ):
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.said: list[str] = []
        self.problems_at_end: dict[str, str] = {}
        self.leases = Leases()
        self.event_server = EventServer()
        self.cache: Cache[Object] = Cache(THINGS, metrics=self.metrics)
        self.watch = FakeWatch(self)
        self.server = FakeServer(self)
        self.queue = WorkQueue("q", self.clock, self.metrics)
        self.gate = asyncio.Event()
        self.gate.set()
        self.election = LeaderElector(
            self.leases, lease=LEASE, identity="me", clock=self.clock, metrics=self.metrics
        )
        self.recorder = EventRecorder(
            self.event_server, controller="c.dev/c", instance="me", clock=self.clock, metrics=self.metrics
        )
        controller = Controller(
            "c", reconcile=self.reconcile, queue=self.queue, metrics=self.metrics, workers=1
        )
        parts = Parts(
            caches=[self.cache],
            watches=[self.watch],
            controllers=[controller],
            election=self.election if elect else None,
            recorders=(self.recorder,),
            background=background or {},
            farewells=(self.farewell,),
        )
        self.manager = Manager(
            parts, clock=self.clock, metrics=self.metrics, settings=Settings(servers_s=0.05)
        )
        self.manager.add_server(self.server)
        self.run = asyncio.get_running_loop().create_task(self.manager.run())

    async def reconcile(self, key: Key) -> Outcome:
        self.said.append(f"begin {key[1]}")
        await self.gate.wait()
        self.election.check()
        self.recorder.emit(
            ObjectRef("v1", "Pod", *key), type="Normal", reason="R", action="A", note="reconciled"
        )
        self.said.append(f"end {key[1]}")
        return Again(1) if key[1] == "again" else DONE

    async def farewell(self) -> None:
        self.election.check()
        self.said.append("farewell")

    async def lead(self) -> None:
        await settle()
        self.cache.replace("", [thing("a", 1)], "1")
        await settle()
        assert self.manager.phase == "workers"

    def problems(self) -> dict[str, str]:
        checks = {**self.manager.live_checks(), **self.manager.ready_checks()}
        return {name: problem for name, check in checks.items() if (problem := check()) is not None}


async def test_phases_must_come_in_their_order_and_end_in_reverse() -> None:
    world = World()
    await settle()
    assert (world.manager.phase, world.said, world.leases.calls) == ("caches", ["server up"], [])
    assert world.problems() == {"caches": "not complete yet: things.test.isthmus.dev"}
    world.cache.replace("", [], "1")
    await settle()
    assert (world.manager.phase, world.manager.leading, world.problems()) == ("workers", True, {})
    world.queue.add(A)
    await settle()
    world.manager.request_stop()
    world.manager.request_stop()
    assert world.problems() == {"running": "about to end"}
    assert await world.run is Exit.STOPPED
    assert world.said == ["server up", "begin a", "end a", "farewell", "watch ended", "server down"]
    assert world.leases.holder == ""
    assert len(world.event_server.events) == 1


async def test_workers_never_start_before_every_cache_is_complete() -> None:
    world = World(elect=False)
    world.queue.add(A)
    with capture_logs() as logs:
        await world.clock.advance(25)
    assert world.said == ["server up"]
    assert [entry["caches"] for entry in logs if "caches" in entry] == [
        "not complete yet: things.test.isthmus.dev"
    ] * 2
    world.cache.mark_absent()
    await settle()
    assert world.manager.phase == "workers"
    world.manager.request_stop()
    await world.run


async def test_without_election_workers_must_start_at_once() -> None:
    world = World(elect=False)
    await world.lead()
    assert world.leases.calls == []
    world.manager.request_stop()
    assert await world.run is Exit.STOPPED


async def test_replica_that_does_not_lead_must_be_ready_and_serve_but_not_work() -> None:
    world = World()
    world.leases.raw = {
        "holderIdentity": "other",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "t",
        "renewTime": "t",
    }
    await settle()
    world.cache.replace("", [], "1")
    world.queue.add(A)
    await world.clock.advance(10)
    assert (world.manager.phase, world.said, world.problems()) == ("election", ["server up"], {})
    world.manager.request_stop()
    assert await world.run is Exit.STOPPED
    assert world.leases.holder == "other"


async def test_stop_must_wait_for_running_work_and_keep_the_lease_and_servers_meanwhile() -> None:
    world = World()
    await world.lead()
    world.gate.clear()
    world.queue.add(A)
    await settle()
    world.manager.request_stop()
    await world.clock.advance(14)
    world.election.check()
    assert world.leases.holder == "me"
    assert "server down" not in world.said
    world.gate.set()
    assert await world.run is Exit.STOPPED
    assert world.said[-4:] == ["end a", "farewell", "watch ended", "server down"]
    assert len(world.event_server.events) == 1


async def test_stop_must_cut_work_that_takes_too_long() -> None:
    world = World()
    await world.lead()
    world.gate.clear()
    world.queue.add(A)
    await settle()
    world.manager.request_stop()
    await world.clock.advance(15)
    await asyncio.wait([world.run], timeout=1)
    assert world.run.result() is Exit.STOPPED
    assert "end a" not in world.said
    assert world.leases.holder == ""


@pytest.mark.covers("R15")
async def test_lost_lease_must_end_the_process_at_once_without_a_further_write() -> None:
    world = World()
    await world.lead()
    world.gate.clear()
    world.queue.add(A)
    await settle()
    before = len(world.event_server.requests)
    world.leases.hang = asyncio.Event()
    await world.clock.advance(10)
    assert await world.run is Exit.LEASE_LOST
    assert "end a" not in world.said
    assert len(world.event_server.requests) == before
    assert world.said[-1] == "server down"
    assert world.leases.holder == "me"  # not given back: that would be a write


@pytest.mark.covers("R22")
async def test_dead_task_must_turn_liveness_red_and_end_the_process_with_an_error() -> None:
    world = World()
    await world.lead()
    world.gate.clear()
    world.queue.add(A)
    await settle()
    world.watch.broken.set()
    assert await world.run is Exit.TASK_DIED
    died = "ended unasked: watch/things.test.isthmus.dev"
    assert world.problems_at_end == {"tasks": died, "running": "about to end"}
    assert "end a" not in world.said
    assert world.leases.holder == ""  # so that another replica can go on


@pytest.mark.covers("R22")
@pytest.mark.parametrize("name", ["controller/c", "election", "watch/things.test.isthmus.dev", "extra"])
async def test_task_cancelled_from_elsewhere_must_end_the_process(name: str) -> None:
    async def extra() -> None:
        await asyncio.Event().wait()

    world = World(background={"extra": extra})
    await world.lead()
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == name]
    task.cancel()
    assert await world.run is Exit.TASK_DIED


@pytest.mark.covers("R22")
@pytest.mark.parametrize("name", ["events/c.dev/c", "c/worker-0", "c/timer"])
async def test_task_that_can_be_restarted_must_be_back_within_five_seconds(name: str) -> None:
    world = World()
    await world.lead()
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == name]
    task.cancel()
    await world.clock.advance(5)
    world.queue.add(("ns", "again"))
    await world.clock.advance(5)
    assert len(world.said) > 5
    assert len(world.event_server.events) == 1
    world.manager.request_stop()
    assert await world.run is Exit.STOPPED


@pytest.mark.covers("R15", "R18")
async def test_watch_that_hears_nothing_must_turn_health_red_and_be_named() -> None:
    world = World()
    await world.lead()
    await world.clock.advance(181)
    named = "nothing heard for more than 180 s: watch/things.test.isthmus.dev (181 s)"
    assert world.problems() == {"watches": named}
    labels = {"resource": "things.test.isthmus.dev", "source": ""}
    assert world.metrics.value("isthmus_watch_age_seconds", **labels) == 181
    world.watch.heard_at = world.clock.monotonic()
    assert world.problems() == {}
    world.manager.request_stop()
    await world.run


async def test_server_that_cannot_start_must_be_an_error_and_leave_nothing_behind() -> None:
    world = World()
    world.server.error = UserError("--metrics port is in use")
    with pytest.raises(UserError, match="in use"):
        await world.run
    assert world.said == ["server down"]
    assert not world.watch.running


async def test_server_that_does_not_stop_must_not_hold_up_the_end() -> None:
    world = World()
    await world.lead()
    world.server.hangs = True
    world.manager.request_stop()
    with capture_logs() as logs:
        assert await world.run is Exit.STOPPED
    assert [entry["phase"] for entry in logs if entry["log_level"] == "error"] == ["servers"]


async def test_cancelled_manager_must_still_give_the_lease_back() -> None:
    world = World()
    await world.lead()
    world.run.cancel()
    await asyncio.wait([world.run])
    assert world.run.cancelled()
    assert world.leases.holder == ""
    assert world.said[-1] == "server down"


async def test_watch_must_come_and_go_while_the_process_runs() -> None:
    world = World()
    await world.lead()
    extra = FakeWatch(world, source="extra")
    world.manager.start_watch(extra)
    with pytest.raises(ValueError, match="already"):
        world.manager.start_watch(extra)
    await settle()
    assert extra.running
    await world.clock.advance(181)
    assert "extra" in world.problems()["watches"]
    await world.manager.stop_watch(extra)
    await world.manager.stop_watch(extra)
    assert world.said.count("watch ended") == 1
    assert "extra" not in world.problems()["watches"]
    labels = {"resource": "things.test.isthmus.dev", "source": "extra"}
    assert world.metrics.value("isthmus_watch_age_seconds", **labels) is None
    world.manager.request_stop()
    assert await world.run is Exit.STOPPED


async def test_watch_added_before_the_start_must_start_with_the_others() -> None:
    world = World()
    extra = FakeWatch(world, source="extra")
    gone = FakeWatch(world, source="gone")
    world.manager.start_watch(extra)
    world.manager.start_watch(gone)
    await world.manager.stop_watch(gone)
    await settle()
    assert (extra.running, gone.running) == (True, False)
    world.manager.request_stop()
    assert await world.run is Exit.STOPPED


async def test_manager_without_parts_must_run_and_stop() -> None:
    clock, metrics = FakeClock(), Metrics()
    manager = Manager(Parts(), clock=clock, metrics=metrics)
    assert manager.phase == ""
    run = asyncio.get_running_loop().create_task(manager.run())
    await settle()
    assert manager.phase == "workers"
    assert all(check() is None for check in (manager.ready_checks() | manager.live_checks()).values())
    manager.request_stop()
    assert await run is Exit.STOPPED
