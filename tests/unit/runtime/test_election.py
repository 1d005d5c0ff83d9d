import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from isthmus.api.coordination import Lease, LeaseSpec
from isthmus.api.meta import ObjectMeta, Raw, Resource
from isthmus.kube.client import PatchKind, Written
from isthmus.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, Unreachable, WriteRefused
from isthmus.runtime.election import LeaderElector, LeaseLost, unique_identity
from isthmus.runtime.election_state import Durations
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock, settle

KEY = ("sys", "isthmus")


class Leases:
    """One Lease with optimistic concurrency. `down` names the clients that get no answer."""

    def __init__(self) -> None:
        self.raw: Raw | None = None
        self.version = 0
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.hang: asyncio.Event | None = None

    async def _call(self, verb: str) -> None:
        self.calls.append(verb)
        if self.hang is not None:
            await self.hang.wait()
        if self.error is not None:
            raise self.error

    async def get(self, resource: Resource[Lease], namespace: str, name: str) -> Lease:
        await self._call("get")
        if self.raw is None:
            raise NotFound(404)
        spec = LeaseSpec(
            holder_identity=self.raw["holderIdentity"],
            lease_duration_seconds=self.raw["leaseDurationSeconds"],
            acquire_time=self.raw["acquireTime"],
            renew_time=self.raw["renewTime"],
            lease_transitions=self.raw["leaseTransitions"],
        )
        meta = ObjectMeta(name=name, namespace=namespace, resource_version=str(self.version))
        return Lease(metadata=meta, spec=spec)

    def written(self) -> Written:
        self.version += 1
        return Written(name=KEY[1], namespace=KEY[0], uid="u", resource_version=str(self.version))

    async def create(self, resource: Resource[Any], namespace: str, body: Raw) -> Written:
        await self._call("create")
        assert (body["metadata"]["namespace"], body["metadata"]["name"]) == KEY
        if self.raw is not None:
            raise AlreadyExists(409)
        self.raw = body["spec"]
        return self.written()

    async def patch(
        self, resource: Resource[Any], namespace: str, name: str, body: Raw, *, kind: PatchKind
    ) -> Written:
        await self._call("patch")
        assert kind is PatchKind.MERGE
        if self.raw is None:
            raise NotFound(404)
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict(409)
        self.raw = body["spec"]
        return self.written()

    @property
    def holder(self) -> str:
        return self.raw["holderIdentity"] if self.raw is not None else ""


class Replica:
    """An elector in a task, and what it told."""

    def __init__(self, leases: Leases, identity: str, clock: FakeClock) -> None:
        self.metrics = Metrics()
        self.elector = LeaderElector(
            leases, lease=KEY, identity=identity, clock=clock, metrics=self.metrics, durations=Durations()
        )
        self.told: list[str] = []
        run = self.elector.run(lambda: self.told.append("started"), lambda: self.told.append("stopped"))
        self.task = asyncio.get_running_loop().create_task(run)


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.leases = Leases()

    def replica(self, identity: str) -> Replica:
        return Replica(self.leases, identity, self.clock)


@pytest.fixture
def world() -> World:
    return World()


async def test_first_replica_must_lead_and_second_must_be_refused_writes(world: World) -> None:
    first = world.replica("one")
    await settle()
    second = world.replica("two")
    await world.clock.advance(60)
    assert (first.told, second.told) == (["started"], [])
    first.elector.check()
    with pytest.raises(WriteRefused, match="one"):
        second.elector.check()
    assert world.leases.holder == "one" == second.elector.leader
    assert first.metrics.value("leader_election_master_status", name="isthmus") == 1
    assert second.metrics.value("leader_election_master_status", name="isthmus") == 0
    for replica in (first, second):
        replica.elector.stop()
        await replica.task


@pytest.mark.covers("R15")
async def test_holder_without_answers_must_refuse_writes_at_its_deadline_and_end(world: World) -> None:
    first = world.replica("one")
    await settle()
    world.leases.hang = asyncio.Event()
    await world.clock.advance(9.9)
    first.elector.check()
    await world.clock.advance(0.1)
    with pytest.raises(WriteRefused):
        first.elector.check()
    with pytest.raises(LeaseLost, match="sys/isthmus"):
        await first.task
    assert first.told == ["started", "stopped"]


@pytest.mark.covers("R15")
async def test_writes_must_be_refused_at_the_deadline_even_if_the_elector_never_gets_its_turn(
    world: World,
) -> None:
    first = world.replica("one")
    await settle()
    world.clock._move_to(world.clock.monotonic() + 10)  # the loop is busy: no task has run
    with pytest.raises(WriteRefused):
        first.elector.check()
    first.task.cancel()
    await asyncio.wait([first.task])


async def test_other_replica_must_take_over_after_the_lease_has_run_out(world: World) -> None:
    first = world.replica("one")
    await settle()
    second = world.replica("two")
    await settle()
    first.task.cancel()
    await asyncio.wait([first.task])
    with pytest.raises(WriteRefused):
        first.elector.check()
    await world.clock.advance(14.9)
    assert world.leases.holder == "one"
    await world.clock.advance(2.5)
    assert world.leases.holder == "two"
    assert world.leases.raw is not None
    assert world.leases.raw["leaseTransitions"] == 1
    second.elector.stop()
    await second.task


async def test_stop_must_give_the_lease_back_so_that_another_leads_within_a_retry(world: World) -> None:
    first = world.replica("one")
    await settle()
    second = world.replica("two")
    await world.clock.advance(10)
    first.elector.stop()
    await first.task
    assert world.leases.holder == ""
    assert world.leases.raw is not None
    assert world.leases.raw["leaseDurationSeconds"] == 1
    with pytest.raises(WriteRefused, match="nobody"):
        first.elector.check()
    await world.clock.advance(2.4)
    assert second.told == ["started"]
    second.elector.stop()
    await second.task


async def test_stop_must_interrupt_a_renewal_that_hangs(world: World) -> None:
    first = world.replica("one")
    await settle()
    world.leases.hang = asyncio.Event()
    await world.clock.advance(2)
    assert world.leases.calls[-1] == "patch"
    first.elector.stop()
    await settle()
    world.leases.hang.set()
    await first.task
    assert world.leases.holder == ""


async def test_stop_of_a_candidate_must_leave_the_lease_alone(world: World) -> None:
    first = world.replica("one")
    await settle()
    second = world.replica("two")
    await settle()
    second.elector.stop()
    await second.task
    assert world.leases.holder == "one"
    assert second.told == []
    first.elector.stop()
    await first.task


async def test_deleted_lease_must_end_its_holder(world: World) -> None:
    first = world.replica("one")
    await settle()
    world.leases.raw = None
    await world.clock.advance(2)
    with pytest.raises(LeaseLost):
        await first.task


async def test_trouble_must_be_logged_once_and_tried_again(world: World) -> None:
    world.leases.error = Forbidden(403, "Forbidden", "may not get leases")
    with capture_logs() as logs:
        first = world.replica("one")
        await world.clock.advance(10)
        assert [entry["log_level"] for entry in logs] == ["warning"]
        world.leases.error = Unreachable("refused")
        await world.clock.advance(10)
        assert len(logs) == 2
        world.leases.error = None
        await world.clock.advance(2.4)
    assert first.elector.leading
    first.elector.stop()
    await first.task


async def test_lease_must_keep_its_acquire_time_while_it_is_renewed(world: World) -> None:
    first = world.replica("one")
    await settle()
    assert world.leases.raw is not None
    acquired = world.leases.raw["acquireTime"]
    await world.clock.advance(20)
    assert world.leases.raw["acquireTime"] == acquired < world.leases.raw["renewTime"]
    assert world.leases.calls == ["get", "create", *["patch"] * 10]
    first.elector.stop()
    await first.task


async def test_silent_candidate_must_give_up_a_read_that_hangs(world: World) -> None:
    world.leases.hang = asyncio.Event()
    first = world.replica("one")
    await world.clock.advance(12.4)
    assert world.leases.calls == ["get", "get"]
    world.leases.hang.set()
    world.leases.hang = None
    await world.clock.advance(0)
    assert first.elector.leading
    first.elector.stop()
    await first.task


def test_durations_that_do_not_fit_must_be_refused(world: World) -> None:
    with pytest.raises(ValueError, match="lease duration"):
        LeaderElector(
            world.leases,
            lease=KEY,
            identity="x",
            clock=world.clock,
            metrics=Metrics(),
            durations=Durations(5, 10, 2),
        )


def test_identities_must_differ() -> None:
    assert unique_identity() != unique_identity()
