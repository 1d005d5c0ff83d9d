"""Each failure is answered once, against the generation that failed, and never where the policy is None."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isthmus.modelserving.plan.model import Done
from tests.property.modelserving import rules
from tests.property.modelserving.test_histories import progress
from tests.property.modelserving.world import CALM, FAULTS, NUMBERS, STEPS, World, scripts
from tests.support.serving import role, serving

CALMLY = scripts(*CALM)
WILDLY = scripts(*CALM, *FAULTS)
LETHAL = st.sampled_from(["crash", "fail", "delete", "force"])


@pytest.mark.covers(
    "R07", "R16", "MS-85", "MS-86", "MS-271", "MS-272", "MS-274", "MS-275", "MS-414", "MS-444", "MS-445"
)
@example(  # one deletion was refused, and the answer to the other was lost
    policy="ServingGroupRecreate",
    workers=0,
    fault="delete",
    which=0,
    script=[("gone", 1), ("catch-up", 0), ("partly", 9), ("act", 0)],
)
@given(
    policy=st.sampled_from(["RoleRecreate", "ServingGroupRecreate"]),
    workers=st.integers(0, 3),
    fault=LETHAL,
    which=NUMBERS,
    script=CALMLY,
)
def test_failure_must_recreate_each_pod_at_most_once(
    policy: str, workers: int, fault: str, which: int, script: list[tuple[str, int]]
) -> None:
    world = World(serving(role("p", 2, workers), role("q", 1), replicas=2, recovery=policy))
    world.checks.extend(rules.ALWAYS)
    world.run()
    victim = world.alive()[which % len(world.pods)]
    STEPS[fault](world, which)
    for word, number in script:
        STEPS[word](world, number)
    assert isinstance(world.run().decision, Done)
    rules.is_complete(world)
    hit = victim.metadata.labels
    assert max(len(uids) for uids in world.births.values()) <= 2
    for name, uids in world.births.items():
        labels = world.pods[name].metadata.labels
        other_group = labels.group_name != hit.group_name
        if other_group or (policy == "RoleRecreate" and labels.role_id != hit.role_id):
            assert len(uids) == 1, name
    # Something was replaced, unless the kubelet got a crashed container ready before anyone acted.
    assert fault == "crash" or len(world.births[victim.metadata.name]) == 2


@pytest.mark.covers("MS-85", "MS-86", "R07")
@pytest.mark.parametrize("policy", ["RoleRecreate", "ServingGroupRecreate"])
@pytest.mark.parametrize("fault", ["crash", "fail", "delete", "force"])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_failure_must_recreate_all_that_the_policy_says(policy: str, fault: str, workers: int) -> None:
    world = World(serving(role("p", 1, workers), role("q", 1), replicas=2, recovery=policy))
    world.run()
    STEPS[fault](world, 0)  # a pod of a-0-p-0
    world.deliver_all()
    world.act()
    world.run()
    twice = {name for name, uids in world.births.items() if len(uids) == 2}
    instance = {f"a-0-p-0-{index}" for index in range(1 + workers)}
    assert twice == (instance if policy == "RoleRecreate" else instance | {"a-0-q-0-0"})


@pytest.mark.covers("R08", "MS-87", "MS-401", "MS-402")
@given(script=WILDLY)
def test_policy_none_must_never_delete_for_a_failure_and_bring_back_what_is_gone(
    script: list[tuple[str, int]],
) -> None:
    world = World(serving(role("p", 2, 1), replicas=2, recovery="None"))
    world.checks.extend(rules.ALWAYS)
    world.run()
    for word, number in script:
        STEPS[word](world, number)
        assert world.deletions == []
    world.run()
    assert len(world.pods) == 8
    assert world.deletions == []


@pytest.mark.covers("MS-83", "MS-273", "MS-276", "MS-431")
@given(grace=st.integers(0, 60), steps=st.lists(st.integers(1, 25), max_size=6), restart=st.booleans())
def test_grace_must_run_from_the_failure_and_once(grace: int, steps: list[int], restart: bool) -> None:
    world = World(serving(role("p"), replicas=1, template={"restartGracePeriodSeconds": grace}))
    world.run()
    began = world.now
    world.crash(world.alive()[0])
    world.deliver_all()
    world.act()
    for seconds in steps:
        world.now += seconds
        if restart:
            world.restart()
        world.deliver_all()
        made = world.act()
        due = world.now >= began + grace
        assert bool(world.deletions) == due or grace == 0
        if not due:
            assert made.recheck_at == began + grace


@pytest.mark.covers("R04", "MS-283")
@given(
    replicas=st.integers(1, 3),
    workers=st.integers(0, 3),
    deaths=st.lists(st.integers(0, 30), max_size=8),
    ready=NUMBERS,
)
def test_death_while_creating_must_neither_lose_nor_repeat_a_pod(
    replicas: int, workers: int, deaths: list[int], ready: int
) -> None:
    world = World(serving(role("p", 2, workers), replicas=replicas))
    world.checks.extend(rules.ALWAYS)
    for after in deaths:
        world.act(dies_after=after)
        STEPS["ready"](world, ready)
    made = world.run()
    assert isinstance(made.decision, Done)
    rules.is_complete(world)
    wanted = {
        f"a-{group}-p-{instance}-{index}"
        for group in range(replicas)
        for instance in range(2)
        for index in range(1 + workers)
    }
    assert set(world.births) == wanted
    assert all(len(uids) == 1 for uids in world.births.values())
    assert world.deletions == []


@pytest.mark.covers("R04", "R09")
@given(script=CALMLY)
def test_what_is_right_must_never_be_touched(script: list[tuple[str, int]]) -> None:
    world = World(serving(role("p", 2, 1), role("q"), replicas=2))
    world.run()
    before = {name: pod.metadata.uid for name, pod in world.pods.items()}
    progress(world, 0)
    for word, number in script:
        STEPS[word](world, number)
        assert isinstance(world.plan().decision, Done)
    assert {name: pod.metadata.uid for name, pod in world.pods.items()} == before
    assert world.deletions == []
