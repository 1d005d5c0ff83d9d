"""ModelServings are deleted, in each way that Kubernetes has, and made again under the same name."""

from __future__ import annotations

from pathlib import Path

import pytest

from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.kube.client import Client
from isthmus.sandbox import Cluster
from tests.support.audit import requests_in, writes_in
from tests.support.eventually import eventually
from tests.support.operator import OperatorProcess
from tests.support.tape import Tape, uids_of
from tests.support.world import World, brief, is_dying, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]


async def gone(world: World, name: str = "a") -> None:
    """Return once the ModelServing and all that it owned is gone."""

    async def check() -> None:
        assert world.api.get(MODEL_SERVINGS, world.namespace, name).code == 404
        for resource in (SERVING_PODS, SERVING_SERVICES, CONTROLLER_REVISIONS):
            assert not world.find(resource), resource.name

    await eventually(check, within_s=60)


@pytest.mark.covers("MS-284", "MS-44")
async def test_deletion_must_take_everything_along_and_leave_nothing_in_the_dump(
    world: World, operator: OperatorProcess
) -> None:
    world.create(serving("a", 3, team("p", 1, 2)))
    await world.settled()
    world.delete(MODEL_SERVINGS, "a")
    await gone(world)

    async def forgotten() -> None:
        assert not await operator.dump(f"?namespace={world.namespace}")
        assert not await operator.decisions(f"{world.namespace}/a")

    await eventually(forgotten)


@pytest.mark.covers("MS-417")
async def test_foreground_deletion_must_end_without_a_write_of_ours(
    world: World, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    world.create(serving("a", 2, team("p", 1, 1, grace=30)))
    await world.settled()

    async def told() -> None:
        notes = [event["note"] for event in world.events() if event["reason"] == "RoleRunning"]
        assert {group for group in ("a-0", "a-1") for note in notes if group in note} == {"a-0", "a-1"}

    await eventually(told)
    for name in world.uids():
        world.fault(name, "hang-termination:1s")
    world.delete(MODEL_SERVINGS, "a", propagation="Foreground")
    before = len(writes_in(cluster, operator_user[0], world.namespace))
    assert "deletionTimestamp" in world.serving()["metadata"]
    await gone(world)
    rows = writes_in(cluster, operator_user[0], world.namespace)[before:]
    assert rows == []


@pytest.mark.covers("R05", "MS-67", "MS-445")
async def test_successor_of_the_same_name_must_wait_for_the_old_pods_and_be_complete(
    world: World,
    admin: Client,
    cluster: Cluster,
    operator: OperatorProcess,
    operator_user: tuple[str, Path],
) -> None:
    world.create(serving("a", 3, team("p", 1, 1, grace=30)))
    old = await world.settled()
    old_uids = world.uids()
    for name in old_uids:
        world.fault(name, "hang-termination:3s")
    async with Tape(admin, world, SERVING_PODS) as tape:
        world.delete(MODEL_SERVINGS, "a", propagation="Background")
        new = world.create(serving("a", 3, team("p", 1, 1, grace=30)))

        async def waiting() -> None:
            pods = world.pods()
            assert set(pods) == set(old_uids)
            assert all(map(is_dying, pods.values()))
            status = world.status()
            assert status.get("observedGeneration") == 1, brief(status)
            assert not status.get("availableReplicas")

        await eventually(waiting)
        at_work = len(requests_in(cluster, operator_user[0], world.namespace))
        dump = (await operator.dump(f"?namespace={world.namespace}")).get(f"{world.namespace}/a", {})
        assert not [group for group in dump.values() if group["runningPods"] or group["roles"]]
        found = await world.settled()
        uids = uids_of(await tape.frames())
    rows = requests_in(cluster, operator_user[0], world.namespace)
    assert found["metadata"]["uid"] == new["metadata"]["uid"] != old["metadata"]["uid"]
    assert {name: len(each) for name, each in uids.items()} == dict.fromkeys(old_uids, 2)
    # 6 pods, 3 Services, a revision, statuses, events: 40 are plenty, and a retry storm would have thousands.
    assert len(rows) - at_work <= 40
    assert set(world.uids().values()).isdisjoint(old_uids.values())


@pytest.mark.covers("R05")
async def test_successors_in_quick_succession_must_end_in_the_last_one(
    world: World, operator: OperatorProcess
) -> None:
    seen = set()
    for replicas in (2, 3, 1, 2):
        seen.add(world.create(serving("a", replicas))["metadata"]["uid"])
        world.delete(MODEL_SERVINGS, "a", propagation="Background")
    last = world.create(serving("a", 2))
    await world.settled()
    assert len(world.revisions()) == 1

    async def same() -> None:
        dump = await operator.dump(f"?namespace={world.namespace}")
        groups = dump[f"{world.namespace}/a"]
        assert {p for group in groups.values() for p in group["runningPods"]} == set(world.pods())

    await eventually(same)
    assert last["metadata"]["uid"] not in seen


@pytest.mark.covers("MS-284")
async def test_namespace_must_end_without_a_fight_although_it_is_full_of_pods(
    world: World, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    world.create(serving("a", 20))
    await world.settled()
    answer = world.api.call("DELETE", f"/api/v1/namespaces/{world.namespace}")
    assert answer.code == 200

    async def ended() -> None:
        assert world.api.call("GET", f"/api/v1/namespaces/{world.namespace}").code == 404

    await eventually(ended, within_s=60)
    rows = [r for r in requests_in(cluster, operator_user[0], world.namespace) if r.code == 403]
    # Requests of one turn that were under way when the first was refused, and an event or two.
    assert len([row for row in rows if row.resource != "events"]) <= 24
    assert len(rows) <= 70
