"""INV-1 judged from the objects alone: while a rollout goes on, whatever the operator and the watches do,
never more than allowed are down, and it ends."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isthmus.modelserving.plan.model import Done
from tests.property.modelserving import rules
from tests.property.modelserving.edits import IMAGES, heal, set_image
from tests.property.modelserving.test_histories import progress
from tests.property.modelserving.world import CALM, NUMBERS, STEPS, World, scripts
from tests.support.serving import role, serving

SCRIPTS = scripts(*CALM, *CALM, "progress", "image")


def take(world: World, word: str, number: int) -> None:
    if word == "image":
        world.edit(lambda spec: set_image(spec["template"]["roles"][0], IMAGES[number % 4]))
    elif word == "progress":
        progress(world, number)
    else:
        STEPS[word](world, number)


def available_groups(world: World, counts: dict[str, int]) -> int:
    whole = rules.whole_instances(world, world.pods.values())
    groups = {group for group, _ in whole}
    return sum(
        all(whole.get((group, name), 0) == count for name, count in counts.items()) for group in groups
    )


@pytest.mark.covers("R01", "R03", "MS-70", "MS-258", "MS-259", "MS-419", "MS-421")
@example(replicas=4, max_unavailable="10%", sizes=[1], script=[("image", 1)])
@given(
    replicas=st.integers(1, 5),
    max_unavailable=st.sampled_from([1, 2, "50%", "10%"]),
    sizes=st.lists(st.integers(1, 2), min_size=1, max_size=2),
    script=SCRIPTS,
)
def test_rollout_of_groups_must_keep_enough_of_them_available(
    replicas: int, max_unavailable: int | str, sizes: list[int], script: list[tuple[str, int]]
) -> None:
    counts = {"pq"[index]: size for index, size in enumerate(sizes)}
    roles = [role(name, size, index) for index, (name, size) in enumerate(counts.items())]
    world = World(serving(*roles, replicas=replicas, max_unavailable=max_unavailable))
    world.run()
    floor = replicas - rules.wanted_max_unavailable(world.view())
    for word, number in script:
        take(world, word, number)
        assert available_groups(world, counts) >= floor, word
    heal(world)
    made = world.run()
    assert isinstance(made.decision, Done)
    assert made.status.updated_replicas == made.status.available_replicas == replicas
    assert made.status.current_revision == made.status.update_revision
    assert len(world.revisions) == 1  # MS-78


@pytest.mark.covers("MS-71", "MS-73", "MS-267", "MS-268", "MS-406")
@given(
    groups=st.integers(1, 2),
    replicas=st.integers(1, 4),
    max_unavailable=st.sampled_from([1, 2, "50%"]),
    script=SCRIPTS,
)
def test_rollout_of_a_role_must_keep_enough_replicas_and_the_other_roles(
    groups: int, replicas: int, max_unavailable: int | str, script: list[tuple[str, int]]
) -> None:
    p = role("p", replicas, 1, maxUnavailable=max_unavailable)
    world = World(serving(p, role("q", 2), replicas=groups, by_role=True))
    world.run()
    others = {name: pod.metadata.uid for name, pod in world.pods.items() if pod.metadata.labels.role == "q"}
    allowed = {1: 1, 2: 2, "50%": max(1, replicas // 2)}[max_unavailable]
    for word, number in script:
        take(world, word, number)
        whole = rules.whole_instances(world, world.pods.values())
        for group in range(groups):
            assert whole.get((f"a-{group}", "p"), 0) >= replicas - allowed, word
    heal(world)
    made = world.run()
    assert isinstance(made.decision, Done)
    assert made.status.updated_replicas == groups
    assert made.status.current_revision == made.status.update_revision
    assert {name: world.pods[name].metadata.uid for name in others} == others


@pytest.mark.covers("R01")
@given(
    replicas=st.integers(1, 5),
    max_unavailable=st.integers(1, 3),
    policy=st.sampled_from(["RoleRecreate", "ServingGroupRecreate", "None"]),
    readiness=NUMBERS,
)
def test_rollout_of_broken_groups_must_need_nobody_and_no_budget(
    replicas: int, max_unavailable: int, policy: str, readiness: int
) -> None:
    world = World(
        serving(role(image="bad"), replicas=replicas, recovery=policy, max_unavailable=max_unavailable)
    )
    progress(world, 3)
    assert not any(pod.ready for pod in world.pods.values())
    world.edit(lambda spec: set_image(spec["template"]["roles"][0], "good"))
    world.deliver_all()
    world.act()
    assert len(world.dying()) == replicas
    made = world.run()
    assert isinstance(made.decision, Done)
    assert {world.image(pod) for pod in world.pods.values()} == {"good"}


@pytest.mark.covers("MS-78", "MS-80")
@given(script=SCRIPTS, replicas=st.integers(1, 4))
def test_reverted_rollout_must_leave_untouched_groups_alone(
    script: list[tuple[str, int]], replicas: int
) -> None:
    world = World(serving(role(), replicas=replicas))
    world.run()
    world.edit(lambda spec: set_image(spec["template"]["roles"][0], "bad"))
    for word, number in script:
        if word != "image":
            take(world, word, number)
    untouched = {pod.metadata.uid for pod in world.alive() if world.image(pod) == "one"}
    world.edit(lambda spec: set_image(spec["template"]["roles"][0], "one"))
    world.run()
    assert untouched <= {pod.metadata.uid for pod in world.pods.values()}
    assert {world.image(pod) for pod in world.pods.values()} == {"one"}
    births = Counter({name: len(uids) for name, uids in world.births.items()})
    assert set(births) == {f"a-{ordinal}-p-0-0" for ordinal in range(replicas)}
