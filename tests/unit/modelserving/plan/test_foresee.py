"""Whole updates in a made-up cluster that never fails: their steps, one by one."""

from __future__ import annotations

import pytest

from isthmus.api.modelserving import ModelServing
from isthmus.modelserving.plan.foresee import Step, World
from tests.support.serving import NOW, pods_created, pods_deleted, role, serving


def update(*servings: ModelServing, gang: bool = False) -> tuple[World, list[Step]]:
    """The steps of the last of these, given one after the other."""
    world = World(NOW, gang=gang)
    steps: list[Step] = []
    for each in servings:
        steps = list(world.settle(each))
    return world, steps


def counts(step: Step) -> tuple[int, int, int]:
    status = step.planned.status
    return status.current_replicas, status.updated_replicas, status.available_replicas


@pytest.mark.covers("MS-79")
def test_typical_run_must_go_one_by_one_from_the_top_with_the_counts_of_the_specification() -> None:
    world, steps = update(serving(role("p"), replicas=4), serving(role("p", image="two"), replicas=4))
    gone = [sorted(pods_deleted(step.planned)) for step in steps]
    assert [each for each in gone if each] == [[f"a-{n}-p-0-0"] for n in (3, 2, 1, 0)]
    made = [counts(step) for step in steps if pods_created(step.planned)]
    assert made == [(3, 1, 3), (2, 2, 3), (1, 3, 3), (0, 4, 3)]
    assert counts(steps[-1]) == (4, 4, 4)
    status = world.status
    assert status.current_revision == status.update_revision
    assert [kind for kind, _ in world.raw].count("ControllerRevision") == 1


@pytest.mark.covers("MS-78")
def test_change_of_mind_must_touch_only_what_was_rolled_and_bring_the_revision_back() -> None:
    old, new = serving(role("p"), replicas=4), serving(role("p", image="two"), replicas=4)
    world = World(NOW, gang=False)
    list(world.settle(old))
    before = world.status.update_revision
    rolled: set[str] = set()
    for step in world.settle(new):
        rolled |= pods_created(step.planned)
        if len(rolled) == 2:
            break
    back = list(world.settle(old))
    touched = set().union(*(pods_deleted(step.planned) for step in back))
    assert touched == rolled == {"a-3-p-0-0", "a-2-p-0-0"}
    assert (world.status.update_revision, world.status.current_revision) == (before, before)
    assert min(step.planned.status.available_replicas for step in back) >= 3


@pytest.mark.covers("MS-80")
def test_replicas_that_change_during_a_rollout_must_end_right_and_keep_the_budget() -> None:
    old = serving(role("p"), replicas=4)
    for replicas in (2, 3, 6):
        world = World(NOW, gang=False)
        list(world.settle(old))
        next(world.settle(serving(role("p", image="two"), replicas=4)))
        steps = list(world.settle(serving(role("p", image="two"), replicas=replicas)))
        assert world.status.available_replicas == world.status.updated_replicas == replicas
        assert min(step.planned.status.available_replicas for step in steps) >= min(replicas, 4) - 1
        assert {name for kind, name in world.raw if kind == "Pod"} == {
            f"a-{n}-p-0-0" for n in range(replicas)
        }


@pytest.mark.covers("MS-267", "MS-71")
def test_role_rollout_must_replace_pods_of_that_role_alone() -> None:
    old = serving(role("p", 2), role("q", 3), by_role=True, replicas=2)
    new = serving(role("p", 2), role("q", 3, image="two"), by_role=True, replicas=2)
    _, steps = update(old, new)
    gone = [pods_deleted(step.planned) for step in steps if pods_deleted(step.planned)]
    assert gone == [{f"a-{group}-q-{n}-0" for group in (0, 1)} for n in (2, 1, 0)]


def test_nothing_must_be_done_for_the_same_spec_again() -> None:
    same = serving(role("p", 2, 1), replicas=2)
    assert update(same, same, gang=True)[1] == []
