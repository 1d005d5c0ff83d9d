"""Ordinals below a partition keep their revision through any history: kills, restarts, half passes, edits."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.modelserving.edits import set_image
from tests.property.modelserving.test_histories import progress
from tests.property.modelserving.world import CALM, STEPS, World, scripts
from tests.support.serving import role, serving

KILLS = ("delete", "force", "unready")
SCRIPTS = scripts(*CALM, *CALM, *KILLS, "progress", "image", "replicas", "kill all", "lose all")


def take(world: World, word: str, number: int) -> None:
    if word == "image":
        world.edit(lambda spec: set_image(spec["template"]["roles"][0], ("two", "three", "one")[number % 3]))
    elif word == "replicas":
        world.edit(lambda spec: spec.update(replicas=1 + number % 5))
    elif word == "kill all":
        for pod in world.alive():
            world.delete(pod.metadata.name)
    elif word == "lose all":
        for name in list(world.pods):
            world.vanish(name)
    elif word == "progress":
        progress(world, number)
    else:
        STEPS[word](world, number)


@pytest.mark.covers(
    "MS-53", "MS-76", "MS-250", "MS-251", "MS-252", "MS-257", "MS-405", "MS-406", "MS-408", "MS-409"
)
@example(
    partition=2, policy="RoleRecreate", script=[("image", 0), ("kill all", 0), ("act", 0), ("restart", 0)]
)
@example(partition=9, policy="None", script=[("image", 0), ("progress", 5), ("image", 1), ("lose all", 0)])
@given(
    partition=st.integers(1, 9),
    policy=st.sampled_from(["RoleRecreate", "ServingGroupRecreate", "None"]),
    script=SCRIPTS,
)
def test_protected_groups_must_keep_their_revision(
    partition: int, policy: str, script: list[tuple[str, int]]
) -> None:
    world = World(serving(role("p", 1, 1), role("q", 1), replicas=3, recovery=policy, partition=partition))
    world.run()
    for word, number in script:
        take(world, word, number)
        for pod in world.pods.values():
            ordinal = int(pod.metadata.labels.group_name.removeprefix("a-"))
            assert ordinal >= partition or world.image(pod) == "one", (word, pod.metadata.name)
    made = world.run()
    image = world.spec.template.roles[0].entry_template
    for pod in world.pods.values():
        ordinal = int(pod.metadata.labels.group_name.removeprefix("a-"))
        if ordinal >= partition and pod.metadata.labels.role == "p":
            assert f'"{world.image(pod)}"'.encode() in bytes(image)
    outdated = made.status.current_revision != made.status.update_revision
    if outdated and partition >= world.spec.replicas:
        assert made.status.updated_replicas == 0
        assert made.status.current_replicas == world.spec.replicas


@pytest.mark.covers("MS-76", "MS-265", "MS-269", "MS-270", "MS-407", "MS-435")
@example(
    partition=1, script=[("image", 0), ("progress", 5), ("lose all", 0), ("partly", 0b010101), ("restart", 0)]
)
@example(  # gone back to the first revision while others are at the second
    partition=1,
    script=[("act", 0), ("image", 0), ("progress", 1), ("image", 2), ("kill all", 0), ("progress", 1)],
)
@given(partition=st.integers(1, 3), script=SCRIPTS)
def test_protected_role_replicas_must_keep_their_revision(
    partition: int, script: list[tuple[str, int]]
) -> None:
    p = role("p", 3, 1, partition=partition, maxUnavailable=2)
    world = World(serving(p, role("q", 1), replicas=2, by_role=True))
    world.run()
    for word, number in script:
        take(world, word, number)
        for pod in world.pods.values():
            labels = pod.metadata.labels
            if labels.role == "p" and int(labels.role_id.removeprefix("p-")) < partition:
                assert world.image(pod) == "one", (word, pod.metadata.name)
    world.run()
    image = bytes(world.spec.template.roles[0].entry_template)
    for pod in world.pods.values():
        labels = pod.metadata.labels
        if labels.role == "p" and int(labels.role_id.removeprefix("p-")) >= partition:
            assert f'"{world.image(pod)}"'.encode() in image
