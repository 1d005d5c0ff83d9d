"""Any history of edits, faults, half passes, late watches and restarts ends as wanted, and keeps the rules on
the way."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isthmus.modelserving.plan.model import Done
from tests.property.modelserving import rules
from tests.property.modelserving.edits import CHANGES, POLICIES, edit, heal
from tests.property.modelserving.world import CALM, FAULTS, STEPS, World, scripts
from tests.support.serving import role, serving

SHAPES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=2)
HISTORIES = scripts(*CALM, *CALM, *FAULTS, "blind", "progress", "service", "pod group", *CHANGES)


def begin(shape: list[tuple[int, int]], setting: int) -> World:
    """A new world; `shape` gives replicas and workers of each role, `setting` the rest."""
    roles = [role("pq"[index], count, workers) for index, (count, workers) in enumerate(shape)]
    policy = POLICIES[setting // 5 % 3]
    world = World(
        serving(
            *roles,
            replicas=setting % 5,
            recovery=policy,
            by_role=bool(setting // 15 % 2) and policy != "ServingGroupRecreate",
            template={"restartGracePeriodSeconds": 30 * (setting // 30 % 2)},
        )
    )
    world.checks.extend(rules.ALWAYS)
    return world


def progress(world: World, number: int) -> None:
    """Everything goes well for a few passes."""
    for _ in range(1 + number % 6):
        world.deliver_all()
        world.act()
        STEPS["gone"](world, 2**16 - 1)
        STEPS["ready"](world, 2**16 - 1)


def blind(world: World) -> None:
    """A pass that does not wait for what the last one wrote, as after an expired expectation."""
    checks, world.checks = world.checks, []
    world.act(blind=True)
    world.checks = checks


def take(world: World, word: str, number: int) -> None:
    """One step of a history."""
    if word in CHANGES:
        edit(world, word, number)
    elif word == "blind":
        blind(world)
    elif word == "progress":
        progress(world, number)
    elif word in ("service", "pod group"):
        kind = "services" if word == "service" else "podgroups"
        names = sorted(world.objects[kind])
        if names:
            world.drop(kind, names[number % len(names)])
    else:
        STEPS[word](world, number)


def play(shape: list[tuple[int, int]], setting: int, history: list[tuple[str, int]]) -> World:
    """A whole history, and what follows once everything can become ready."""
    world = begin(shape, setting)
    for word, number in history:
        take(world, word, number)
    heal(world)
    made = world.run()
    assert isinstance(made.decision, Done), made.decision
    rules.is_complete(world)
    assert isinstance(world.act().decision, Done)
    return world


@pytest.mark.covers(
    "R01", "R03", "R04", "R07", "R09", "R13", "MS-299", "MS-410", "MS-419", "MS-432", "MS-433"
)
@example(  # role rolling left a half-made instance when the pass that began it died
    shape=[(1, 0)],
    setting=16,
    history=[("workers", 4), ("partly", 1), ("workers", 0), ("role replicas", 4), ("die", 5), ("blind", 0)],
)
@example(  # groups that need no pods count as available for the budget
    shape=[(2, 1), (0, 1)], setting=2, history=[("progress", 0), ("roles", 1)]
)
@example(  # a Service whose deletion was refused, of an instance that needs none
    shape=[(2, 1), (0, 1)],
    setting=1,
    history=[("die", 2), ("workers", 0), ("catch-up", 0), ("partly", 4)],
)
@example(  # scaled to no replicas and protected, then given another role
    shape=[(2, 1)],
    setting=0,
    history=[("partly", 0), ("strategy", 188), ("all in one", 78), ("roles", 28)],
)
@example(  # somebody deletes a PodGroup, and the operator does not see it yet
    shape=[(1, 0)], setting=1, history=[("partly", 47), ("pod group", 0), ("act", 0)]
)
@example(  # a PodGroup waits for its group to be begun while the roles' counts change
    shape=[(1, 0), (1, 1)],
    setting=2,
    history=[
        ("partly", 7),
        ("workers", 1),
        ("partly", 1),
        ("partly", 32),
        ("replicas", 1),
        ("role replicas", 0),
    ],
)
@example(  # the history of a protected group was never stored
    shape=[(1, 0)],
    setting=1,
    history=[("partly", 1), ("strategy", 44), ("roles", 4), ("catch-up", 0), ("act", 0), ("workers", 2)],
)
@given(shape=SHAPES, setting=st.integers(0, 59), history=HISTORIES)
def test_any_history_must_end_as_wanted_and_keep_the_rules(
    shape: list[tuple[int, int]], setting: int, history: list[tuple[str, int]]
) -> None:
    play(shape, setting, history)
