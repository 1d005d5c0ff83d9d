"""Pods are deleted, fail, crash or turn unready: what is replaced, what is left, and what status says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS
from isthmus.api.times import parse_time
from isthmus.kube.client import Client
from isthmus.sandbox import Cluster
from tests.support.audit import requests_in
from tests.support.eventually import always, eventually
from tests.support.tape import Tape, replay, uids_of, whole_groups
from tests.support.world import World, brief, is_ready, label, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]

LONG = 20
"""Seconds of grace and of hanging; a test that waits for them to pass would be slow, and none does."""


async def replaced(world: World, before: dict[str, str], names: set[str]) -> None:
    """Return once exactly `names` have other UIDs than before, and all is whole again."""

    async def check() -> None:
        after = world.uids()
        assert {name for name in before if after.get(name) != before[name]} == names

    await eventually(check, within_s=60)
    await world.settled()
    await check()


@pytest.mark.covers("R07", "MS-85", "MS-86", "MS-271", "MS-272")
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("policy", ["RoleRecreate", "ServingGroupRecreate"])
@pytest.mark.parametrize("forced", [False, True], ids=["graceful", "forced"])
async def test_deleted_pod_must_bring_back_what_the_policy_says(
    world: World, workers: int, policy: str, forced: bool
) -> None:
    world.create(serving("a", 2, team("p", 1, workers), team("d", 1, 0), recoveryPolicy=policy))
    await world.settled()
    before = world.uids()
    world.delete(SERVING_PODS, f"a-1-p-0-{workers}", grace_s=0 if forced else None)
    role = {f"a-1-p-0-{index}" for index in range(workers + 1)}
    await replaced(world, before, role if policy == "RoleRecreate" else {*role, "a-1-d-0-0"})


@pytest.mark.covers("R16", "MS-85", "MS-88", "MS-275", "MS-414")
async def test_slowly_dying_group_must_be_recreated_exactly_once(world: World, admin: Client) -> None:
    world.create(serving("a", 1, team("p", 1, 3, grace=30), recoveryPolicy="ServingGroupRecreate"))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS) as tape:
        for index in range(1, 4):
            world.fault(f"a-0-p-0-{index}", f"hang-termination:{index}s")
        before = world.uids()
        world.delete(SERVING_PODS, "a-0-p-0-0", propagation="Background")
        await replaced(world, before, set(before))
        uids = uids_of(await tape.frames())
        assert {name: len(found) for name, found in uids.items()} == dict.fromkeys(before, 2)


@pytest.mark.covers("R16", "MS-67", "MS-88")
async def test_template_change_must_recreate_each_pod_exactly_once(world: World, admin: Client) -> None:
    world.create(serving("a", 2, team("p", 1, 3, grace=30), recoveryPolicy="ServingGroupRecreate"))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS) as tape:
        for index in range(4):
            world.fault(f"a-1-p-0-{index}", f"hang-termination:{index}s")
        world.set_image("engine:2")
        await world.settled()
        uids = uids_of(await tape.frames())
        assert {name: len(found) for name, found in uids.items()} == dict.fromkeys(world.pods(), 2)


@pytest.mark.covers("R08", "MS-402")
async def test_policy_none_must_leave_a_restarting_container_to_the_kubelet(
    world: World, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    world.create(serving("a", 1, recoveryPolicy="None"))
    await world.settled()
    before = world.uids()
    for fault in ("restart:500ms", "restart:500ms#2"):
        world.fault("a-0-p-0-1", fault)

        async def unavailable() -> None:
            assert not world.status().get("availableReplicas"), brief(world.status())

        await eventually(unavailable)
        await world.settled()
    restarts = world.pods()["a-0-p-0-1"]["status"]["containerStatuses"][0]["restartCount"]
    assert restarts == 2
    assert world.uids() == before
    rows = requests_in(cluster, operator_user[0], world.namespace)
    assert [row for row in rows if row[0].startswith("delete")] == []


@pytest.mark.covers("R08", "MS-401")
@pytest.mark.parametrize("forced", [False, True], ids=["graceful", "forced"])
async def test_policy_none_must_bring_back_only_the_pod_that_is_gone(world: World, forced: bool) -> None:
    world.create(serving("a", 1, team("p", 2, 2), recoveryPolicy="None"))
    await world.settled()
    before = world.uids()
    world.delete(SERVING_PODS, "a-0-p-0-1", grace_s=0 if forced else None)
    await replaced(world, before, {"a-0-p-0-1"})


@pytest.mark.covers("MS-402", "R08")
async def test_policy_none_must_leave_a_failed_pod_and_say_so(world: World) -> None:
    world.create(serving("a", 1, recoveryPolicy="None"))
    await world.settled()
    before = world.uids()
    world.fault("a-0-p-0-1", "fail")

    async def told() -> None:
        condition = world.condition("Available")
        assert condition["status"] == "False"
        assert "a-0-p-0-1" in condition["message"]

    await eventually(told)
    assert world.uids() == before


@pytest.mark.covers("MS-81", "MS-83", "MS-86", "MS-276")
@pytest.mark.parametrize("fault", ["fail", "evict", "restart", "crashloop"])
async def test_failed_pod_must_take_its_role_replica_along_at_once(world: World, fault: str) -> None:
    world.create(serving("a", 1, team("p", 2, 1), team("d", 1, 0)))
    await world.settled()
    before = world.uids()
    world.fault("a-0-p-1-1", fault)
    await replaced(world, before, {"a-0-p-1-0", "a-0-p-1-1"})


@pytest.mark.covers("MS-83", "MS-85")
async def test_failed_pod_must_take_its_group_along_where_the_policy_says_so(world: World) -> None:
    world.create(serving("a", 2, team("p", 1, 1), team("d", 1, 0), recoveryPolicy="ServingGroupRecreate"))
    await world.settled()
    before = world.uids()
    world.fault("a-0-d-0-0", "fail")
    await replaced(world, before, {name for name in before if name.startswith("a-0-")})


@pytest.mark.covers("MS-83", "MS-273", "MS-431")
async def test_pod_that_recovers_within_its_grace_must_stay(world: World) -> None:
    template = {"restartGracePeriodSeconds": LONG}
    world.create(serving("a", 1, template=template))
    await world.settled()
    before = world.uids()
    world.fault("a-0-p-0-0", "restart:1s")

    async def unavailable() -> None:
        assert not world.status().get("availableReplicas")
        assert "a-0-p-0-0" in world.condition("Available")["message"]

    await eventually(unavailable)
    await world.settled()
    assert world.uids() == before


@pytest.mark.covers("MS-83", "MS-431")
async def test_pod_that_does_not_recover_must_go_after_its_grace_and_not_before(
    world: World, admin: Client
) -> None:
    world.create(serving("a", 1, template={"restartGracePeriodSeconds": 3}))
    await world.settled()
    before = world.uids()
    async with Tape(admin, world, SERVING_PODS) as tape:
        world.fault("a-0-p-0-0", "crashloop:1m")
        await replaced(world, before, set(before))
        frames = await tape.frames()
    crash = next(
        f for f in frames if f.object["status"].get("containerStatuses", [{}])[0].get("restartCount")
    )
    gone = next(f for f in frames if "deletionTimestamp" in f.object["metadata"])
    ended = crash.object["status"]["containerStatuses"][0]["lastState"]["terminated"]["finishedAt"]
    deleted = gone.object["metadata"]["deletionTimestamp"]
    assert (
        parse_time(deleted) - 30 - parse_time(ended) >= 3
    )  # the mark is when its 30 s to end in order are over


@pytest.mark.covers("MS-403", "MS-280")
async def test_lost_readiness_must_lower_the_status_and_delete_nothing(world: World) -> None:
    world.create(serving("a", 2))
    await world.settled()
    before = world.uids()
    world.fault("a-1-p-0-1", "unready")

    async def lowered() -> None:
        assert world.status().get("availableReplicas") == 1, brief(world.status())
        assert world.condition("Available")["status"] == "False"

    await eventually(lowered)
    world.fault("a-1-p-0-1", "none")
    await world.settled()
    assert world.uids() == before


@pytest.mark.covers("MS-418", "MS-81")
async def test_pod_that_restarted_long_ago_and_turns_unready_must_stay(world: World) -> None:
    world.create(serving("a", 1, template={"restartGracePeriodSeconds": LONG}))
    await world.settled()
    before = world.uids()
    world.fault("a-0-p-0-0", "restart:100ms")

    async def restarted() -> None:
        status = world.pods()["a-0-p-0-0"]["status"]["containerStatuses"][0]
        assert status["restartCount"] == 1
        assert is_ready(world.pods()["a-0-p-0-0"])

    await eventually(restarted)
    # Without a grace from now on: what counts as a crash goes at once. Its end is 3 s ago by then, which is
    # more than the slack that a kubelet's whole seconds need.
    await asyncio.sleep(3)
    world.edit(lambda spec: spec["template"].update(restartGracePeriodSeconds=0))
    world.fault("a-0-p-0-0", "restart:100ms,unready")

    async def unavailable() -> None:
        assert not world.status().get("availableReplicas"), brief(world.status())

    async def stays() -> None:
        assert world.uids() == before

    await eventually(unavailable)
    await always(stays, for_s=1)
    world.fault("a-0-p-0-0", "restart:100ms")
    await world.settled()
    assert world.uids() == before


@pytest.mark.covers("MS-67", "MS-88", "MS-432")
async def test_hanging_pod_must_hold_back_its_own_replica_and_nothing_else(world: World) -> None:
    world.create(serving("a", 2, team("p", 2, 1)))
    await world.settled()
    before = world.uids()
    world.fault("a-0-p-1-0", "hang-termination:5s")
    world.delete(SERVING_PODS, "a-0-p-1-0")

    async def waiting() -> None:
        pods = world.pods()
        assert set(before) - set(pods) == {"a-0-p-1-1"}
        assert "deletionTimestamp" in pods["a-0-p-1-0"]["metadata"]
        assert world.status().get("availableReplicas") == 1
        assert "p-1 is being deleted" in world.condition("Available")["message"]

    await eventually(waiting)
    world.scale(3)

    async def scaled() -> None:
        assert sum(is_ready(pod) for pod in world.pods().values() if label(pod, "group-name") == "a-2") == 4

    await eventually(scaled)
    await waiting()
    await replaced(world, before, {"a-0-p-1-0", "a-0-p-1-1"})


@pytest.mark.covers("R09", "MS-432")
async def test_status_must_never_claim_more_than_serves_during_recovery(world: World, admin: Client) -> None:
    world.create(serving("a", 3, team("p", 1, 1), team("d", 1, 0), recoveryPolicy="ServingGroupRecreate"))
    await world.settled()
    async with Tape(admin, world, SERVING_PODS, MODEL_SERVINGS) as tape:
        before = world.uids()
        for group in range(3):
            world.delete(SERVING_PODS, f"a-{group}-d-0-0")
            await replaced(world, before, {name for name in before if name.startswith(f"a-{group}-")})
            before = world.uids()
        frames = await tape.frames()
    for frame, pods in replay(frames):
        if frame.kind == "ModelServing" and frame.what == "MODIFIED":
            claimed = frame.object["status"].get("availableReplicas", 0)
            assert claimed <= len(whole_groups(pods, 3)), brief(frame.object["status"])


@pytest.mark.covers("MS-83", "MS-8", "MS-106")
async def test_group_that_fails_again_must_wait_and_its_evidence_must_be_kept(world: World) -> None:
    world.create(serving("a", 2, team(workers=0)))
    await world.settled()
    first = world.uids()["a-1-p-0-0"]
    world.fault("a-1-p-0-0", "evict")
    await replaced(world, {**world.uids(), "a-1-p-0-0": first}, {"a-1-p-0-0"})
    (last,) = world.status()["recoveries"]
    assert [last[field] for field in ("group", "count", "pod", "podUid", "reason")] == [
        "a-1",
        1,
        "a-1-p-0-0",
        first,
        "Evicted",
    ]
    assert [event["regarding"]["name"] for event in world.events(reason="PodFailed")] == ["a"]
    second = world.uids()["a-1-p-0-0"]
    world.fault("a-1-p-0-0", "evict")

    async def waits() -> None:
        condition = world.condition("Available")
        assert condition["status"] == "False"
        assert "pod a-1-p-0-0: Evicted" in condition["message"]
        assert "a-1 was recovered once, and not again before" in condition["message"]

    await eventually(waits, within_s=20)
    assert world.uids()["a-1-p-0-0"] == second
    await replaced(world, {**world.uids()}, {"a-1-p-0-0"})
    assert [each["count"] for each in world.status()["recoveries"]] == [2]
