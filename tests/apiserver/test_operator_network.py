"""The way to the API server is frozen, swallowed, refused and cut, and the API server itself is restarted."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.sandbox import Cluster
from tests.support.audit import requests_in
from tests.support.controlplane import StartSandbox, make_namespace, make_user
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.operator import OperatorProcess, address_of, proxied
from tests.support.rawapi import RawApi
from tests.support.world import World, serving, team

pytestmark = pytest.mark.apiserver

Far = Callable[[], AbstractAsyncContextManager[tuple[OperatorProcess, FaultProxy]]]


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> tuple[str, Path]:
    return make_user(cluster, prefix="far")


@pytest.fixture
def far(world: World, user: tuple[str, Path], tmp_path: Path) -> Far:
    """Starts an operator for the test's namespace, behind a proxy."""

    @asynccontextmanager
    async def start() -> AsyncIterator[tuple[OperatorProcess, FaultProxy]]:
        async with FaultProxy(*address_of(user[1])) as proxy:
            kubeconfig = proxied(user[1], proxy.listen_port, tmp_path)
            flags = (f"--namespace={world.namespace}", "--controllers=modelserving")
            with OperatorProcess(kubeconfig, tmp_path / "log", *flags) as operator:
                await operator.ready()
                yield operator, proxy

    return start


async def same_as_api(world: World, operator: OperatorProcess) -> None:
    """Return once the dump says what the API server says."""

    async def check() -> None:
        dump = await operator.dump(f"?namespace={world.namespace}")
        servings = world.find(MODEL_SERVINGS)
        assert set(dump) == {f"{world.namespace}/{name}" for name in servings}
        found = {p for groups in dump.values() for group in groups.values() for p in group["runningPods"]}
        assert found == set(world.find(SERVING_PODS))

    await eventually(check, within_s=60)


def cut(count: int) -> Callable[[FaultProxy], None]:
    """What is open is reset, and what comes after each `count` bytes of an answer."""

    def begin(proxy: FaultProxy) -> None:
        proxy.cut_after(count)
        proxy.reset_all()

    return begin


def refuse(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.reset_all()


FAULTS: dict[str, Callable[[FaultProxy], None]] = {
    "freeze": FaultProxy.freeze,
    "reset": FaultProxy.reset_all,
    "refuse": refuse,
    "cut-in-the-handshake": cut(900),
    "cut-in-an-answer": cut(4000),
}


@pytest.mark.covers("R19", "R22")
@pytest.mark.parametrize("fault", FAULTS)
async def test_operator_must_catch_up_after_a_fault_of_the_network(
    world: World, far: Far, fault: str
) -> None:
    for name in ("a", "b"):
        world.create(serving(name, 2))
    async with far() as (operator, proxy):
        for name in ("a", "b"):
            await world.settled(name)
        before = world.uids()
        FAULTS[fault](proxy)
        # What happens meanwhile it must not miss: a scaling, a lost pod, a deletion, a new object.
        world.scale(3)
        world.delete(SERVING_PODS, "a-0-p-0-1", grace_s=0)
        world.delete(MODEL_SERVINGS, "b")
        world.create(serving("c", 1))
        await asyncio.sleep(1)  # for as long as the fault lasts
        assert operator.running
        proxy.heal()
        await world.settled()
        await world.settled("c")
        kept = {name: uid for name, uid in before.items() if name.startswith("a-1-")}
        assert kept.items() <= world.uids().items()
        assert world.uids()["a-0-p-0-1"] != before["a-0-p-0-1"]
        await same_as_api(world, operator)
        assert await operator.get_health("/healthz") == 200
        assert "Traceback" not in operator.output


@pytest.mark.covers("R18")
@pytest.mark.timeout(180)
async def test_operator_must_notice_a_connection_that_is_half_open_within_a_minute(
    world: World, far: Far
) -> None:
    world.create(serving("a", 1))
    async with far() as (operator, proxy):
        await world.settled()
        proxy.blackhole()
        world.scale(3)
        await asyncio.sleep(1)
        proxy.heal()  # for new connections: those that are open stay dead, without a FIN
        watched = " ".join(await operator.metrics("isthmus_watch_age_seconds"))
        for resource in (MODEL_SERVINGS, SERVING_PODS, SERVING_SERVICES, CONTROLLER_REVISIONS):
            assert f'resource="{resource.name}"' in watched
        await world.settled(within_s=90)
        await same_as_api(world, operator)


@pytest.mark.covers("R29", "R19")
async def test_reconnects_and_churn_must_leave_nothing_behind_in_memory(world: World, far: Far) -> None:
    chance = random.Random(7)
    async with far() as (operator, proxy):
        process = psutil.Process(operator.pid)

        async def churn(rounds: int) -> None:
            for number in range(rounds):
                world.create(serving("a", 4, team("p", 2, 1)))
                if number % 8 == 0:
                    await world.settled()
                    proxy.reset_all()
                world.scale(chance.randint(0, 5))
                world.delete(MODEL_SERVINGS, "a")
                await eventually(no_serving, within_s=60)

        async def no_serving() -> None:
            assert not world.find(MODEL_SERVINGS)

        async def empty() -> None:
            assert set((await operator.metrics("isthmus_cache_objects")).values()) == {0.0}
            assert set((await operator.metrics("isthmus_expectations_pending")).values()) == {0.0}
            assert set((await operator.metrics("workqueue_depth")).values()) == {0.0}
            assert not await operator.dump()

        await churn(10)
        await eventually(empty, within_s=60)
        before = process.memory_info().rss
        connections = len(process.net_connections())
        await churn(30)
        await eventually(empty, within_s=60)
        assert process.memory_info().rss - before < 6e6
        assert len(process.net_connections()) <= connections + 8
        assert process.memory_info().rss < 90e6


@pytest.mark.covers("R22", "R05")
async def test_operator_must_survive_restarts_of_the_api_server_and_make_nothing_twice(
    private_controlplane: StartSandbox, tmp_path: Path
) -> None:
    sandbox = await asyncio.to_thread(private_controlplane, audit=True)
    cluster = sandbox.cluster()
    world = World(RawApi(cluster.kubeconfig()), await asyncio.to_thread(make_namespace, cluster))
    with OperatorProcess(cluster.kubeconfig("operator"), tmp_path / "log") as operator:
        await operator.ready()
        world.create(serving("a", 2))
        await world.settled()
        before = world.uids()
        for count in (30, 3):

            async def under_way(count: int = count) -> None:
                assert len(world.pods()) not in (4, 60, 2 * count)

            world.scale(count)
            await eventually(under_way, every_s=0.001)
            await asyncio.to_thread(sandbox.restart_apiserver)
            world.api.close()
            await world.settled(within_s=90)
            assert before.items() <= world.uids().items()
        await same_as_api(world, operator)
        assert await operator.stop() == 0
    rows = requests_in(cluster, "operator", world.namespace)
    made = Counter(row.name for row in rows if (row.verb, row.resource, row.code) == ("create", "pods", 201))
    assert max(made.values()) == 1
    world.api.close()
