"""The operator is killed as its k-th write is about to leave, for every k, and started again (R04).

Each k has a namespace of its own, in which one operator dies; then a single healthy one is started for all of
them, and each must end as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from isthmus.api.meta import Raw
from isthmus.api.pods import SERVING_PODS
from isthmus.sandbox import Cluster
from isthmus.sandbox.rbac import operator_role
from tests.support import killed_operator
from tests.support.controlplane import delete_namespace, make_namespace, make_user
from tests.support.eventually import eventually
from tests.support.operator import OperatorProcess
from tests.support.rawapi import RawApi
from tests.support.world import World, is_dying, label, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

AT_ONCE = 3
MOST = 36
"""More writes than any of these scenarios takes."""

MakeWorld = Callable[[], Awaitable[World]]


class Scenario(NamedTuple):
    """What is there, what is changed, and which pods may be other ones at the end than when the operator
    died."""

    manifest: Raw
    change: Callable[[World], object] | None
    replaceable: Callable[[Raw], bool] = lambda pod: False


def shrink(world: World) -> None:
    def change(spec: Raw) -> None:
        spec["replicas"] = 1
        spec["template"]["roles"][1]["replicas"] = 2

    world.edit(change)


def lose_a_pod(world: World) -> None:
    world.delete(SERVING_PODS, "a-0-p-0-1", grace_s=0)
    world.fault("a-1-p-0-0", "fail")


SCENARIOS = {
    "creation": Scenario(serving("a", 2, team("p", 1, 1), team("d", 1, 0)), None),
    "scaling": Scenario(serving("a", 3, team("p", 1, 1), team("d", 1, 0)), shrink),
    "rollout": Scenario(
        serving("a", 2, team("p", 1, 1)),
        lambda world: world.set_image("engine:2"),
        lambda pod: str(pod["spec"]["containers"][0]["image"]).endswith(":1"),
    ),
    "role-rollout": Scenario(
        serving("a", 1, team("p", 2, 0), rolloutStrategy={"type": "RoleRollingUpdate"}),
        lambda world: world.set_image("engine:2"),
        lambda pod: str(pod["spec"]["containers"][0]["image"]).endswith(":1"),
    ),
    # What vanished while nobody looked is not known to have been there: the pods beside it may stay.
    "recovery": Scenario(
        serving("a", 2, team("p", 1, 1), team("d", 1, 0), recoveryPolicy="ServingGroupRecreate"),
        lose_a_pod,
        lambda pod: True,
    ),
}


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster, serving_api: RawApi) -> Path:
    """That of a user without the right to claim namespaces: claims would make every start wait, and the
    writes that count are those of the controllers."""
    role = operator_role()
    role["metadata"] = {"name": "operator-without-leases"}
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["leases"]]
    answer = serving_api.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    assert answer.code == 201, answer.body
    return make_user(cluster, role="operator-without-leases")[1]


@pytest.fixture
def worlds(serving_api: RawApi, cluster: Cluster) -> Iterator[MakeWorld]:
    made: list[str] = []

    async def make() -> World:
        made.append(await asyncio.to_thread(make_namespace, cluster))
        return World(serving_api, made[-1])

    yield make
    for name in made:
        delete_namespace(cluster, name)


async def die(world: World, kubeconfig: Path, log: Path, kill_at: int) -> bool:
    """Let an operator die at its k-th write in this namespace; False where it came to an end before."""
    process = killed_operator.start(kubeconfig, log, f"--namespace={world.namespace}", kill_at=kill_at)
    try:

        async def dead_or_done() -> None:
            if process.is_alive():
                world.assert_whole(world.serving())

        await eventually(dead_or_done, within_s=60, every_s=0.2)
        if process.is_alive():
            return False
        assert process.exitcode == -signal.SIGKILL, f"see {log}"
        return True
    finally:
        process.kill()
        process.join()


def assert_same(world: World, dump: dict[str, dict[str, Raw]]) -> None:
    """The dump says what the API server says."""
    groups = dump[f"{world.namespace}/a"]
    pods = world.pods()
    assert {pod for group in groups.values() for pod in group["runningPods"]} == set(pods)
    found = {
        (group, role, id_)
        for group, each in groups.items()
        for role, instances in each["roles"].items()
        for id_ in instances
    }
    assert found == {tuple(label(p, k) for k in ("group-name", "role", "role-id")) for p in pods.values()}


@pytest.mark.covers("R04", "MS-45", "MS-283", "MS-445", "MS-54")
@pytest.mark.parametrize("name", SCENARIOS)
async def test_operator_killed_at_any_write_must_be_followed_by_one_that_ends_its_work(
    name: str, worlds: MakeWorld, kubeconfig: Path, tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]
    made: list[World] = []
    if scenario.change is not None:
        made = [await worlds() for _ in range(MOST)]
        for world in made:
            world.create(scenario.manifest)
        with OperatorProcess(kubeconfig, tmp_path / "first") as process:
            for world in made:
                await world.settled()
            assert await process.stop() == 0
        for world in made:
            scenario.change(world)
    killed: list[tuple[World, dict[str, Raw]]] = []

    async def attempt(kill_at: int) -> bool:
        if scenario.change is None:
            world = await worlds()
            world.create(scenario.manifest)
        else:
            world = made[kill_at - 1]
        died = await die(world, kubeconfig, tmp_path / f"killed-{kill_at}", kill_at)
        killed.append((world, world.pods()))
        return died

    for first in itertools.count(1, AT_ONCE):
        assert first + AT_ONCE <= MOST
        if not all(await asyncio.gather(*(attempt(first + more) for more in range(AT_ONCE)))):
            break
    assert len(killed) > 8
    with OperatorProcess(kubeconfig, tmp_path / "last") as process:
        for world, left in killed:
            await world.settled()
            after = world.uids()
            kept = {
                pod: found["metadata"]["uid"]
                for pod, found in left.items()
                if not is_dying(found) and not scenario.replaceable(found) and pod in after
            }
            assert {pod: after[pod] for pod in kept} == kept, world.namespace
            assert len(world.revisions()) == 1
        await process.ready()
        dump = await process.dump()
        for world, _ in killed:
            assert_same(world, dump)
