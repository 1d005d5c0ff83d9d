"""Groups and roles are scaled: which go, which ordinals are filled, and what is refused without harm."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from isthmus.api import labels
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS
from isthmus.kube.client import Client
from tests.support.eventually import eventually
from tests.support.tape import Tape, replay
from tests.support.world import World, brief, expected, is_ready, label, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]


def ordinals(world: World) -> set[int]:
    """The groups that have pods which are not going."""
    pods = [pod for pod in world.pods().values() if "deletionTimestamp" not in pod["metadata"]]
    return {int(label(pod, "group-name").rpartition("-")[2]) for pod in pods}


def replicas_of(world: World, role: str = "p", group: int = 0) -> set[int]:
    """The replicas of a role that have pods."""
    pods = [p for p in world.pods().values() if label(p, "group-name") == f"a-{group}"]
    return {int(label(p, "role-id").rpartition("-")[2]) for p in pods if label(p, "role") == role}


def set_cost(world: World, costs: dict[str, str]) -> None:
    for pod, cost in costs.items():
        world.annotate(pod, **{labels.DELETION_COST: cost})


@pytest.mark.covers("MS-51", "MS-52", "MS-56", "MS-244", "MS-101", "MS-113")
async def test_groups_must_follow_the_count_and_others_keep_their_pods(world: World) -> None:
    world.create(serving("a", 2))
    await world.settled()
    first = world.uids()
    for count in (4, 1, 3, 0, 2):
        before = world.uids()
        world.scale(count)
        found = await world.settled()
        after = world.uids()
        assert all(after[name] == before[name] for name in after.keys() & before.keys())
        assert found["status"].get("currentReplicas", 0) == count
        assert len(world.revisions()) == 1
    assert not set(world.uids().values()) & set(first.values())


@pytest.mark.covers("MS-60", "MS-61", "MS-62", "MS-33", "MS-219")
async def test_role_replicas_must_follow_the_count_and_others_keep_their_pods(world: World) -> None:
    world.create(serving("a", 2, team("p", 2, 1), team("d", 1, 0)))
    await world.settled()
    (revision,) = world.revisions()
    for count in (3, 1, 2):
        before = world.uids()
        world.scale_role(count)
        found = await world.settled()
        after = world.uids()
        assert all(after[name] == before[name] for name in after.keys() & before.keys())
        assert set(world.revisions()) == {revision}
        assert found["status"]["updatedReplicas"] == 2


@pytest.mark.covers("MS-299", "MS-420")
async def test_role_must_scale_to_zero_and_back(world: World) -> None:
    world.create(serving("a", 1, team("p", 1, 1), team("d", 1, 0)))
    await world.settled()
    for index in (0, 1):
        world.scale_role(0, index=index)

        async def gone(index: int = index) -> None:
            assert {label(pod, "role") for pod in world.pods().values()} == ({"d"} if index == 0 else set())
            assert world.condition("Available").get("status") == "True", brief(world.status())
            assert world.status()["availableReplicas"] == 1

        await eventually(gone)
    assert not world.services()
    for index in (0, 1):
        world.scale_role(1, index=index)
    await world.settled()


@pytest.mark.covers("MS-299", "MS-52")
async def test_many_groups_without_any_pod_must_not_occupy_the_operator(world: World) -> None:
    world.create(serving("a", 2**31 - 1, team("p", 0, 0)))
    world.create(serving("b", 1))
    await world.settled("b")

    async def told() -> None:
        assert world.status().get("observedGeneration") == 1

    await eventually(told)


@pytest.mark.covers("MS-225", "MS-52", "MS-24")
async def test_missing_ordinals_must_be_filled_from_the_lowest(world: World) -> None:
    world.create(serving("a", 4))
    await world.settled()
    set_cost(world, {"a-0-p-0-0": "10", "a-1-p-0-0": "0", "a-2-p-0-0": "0", "a-3-p-0-0": "10"})
    world.scale(2)
    await world.settled(groups=(0, 3))
    kept = world.uids()
    world.scale(3)
    await world.settled(groups=(0, 1, 3))
    world.scale(4)
    await world.settled()
    after = world.uids()
    assert {name: after[name] for name in kept} == kept


@pytest.mark.covers("MS-57", "MS-229", "MS-234", "MS-235", "MS-241")
@pytest.mark.parametrize(
    ("costs", "kept"),
    [
        (("100", "50", "0", "75"), {0, 3}),
        (("", "", "", ""), {0, 1}),
        (("-100", "", "", "1"), {1, 3}),
        (("-5", "-5", "-5", "-5"), {0, 1}),
    ],
)
async def test_groups_that_cost_least_must_go_first(
    world: World, costs: Iterable[str], kept: set[int]
) -> None:
    world.create(serving("a", 4))
    await world.settled()
    set_cost(world, {f"a-{n}-p-0-1": cost for n, cost in enumerate(costs) if cost})
    world.scale(2)
    await world.settled(groups=kept)
    assert ordinals(world) == kept


@pytest.mark.covers("MS-228", "MS-230", "MS-243")
async def test_group_that_does_not_serve_must_go_first_whatever_it_costs(world: World) -> None:
    world.create(serving("a", 4))
    await world.settled()
    set_cost(world, {"a-1-p-0-0": "1000"})
    world.fault("a-1-p-0-0", "unready")

    async def unready() -> None:
        assert world.status().get("availableReplicas") == 3

    await eventually(unready)
    world.scale(3)
    await world.settled(groups=(0, 2, 3))


@pytest.mark.covers("MS-62", "MS-242", "MS-243", "MS-66")
async def test_role_replicas_that_cost_least_must_go_first(world: World) -> None:
    world.create(serving("a", 2, team("p", 2, 1)))
    await world.settled()
    before = world.uids()
    set_cost(world, {"a-1-p-1-0": "9", "a-0-p-1-1": "5"})

    def change(spec: Raw) -> None:
        spec["replicas"] = 1
        spec["template"]["roles"][0]["replicas"] = 1

    world.edit(change)

    async def settled() -> None:
        pods = world.pods()
        assert set(pods) == {"a-1-p-1-0", "a-1-p-1-1"}
        assert world.status().get("availableReplicas") == world.status().get("replicas") == 1
        assert set(world.services()) == {"a-1-p-1-0"}

    await eventually(settled)
    assert world.uids().items() <= before.items()


@pytest.mark.covers("MS-2", "MS-103", "MS-113")
async def test_scale_subresource_must_say_what_an_autoscaler_needs(world: World) -> None:
    world.create(serving("a", 2))
    await world.settled()
    scale = world.api.get(MODEL_SERVINGS, world.namespace, "a", subresource="scale").body
    assert scale["spec"]["replicas"] == scale["status"]["replicas"] == 2
    selected = world.find(SERVING_PODS, scale["status"]["selector"])
    assert set(selected) == {"a-0-p-0-0", "a-1-p-0-0"}


@pytest.mark.covers("MS-113", "MS-52", "MS-56", "R09")
async def test_autoscaler_that_cannot_decide_must_leave_the_last_count(world: World, admin: Client) -> None:
    """Writes to /scale in quick succession, and role counts by JSON patch between them."""
    world.create(serving("a", 2, team("p", 1, 1), team("d", 1, 0)))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:
        for count, role in ((5, 2), (1, 1), (4, 3), (3, 1), (6, 2), (2, 1)):
            world.scale(count)
            patch = [
                {"op": "test", "path": "/spec/template/roles/1/name", "value": "d"},
                {"op": "add", "path": "/spec/template/roles/1/replicas", "value": role},
            ]
            answer = world.api.call(
                "PATCH",
                MODEL_SERVINGS.path(world.namespace, "a"),
                patch,
                content_type="application/json-patch+json",
            )
            assert answer.code == 200, answer.body

        async def whole() -> None:
            """Which two groups are left depends on which were ready when the last write came (MS-56)."""
            groups = {label(pod, "group-name") for pod in world.pods().values()}
            world.assert_whole(world.serving(), sorted(int(group.rpartition("-")[2]) for group in groups))

        await eventually(whole, within_s=60, every_s=0.1)
        frames = await tape.frames()
    for frame, pods in replay(frames):
        if frame.kind == "ModelServing" and "status" in frame.object:
            status = frame.object["status"]
            serving_groups = {g for g in map(_group, pods.values()) if _whole(pods, g)}
            assert status.get("availableReplicas", 0) <= len(serving_groups), brief(status)


def _group(pod: Raw) -> str:
    return label(pod, "group-name")


def _whole(pods: dict[str, Raw], group: str) -> bool:
    """Whether the entry and worker of `p` and one `d` serve: what every group has whatever the counts."""
    return all(
        name in pods and is_ready(pods[name])
        for name in (f"{group}-p-0-0", f"{group}-p-0-1", f"{group}-d-0-0")
    )


@pytest.mark.covers("R14", "MS-24", "MS-12")
async def test_scale_that_makes_names_too_long_must_be_refused_and_keep_the_pods(world: World) -> None:
    """9 -> 10 groups need one more character; the CRD refuses it on every way in, or the status does."""
    name = "a" + "x" * (63 - len("a-9-p-1-1"))
    world.create(serving(name, 2))
    await world.settled(name)
    before = world.uids(name)
    answer = world.api.patch(
        MODEL_SERVINGS, world.namespace, name, {"spec": {"replicas": 10}}, subresource="scale"
    )
    if answer.code == 200:

        async def refused() -> None:
            condition = world.condition("Progressing", name)
            assert condition.get("reason") == "InvalidSpec", json.dumps(condition)
            assert "63" in condition["message"]

        await eventually(refused)
        world.scale(2, name)
    else:
        assert answer.code == 422
        assert "metadata.name" in answer.message
    await world.settled(name)
    assert world.uids(name) == before
    assert set(before) == expected(world.serving(name)).pods
