"""Groups are rolled to a new template: within the budget at every instant, past broken ones, and said truly.

A tape of all that happens is replayed against the budget and against each status that was written.
"""

from __future__ import annotations

import pytest

from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS
from isthmus.kube.client import Client
from isthmus.sandbox.faults import ANNOTATION
from tests.support.eventually import always, eventually
from tests.support.tape import Frame, Tape, replay, uids_of, whole_groups
from tests.support.world import World, brief, groups_of, is_dying, label, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]

SIZE = 2
"""Pods of a group of `serving`."""


def strategy(max_unavailable: int | str = 1, **more: object) -> Raw:
    configuration = {"maxUnavailable": max_unavailable, **more}
    return {"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": configuration}


def set_fault(world: World, text: str) -> None:
    """A new template, whose pods do as `text` says: what a broken image looks like to the operator."""

    def change(spec: Raw) -> None:
        for role in spec["template"]["roles"]:
            role["entryTemplate"]["metadata"] = {"annotations": {ANNOTATION: text}}

    world.edit(change)


def revision_of(world: World, group: int) -> set[str]:
    pods = world.pods().values()
    return {label(pod, "revision") for pod in pods if label(pod, "group-name") == f"a-{group}"}


def assert_budget(frames: list[Frame], least: int, size: int = SIZE) -> None:
    """There were never fewer whole groups than `least`."""
    for frame, pods in replay(frames):
        assert len(whole_groups(pods, size)) >= least, (frame.what, frame.object["metadata"]["name"])


def assert_truth(frames: list[Frame], size: int = SIZE) -> None:
    """Each status was true when it was written: no more available than whole, no end while anything old is
    there (R09)."""
    for frame, pods in replay(frames):
        if frame.kind != "ModelServing" or frame.what != "MODIFIED":
            continue
        status, generation = frame.object.get("status", {}), frame.object["metadata"]["generation"]
        assert status.get("availableReplicas", 0) <= len(whole_groups(pods, size)), brief(status)
        wanted = frame.object["spec"]["replicas"]
        done = status.get("updatedReplicas", 0) == status.get("availableReplicas", 0) == wanted
        if done and status["observedGeneration"] == generation:
            old = [name for name, pod in pods.items() if label(pod, "revision") != status["updateRevision"]]
            assert not old, (old, brief(status))


def assert_unmixed(frames: list[Frame]) -> None:
    """No group ever had pods of two revisions that both stay (MS-404)."""
    for frame, pods in replay(frames):
        for group, members in groups_of(pods.values()).items():
            found = {label(pod, "revision") for pod in members if not is_dying(pod)}
            assert len(found) <= 1, (group, found, frame.version)


@pytest.mark.covers("R03", "R09", "MS-70", "MS-78", "MS-79", "MS-249", "MS-404")
@pytest.mark.parametrize(("value", "down"), [(1, 1), (2, 2), ("50%", 2), ("25%", 1), (9, 4)])
async def test_rollout_must_keep_its_budget_and_tell_the_truth(
    world: World, admin: Client, value: int | str, down: int
) -> None:
    world.create(serving("a", 4, rolloutStrategy=strategy(value)))
    await world.settled()
    (first,) = world.revisions()
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:
        world.set_image("engine:2")
        found = await world.settled()

        async def forgotten() -> None:
            assert len(world.revisions()) == 1
            assert first not in world.revisions()

        await eventually(forgotten)
        frames = await tape.frames()
    assert_budget(frames, 4 - down)
    assert_truth(frames)
    assert_unmixed(frames)
    assert {name: len(uids) for name, uids in uids_of(frames).items()} == dict.fromkeys(world.pods(), 2)
    status = found["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert status["currentReplicas"] == status["updatedReplicas"] == 4


@pytest.mark.covers("R03", "MS-67", "MS-70")
async def test_rollout_must_keep_its_budget_while_pods_end_slowly_and_come_slowly(
    world: World, admin: Client
) -> None:
    world.create(serving("a", 4, rolloutStrategy=strategy(2)))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:
        for group in range(4):
            world.fault(f"a-{group}-p-0-{group % 2}", f"hang-termination:{300 * (group + 1)}ms")
        set_fault(world, "slow:300ms")
        await world.settled()
        frames = await tape.frames()
    assert_budget(frames, 2)
    assert_truth(frames)
    assert {name: len(uids) for name, uids in uids_of(frames).items()} == dict.fromkeys(world.pods(), 2)


@pytest.mark.covers("MS-79")
async def test_rollout_must_go_from_the_highest_ordinal_down_one_at_a_time(
    world: World, admin: Client
) -> None:
    world.create(serving("a", 4))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS) as tape:
        world.set_image("engine:2")
        await world.settled()
        frames = await tape.frames()
    order = [f.object for f in frames if f.what == "ADDED" and _image(f.object) == "engine:2"]
    assert list(dict.fromkeys(label(pod, "group-name") for pod in order)) == ["a-3", "a-2", "a-1", "a-0"]


def _image(pod: Raw) -> str:
    image: str = pod["spec"]["containers"][0]["image"]
    return image.rpartition("/")[2]


@pytest.mark.covers("R01", "MS-70")
async def test_groups_that_never_were_ready_must_be_replaced_by_a_mended_template(world: World) -> None:
    role = team()
    broken_template = {**role["entryTemplate"], "metadata": {"annotations": {ANNOTATION: "never-ready"}}}
    broken_role = {**role, "entryTemplate": broken_template}
    world.create(serving("a", 4, broken_role, rolloutStrategy=strategy(1)))

    async def broken() -> None:
        assert len(world.pods()) == 8
        assert world.condition("Progressing").get("status") == "True"

    await eventually(broken)
    before = world.uids()
    set_fault(world, "slow:100ms")
    await world.settled()
    assert set(before.values()).isdisjoint(world.uids().values())


@pytest.mark.covers("R01", "R03", "MS-258", "MS-259", "MS-419")
@pytest.mark.parametrize(("replicas", "down"), [(6, 2), (4, 1)])
async def test_bad_template_must_stop_at_the_budget_and_its_mending_must_end_it(
    world: World, admin: Client, replicas: int, down: int
) -> None:
    world.create(serving("a", replicas, rolloutStrategy=strategy(down)))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:
        set_fault(world, "never-ready")

        async def stalled() -> None:
            status = world.status()
            assert status["observedGeneration"] == 2
            assert status.get("updatedReplicas") == down, brief(status)
            assert status["availableReplicas"] == replicas - down
            pods = groups_of(world.pods().values())
            assert len(whole_groups(world.pods(), SIZE)) == replicas - down
            assert all(len(pods[f"a-{group}"]) == SIZE for group in range(replicas))

        await eventually(stalled)
        await always(stalled, for_s=1, every_s=0.2)
        assert world.condition("UpdateInProgress")["status"] == "True"
        set_fault(world, "slow:100ms")
        await world.settled()
        frames = await tape.frames()
    assert_budget(frames, replicas - down)
    assert_truth(frames)


@pytest.mark.covers("R01", "MS-78")
async def test_bad_template_during_a_rollout_must_be_taken_back_without_touching_what_fits(
    world: World, admin: Client
) -> None:
    world.create(serving("a", 4, rolloutStrategy=strategy(1)))
    await world.settled()
    before = world.uids()
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:
        set_fault(world, "never-ready")

        async def one_down() -> None:
            assert world.status().get("updatedReplicas") == 1, brief(world.status())
            assert len(world.pods()) == 8

        await eventually(one_down)

        def revert(spec: Raw) -> None:
            del spec["template"]["roles"][0]["entryTemplate"]["metadata"]

        world.edit(revert)
        await world.settled()
        frames = await tape.frames()
    after = world.uids()
    assert {n for n in after if after[n] != before[n]} == {"a-3-p-0-0", "a-3-p-0-1"}
    assert_budget(frames, 3)
    assert_truth(frames)


@pytest.mark.covers("MS-33", "MS-219", "MS-428")
async def test_changes_that_are_none_of_the_template_must_replace_no_pod(world: World) -> None:
    world.create(serving("a", 2, team("p", 1, 1)))
    await world.settled()
    before, revisions = world.uids(), set(world.revisions())

    def change(spec: Raw) -> None:
        spec["schedulerName"] = "default-scheduler"
        spec["recoveryPolicy"] = "ServingGroupRecreate"
        spec["template"]["restartGracePeriodSeconds"] = 7
        spec["rolloutStrategy"] = strategy(2)

    world.edit(change)
    world.merge(MODEL_SERVINGS, "a", {"metadata": {"labels": {"x": "y"}, "annotations": {"x": "y"}}})
    await world.settled()
    assert (world.uids(), set(world.revisions())) == (before, revisions)


@pytest.mark.covers("MS-80", "MS-220")
async def test_more_groups_and_a_new_template_at_once_must_keep_the_budget(
    world: World, admin: Client
) -> None:
    world.create(serving("a", 3, rolloutStrategy=strategy(1)))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:

        def change(spec: Raw) -> None:
            spec["replicas"] = 5
            role = spec["template"]["roles"][0]
            role["workerReplicas"] = 2
            role["entryTemplate"]["spec"]["containers"][0]["image"] = "registry.example/engine:2"

        world.edit(change)
        await world.settled()
        frames = await tape.frames()
    assert_unmixed(frames)
    for frame, pods in replay(frames):
        for group, members in groups_of(pods.values()).items():
            images = {_image(p) for p in members if label(p, "entry") and not is_dying(p)}
            if images == {"engine:1"}:
                assert len(members) <= 2, (group, frame.version)


@pytest.mark.covers("MS-53", "MS-257", "MS-405", "MS-409", "MS-412")
async def test_groups_below_the_partition_must_keep_their_revision_whatever_happens(world: World) -> None:
    world.create(serving("a", 5, rolloutStrategy=strategy(2, partition=3)))
    await world.settled()
    old = world.status()["currentRevision"]
    world.set_image("engine:2")

    async def split() -> None:
        status = world.status()
        new = status["updateRevision"]
        assert new != old
        assert status["currentRevision"] == old
        for group in range(5):
            assert revision_of(world, group) == {old if group < 3 else new}
        assert status.get("updatedReplicas") == 2, brief(status)
        assert status.get("availableReplicas") == 5, brief(status)

    await eventually(split, within_s=60)
    before = world.uids()["a-1-p-0-0"]
    world.delete(SERVING_PODS, "a-1-p-0-0")

    async def back() -> None:
        assert world.uids().get("a-1-p-0-0", before) != before
        assert world.images()["a-1-p-0-0"] == "engine:1"
        await split()

    await eventually(back)
    world.scale(7)

    async def larger() -> None:
        assert world.status().get("availableReplicas") == 7
        assert [revision_of(world, n) == {old} for n in range(7)] == [True] * 3 + [False] * 4

    await eventually(larger)
    world.scale(3)

    async def smaller() -> None:
        status = world.status()
        assert status["replicas"] == status.get("currentReplicas") == 3, brief(status)
        assert not status.get("updatedReplicas"), brief(status)
        assert set(world.images().values()) == {"engine:1"}

    await eventually(smaller)
    world.edit(lambda spec: spec.update(rolloutStrategy=strategy(2)))
    await world.settled()
    assert set(world.images().values()) == {"engine:2"}


@pytest.mark.covers("MS-70", "MS-88", "R16")
async def test_group_that_fails_during_its_rollout_must_be_replaced_once_and_at_the_new_template(
    world: World, admin: Client
) -> None:
    world.create(serving("a", 3, recoveryPolicy="ServingGroupRecreate", rolloutStrategy=strategy(1)))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:
        world.set_image("engine:2")
        world.fault("a-0-p-0-1", "fail")
        await world.settled()
        frames = await tape.frames()
    assert set(world.images().values()) == {"engine:2"}
    assert max(len(uids) for uids in uids_of(frames).values()) <= 3
