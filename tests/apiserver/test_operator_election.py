"""Two operator processes and one Lease: frozen, ended and cut off; the audit log says who wrote what when."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from isthmus.api.coordination import LEASES
from isthmus.api.meta import Raw
from isthmus.sandbox import Cluster
from tests.support.audit import Row, writes_in
from tests.support.controlplane import make_user
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.operator import OperatorProcess, address_of, proxied
from tests.support.world import World, serving, team

pytestmark = pytest.mark.apiserver

LEASE_S, RENEW_S, RETRY_S = 4.0, 3.0, 0.5
DURATIONS = (
    f"--leader-elect-lease-duration={LEASE_S:g}",
    f"--leader-elect-renew-deadline={RENEW_S:g}",
    f"--leader-elect-retry-period={RETRY_S:g}",
)
User = tuple[str, Path]
Replica = Callable[..., AbstractAsyncContextManager[OperatorProcess]]


@pytest.fixture(scope="module")
def users(cluster: Cluster) -> tuple[User, User]:
    return make_user(cluster, prefix="one"), make_user(cluster, prefix="two")


@pytest.fixture
def replica(world: World, tmp_path: Path) -> Replica:
    """Starts a replica for the test's namespace."""

    @contextlib.asynccontextmanager
    async def start(kubeconfig: Path) -> AsyncIterator[OperatorProcess]:
        arguments = [f"--namespace={world.namespace}", f"--leader-elect-namespace={world.namespace}"]
        log = tmp_path / f"{kubeconfig.stem}.log"
        with OperatorProcess(kubeconfig, log, "--leader-elect", *DURATIONS, *arguments) as process:
            await process.ready()
            yield process

    return start


async def leads(process: OperatorProcess) -> bool:
    return set((await process.metrics("leader_election_master_status")).values()) == {1.0}


async def leading(process: OperatorProcess) -> None:
    async def check() -> None:
        assert await leads(process), process.output[-2000:]

    await eventually(check, within_s=LEASE_S + 20)


def holder(world: World) -> str:
    found: Raw = world.get(LEASES, "isthmus-operator")
    identity: str = found["spec"].get("holderIdentity", "")
    return identity


async def both_answer(world: World, *processes: OperatorProcess) -> None:
    for process in processes:
        assert set(await process.dump()) == {f"{world.namespace}/a"}


def last_renewal(rows: list[Row]) -> float:
    """When the last successful write to the Lease of the election came in."""
    renewals = (row for row in rows if row.resource == "leases" and row.name == "isthmus-operator")
    return max(row.at for row in renewals if row.code < 300)


@pytest.mark.covers("R15", "MS-430", "MS-115")
async def test_leader_frozen_past_its_lease_must_write_nothing_any_more_and_exit(
    world: World, cluster: Cluster, users: tuple[User, User], replica: Replica
) -> None:
    world.create(serving("a", 2))
    async with replica(users[0][1]) as first:
        await leading(first)
        async with replica(users[1][1]) as second:
            await world.settled()
            await both_answer(world, first, second)
            before = holder(world)
            first.send_signal(signal.SIGSTOP)
            world.scale(4)  # which it will hear of when it wakes up
            await leading(second)
            await world.settled()
            assert holder(world) != before
            await both_answer(world, second)
            world.set_image("engine:2")
            first.send_signal(signal.SIGCONT)
            assert await first.wait() == 3
            await world.settled()
            await both_answer(world, second)
            assert second.running
    of_first = writes_in(cluster, users[0][0], world.namespace)
    of_second = writes_in(cluster, users[1][0], world.namespace)
    # A renewal that was half sent when it froze is refused, since it says which version it renews.
    late = [row for row in of_first if row.at >= last_renewal(of_first) + RENEW_S and row.code != 409]
    assert late == [], [(r.at, r.verb, r.resource, r.name, r.code) for r in of_first[-12:]]
    done = [row for row in of_first if row.code < 300]
    assert max(row.at for row in done) < min(row.at for row in of_second if row.code < 300)


@pytest.mark.covers("R15", "MS-430")
async def test_leader_frozen_in_the_middle_of_its_work_must_harm_nothing_with_what_was_on_its_way(
    world: World, cluster: Cluster, users: tuple[User, User], replica: Replica
) -> None:
    """The one write that it may have been sending when it froze can end when it wakes up: no check can hold
    that. It says what it means, so that it changes nothing that the next leader did."""
    world.create(serving("a", 1))
    async with replica(users[0][1]) as first:
        await leading(first)
        async with replica(users[1][1]) as second:
            await world.settled()
            world.scale(40)

            async def under_way() -> None:
                assert len(world.pods()) > 8

            await eventually(under_way, every_s=0.001)
            first.send_signal(signal.SIGSTOP)
            await leading(second)
            await world.settled()
            uids = world.uids()
            first.send_signal(signal.SIGCONT)
            assert await first.wait() == 3
            await world.settled()
            assert world.uids() == uids
    of_first = writes_in(cluster, users[0][0], world.namespace)
    late = [row for row in of_first if row.at >= last_renewal(of_first) + RENEW_S]
    assert len([row for row in late if row.resource != "leases"]) <= 1
    # A status may be overwritten, and is mended by the leader, who hears of it.
    assert {row.resource for row in late if row.code != 409} <= {"modelservings/status", "events"}


@pytest.mark.covers("R15", "MS-115")
async def test_sigterm_must_release_the_lease_so_that_the_other_leads_at_once(
    world: World, cluster: Cluster, users: tuple[User, User], replica: Replica
) -> None:
    world.create(serving("a", 2, team("p", 1, 1)))
    async with replica(users[0][1]) as first:
        await leading(first)
        async with replica(users[1][1]) as second:
            await world.settled()
            uids, before = world.uids(), holder(world)
            await both_answer(world, first, second)
            assert not await leads(second)
            assert await first.stop() == 0
            await leading(second)
            world.scale(3)
            await world.settled()
            assert holder(world) not in ("", before)
            assert uids.items() <= world.uids().items()
            await both_answer(world, second)
            assert await second.stop() == 0
    assert holder(world) == ""
    released = last_renewal(writes_in(cluster, users[0][0], world.namespace))
    taken = [r for r in writes_in(cluster, users[1][0], world.namespace) if r.name == "isthmus-operator"]
    # Had it not been released, nobody could have had it before the end of the lease.
    assert min(row.at for row in taken if row.code < 300) - released < LEASE_S - 1


@pytest.mark.covers("R15", "MS-430")
async def test_leader_cut_off_from_the_network_must_exit_and_the_other_go_on(
    world: World, cluster: Cluster, users: tuple[User, User], replica: Replica, tmp_path: Path
) -> None:
    world.create(serving("a", 2))
    async with (
        FaultProxy(*address_of(users[0][1])) as proxy,
        replica(proxied(users[0][1], proxy.listen_port, tmp_path)) as first,
    ):
        await leading(first)
        async with replica(users[1][1]) as second:
            await world.settled()
            proxy.blackhole()
            world.scale(4)
            assert await first.wait() == 3
            await leading(second)
            await world.settled()
            await both_answer(world, second)
    of_first = writes_in(cluster, users[0][0], world.namespace)
    of_second = writes_in(cluster, users[1][0], world.namespace)
    began = min(row.at for row in of_second if row.code < 300)
    assert max(row.at for row in of_first) < began


@pytest.mark.covers("MS-115", "R30")
async def test_replica_that_does_not_lead_must_write_nothing_but_answer_everything(
    world: World, cluster: Cluster, users: tuple[User, User], replica: Replica
) -> None:
    async with replica(users[0][1]) as first:
        await leading(first)
        already = len(writes_in(cluster, users[1][0], world.namespace))
        async with replica(users[1][1]) as second:
            world.create(serving("a", 3))
            await world.settled()

            async def same() -> None:
                assert await first.dump() == await second.dump()

            await eventually(same)
            assert await second.get_health("/healthz") == await second.get_health("/readyz") == 200
            assert not await second.decisions(f"{world.namespace}/a")
            assert await first.decisions(f"{world.namespace}/a")
    rows = writes_in(cluster, users[1][0], world.namespace)[already:]
    assert {row.resource for row in rows} <= {"leases"}
