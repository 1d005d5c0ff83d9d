"""Roles roll by themselves (RoleRollingUpdate): others stay, each role has its budget and its partition."""

from __future__ import annotations

import pytest

from isthmus.api import labels
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS
from isthmus.kube.client import Client
from isthmus.sandbox.faults import ANNOTATION
from tests.support.eventually import always, eventually
from tests.support.tape import Tape, replay, uids_of, whole_groups
from tests.support.world import World, brief, is_ready, label, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]

BY_ROLE = {"type": "RoleRollingUpdate"}


def roles_of(world: World, role: str) -> dict[str, str]:
    """UIDs of the pods of one role."""
    return {n: p["metadata"]["uid"] for n, p in world.pods().items() if label(p, "role") == role}


@pytest.mark.covers("R09", "MS-71", "MS-75", "MS-267")
async def test_role_rollout_must_leave_other_roles_alone_and_tell_the_truth(
    world: World, admin: Client
) -> None:
    world.create(serving("a", 2, team("p", 2, 1), team("d", 2, 0), rolloutStrategy=BY_ROLE))
    await world.settled()
    before = world.uids()
    kept, hashes = roles_of(world, "d"), {label(p, "role-template-hash") for p in world.pods().values()}
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:
        world.set_image("engine:2", role="p")
        found = await world.settled()
        frames = await tape.frames()
    assert roles_of(world, "d") == kept
    assert set(roles_of(world, "p").values()).isdisjoint(before.values())
    assert {n: len(u) for n, u in uids_of(frames).items()} == {n: 1 if n in kept else 2 for n in world.pods()}
    generation = found["metadata"]["generation"]
    old = hashes - {label(pod, "role-template-hash") for pod in world.pods().values()}
    for frame, pods in replay(frames):
        for group in range(2):  # maxUnavailable is 1 by default: one of two replicas serves at every instant
            assert any(
                all(is_ready(pods.get(f"a-{group}-p-{r}-{i}", {"metadata": {}})) for i in range(2))
                for r in range(2)
            ), frame.version
        if frame.kind == "ModelServing" and frame.what == "MODIFIED":
            status = frame.object["status"]
            assert status.get("availableReplicas", 0) <= len(whole_groups(pods, 6)), brief(status)
            if status["observedGeneration"] == generation and status.get("updatedReplicas") == 2:
                assert not [n for n, p in pods.items() if label(p, "role-template-hash") in old], brief(
                    status
                )


@pytest.mark.covers("MS-268", "MS-73", "MS-261")
async def test_bad_role_template_must_stop_at_the_budget_of_the_role(world: World) -> None:
    world.create(serving("a", 1, team("p", 4, 0, maxUnavailable=2), rolloutStrategy=BY_ROLE))
    await world.settled()
    before = world.uids()

    def change(spec: Raw) -> None:
        template = spec["template"]["roles"][0]["entryTemplate"]
        template["metadata"] = {"annotations": {ANNOTATION: "never-ready"}}

    world.edit(change)

    async def stalled() -> None:
        pods = world.pods()
        assert len(pods) == 4
        after = world.uids()
        assert {n for n in after if after[n] == before[n]} == {"a-0-p-0-0", "a-0-p-1-0"}
        assert sum(map(is_ready, pods.values())) == 2
        assert not world.status().get("availableReplicas"), brief(world.status())

    await eventually(stalled)
    await always(stalled, for_s=1, every_s=0.2)
    world.edit(lambda spec: spec["template"]["roles"][0]["entryTemplate"].pop("metadata"))
    await world.settled()
    after = world.uids()
    assert {n for n in after if after[n] == before[n]} == {"a-0-p-0-0", "a-0-p-1-0"}


@pytest.mark.covers("MS-269", "MS-76", "MS-407", "MS-72")
async def test_protected_role_replica_must_come_back_at_its_old_template(world: World) -> None:
    world.create(serving("a", 1, team("p", 3, 1, partition=1), rolloutStrategy=BY_ROLE))
    await world.settled()
    old = world.status()["currentRevision"]
    world.set_image("engine:2")

    async def rolled() -> None:
        images = world.images()
        assert images == {f"a-0-p-{r}-{i}": f"engine:{2 if r else 1}" for r in range(3) for i in range(2)}
        assert world.status()["availableReplicas"] == 1

    await eventually(rolled, within_s=60)
    before = world.uids()
    world.delete(SERVING_PODS, "a-0-p-0-1")

    async def back() -> None:
        after = world.uids()
        assert after.keys() == before.keys()
        assert {n for n in before if after[n] != before[n]} == {"a-0-p-0-0", "a-0-p-0-1"}
        assert {label(world.pods()[n], "revision") for n in ("a-0-p-0-0", "a-0-p-0-1")} == {old}
        await rolled()

    await eventually(back, within_s=60)


@pytest.mark.covers("MS-270", "MS-62")
async def test_protected_role_replicas_must_survive_scaling_down_whatever_they_cost(world: World) -> None:
    world.create(serving("a", 1, team("p", 5, 0, partition=3), rolloutStrategy=BY_ROLE))
    await world.settled()
    before = world.uids()
    for replica in range(5):
        world.annotate(f"a-0-p-{replica}-0", **{labels.DELETION_COST: str(replica * 10)})
    world.scale_role(3)
    await world.settled()
    assert world.uids() == {f"a-0-p-{r}-0": before[f"a-0-p-{r}-0"] for r in range(3)}


@pytest.mark.covers("MS-74", "MS-262", "MS-220")
async def test_removed_role_must_go_and_an_added_one_must_come_without_touching_the_rest(
    world: World,
) -> None:
    world.create(serving("a", 2, team("p", 1, 1), team("d", 1, 1), rolloutStrategy=BY_ROLE))
    await world.settled()
    kept = roles_of(world, "p")

    def change(spec: Raw) -> None:
        added = {**spec["template"]["roles"][1], "name": "e"}
        spec["template"]["roles"][1] = added

    world.edit(change)
    await world.settled()
    assert roles_of(world, "p") == kept
    assert not roles_of(world, "d")


@pytest.mark.covers("MS-406", "MS-69")
async def test_second_role_rollout_must_find_the_history_of_the_first(world: World) -> None:
    world.create(serving("a", 1, team("p", 2, 0, partition=1), rolloutStrategy=BY_ROLE))
    await world.settled()
    for number in (2, 3):
        world.edit(lambda spec: spec["template"]["roles"][0].update(partition=0))
        world.set_image(f"engine:{number}")
        await world.settled()
    world.edit(lambda spec: spec["template"]["roles"][0].update(partition=1))
    world.set_image("engine:4")

    async def rolled() -> None:
        assert world.images() == {"a-0-p-0-0": "engine:3", "a-0-p-1-0": "engine:4"}

    await eventually(rolled, within_s=60)
    before = world.uids()["a-0-p-0-0"]
    world.delete(SERVING_PODS, "a-0-p-0-0")

    async def back() -> None:
        assert world.uids().get("a-0-p-0-0", before) != before
        await rolled()

    await eventually(back, within_s=60)
