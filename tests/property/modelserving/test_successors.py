"""A ModelServing that is deleted and made again at once: what the old one left is never taken for the new
one's."""

from __future__ import annotations

import pytest
from hypothesis import given

from isthmus.modelserving.plan.model import Done
from tests.property.modelserving import rules
from tests.property.modelserving.test_histories import progress
from tests.property.modelserving.world import CALM, STEPS, World, scripts
from tests.support.serving import role, serving


@pytest.mark.covers("R05", "MS-245", "MS-417")
@given(script=scripts(*CALM, "garbage", "succeed", "progress"))
def test_successor_must_end_complete_and_adopt_nothing(script: list[tuple[str, int]]) -> None:
    world = World(serving(role("p", 2, 1), replicas=2))
    world.run()
    old = {pod.metadata.uid for pod in world.pods.values()}
    world.succeed()
    for word, number in script:
        if word == "garbage":
            world.collect_garbage(number)
        elif word == "succeed":
            world.succeed()
        elif word == "progress":
            progress(world, number)
        else:
            STEPS[word](world, number)
        world.deliver("modelservings")
        for action in world.deletions:
            assert action.pod.metadata.uid not in old
    world.deliver_all()
    view = world.view()
    for group in view.groups.values():
        for instance in group.each():
            for pod in (*instance.live.values(), *instance.dying):
                owner = pod.metadata.controller()
                assert owner is not None
                assert owner.uid == world.serving.metadata.uid
    while any(pod.metadata.uid in old for pod in world.pods.values()):
        world.collect_garbage(2**16 - 1)
        progress(world, 1)
    world.collect_garbage(2**16 - 1)
    assert isinstance(world.run().decision, Done)
    rules.is_complete(world)
    for objects in (world.pods, world.services, world.revisions):
        for obj in objects.values():
            owner = obj.metadata.controller()
            assert owner is not None
            assert owner.uid == world.serving.metadata.uid


@pytest.mark.covers("R05")
def test_successor_must_wait_without_writing_while_the_old_pods_go() -> None:
    world = World(serving(role("p", 1, 1), replicas=2))
    world.run()
    world.succeed()
    world.collect_garbage(2**16 - 1)
    world.deliver_all()
    world.act()
    world.deliver_all()
    for _ in range(3):
        made = world.act()
        world.deliver_all()
        assert not any(name in str(made.decision) for name in ("CreatePod", "DeletePod"))
    assert "is still terminating" in str(made.decision)
    assert made.problems == ()
