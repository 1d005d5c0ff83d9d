"""The last decisions: kept apart, bounded, and not washed away by waiting."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from isthmus.modelserving.decisions import MAX_ACTIONS, Decisions, describe
from isthmus.modelserving.plan.model import (
    Act,
    Action,
    Adopt,
    Blocked,
    CreatePod,
    CreateService,
    DeletePod,
    DeleteService,
    Done,
    DropRevision,
    PersistRevision,
    Plan,
    RepairService,
)
from tests.support.serving import NOW, Scene, role, serving

A, B, C = ("ns", "a"), ("ns", "b"), ("other", "a")
BASE = Scene(serving(role("p", 1, 1))).has_group(0)
PLAN = BASE.plan()


def waiting(*reasons: str) -> Plan:
    return replace(PLAN, decision=Blocked(reasons))


def note(kept: Decisions, key: tuple[str, str], plan: Plan, *, pods: int = 0, error: str = "") -> None:
    kept.note(key, plan, observed={"pods": pods}, began=NOW, took_s=0.25, error=error)


def outcomes(kept: Decisions, namespace: str | None = None, name: str | None = None) -> list[str]:
    return [each.outcome for each in kept.decisions(namespace, name)]


def test_decision_must_say_when_what_and_how_it_ended() -> None:
    kept = Decisions()
    note(kept, A, PLAN, pods=2)
    (only,) = kept.decisions(None, None)
    assert (only.namespace, only.name, only.time) == ("ns", "a", "2026-09-21T14:13:20.000000Z")
    assert (only.observed, only.duration_seconds, only.planned) == ({"pods": 2}, 0.25, [])
    assert only.outcome == "done: all is as wanted"


def test_outcome_must_tell_waiting_from_acting_from_failing() -> None:
    kept = Decisions()
    note(kept, A, waiting("x", "y"))
    scene = Scene(serving(role("p")))
    note(kept, A, scene.plan())
    note(kept, A, scene.plan(), error="boom")
    assert outcomes(kept) == ["waiting: x; y", "carried out: create a-0/p-0", "failed: boom"]


def test_repeated_decision_must_be_kept_once() -> None:
    kept = Decisions()
    for _ in range(3):
        note(kept, A, waiting("x"))
    note(kept, A, waiting("x"), pods=1)
    note(kept, A, waiting("x"))
    assert outcomes(kept) == ["waiting: x"] * 3


def test_rings_must_be_bounded_each_and_in_total() -> None:
    kept = Decisions(ring=3, total=5)
    for number in range(4):
        note(kept, A, waiting(f"a{number}"))
    assert outcomes(kept) == ["waiting: a1", "waiting: a2", "waiting: a3"]
    for number in range(3):
        note(kept, B, waiting(f"b{number}"))
    assert outcomes(kept, name="a") == ["waiting: a2", "waiting: a3"]
    note(kept, A, waiting("a3"))  # nothing new, but A is the one decided on last
    note(kept, C, waiting("c"))
    assert outcomes(kept, "ns", "b") == ["waiting: b1", "waiting: b2"]
    for number in range(4):
        note(kept, C, waiting(f"c{number}"))
    assert len(outcomes(kept)) == 5
    assert outcomes(kept, "ns", "b") == []


def test_bound_in_total_must_hold_when_whole_rings_are_gone() -> None:
    kept = Decisions(ring=3, total=3)
    for number in range(6):
        note(kept, ("ns", f"s{number}"), waiting(f"{number}"))
    assert outcomes(kept) == ["waiting: 3", "waiting: 4", "waiting: 5"]


def test_forgotten_serving_must_make_room() -> None:
    kept = Decisions(ring=3, total=4)
    for number in range(3):
        note(kept, A, waiting(f"a{number}"))
    kept.forget(A)
    assert outcomes(kept) == []
    kept.forget(B)
    for number in range(3):
        note(kept, B, waiting(f"b{number}"))
    note(kept, C, waiting("c"))
    assert outcomes(kept) == ["waiting: b0", "waiting: b1", "waiting: b2", "waiting: c"]


@pytest.mark.parametrize(
    ("namespace", "name", "count"),
    [(None, None, 3), ("ns", None, 2), (None, "a", 2), ("ns", "a", 1), ("x", None, 0)],
)
def test_decisions_must_be_narrowed_where_asked(namespace: str | None, name: str | None, count: int) -> None:
    kept = Decisions()
    for key in (A, B, C):
        note(kept, key, PLAN)
    assert len(kept.decisions(namespace, name)) == count


def test_long_plan_must_be_cut_and_say_so() -> None:
    kept = Decisions()
    note(kept, A, Scene(serving(role("p", MAX_ACTIONS + 5))).plan())
    (only,) = kept.decisions(None, None)
    assert len(only.planned) == MAX_ACTIONS + 1
    assert only.planned[-1].target == "5 actions"
    actions = tuple(DropRevision(f"a-{number}", "u", "1") for number in range(MAX_ACTIONS))
    note(kept, A, replace(PLAN, decision=Act(actions, ())))
    assert len(kept.decisions(None, None)[-1].planned) == MAX_ACTIONS


def test_every_action_must_have_words() -> None:
    desired = BASE.desired
    template, service = desired.revision.roles["p"], BASE.services["a-0-p-0-0"]
    actions: tuple[Action, ...] = (
        PersistRevision(desired.revision),
        DropRevision("a-x", "u", "1"),
        CreateService("a-0", "p", 1),
        RepairService("a-0", "p", 0, service),
        DeleteService(service, "unneeded"),
        CreatePod("a-0", template, "rev", 1, 0),
        DeletePod(BASE.pods["a-0-p-0-0"], "old"),
        Adopt("pods", "a-0-p-0-0", "u", "1"),
    )
    assert [f"{each.action} {each.target}: {each.why}" for each in map(describe, actions)] == [
        f"store revision {desired.revision.name}: it is not stored yet",
        "delete ControllerRevision a-x: nothing uses it",
        "create Service a-0-p-1-0: missing",
        "repair Service a-0-p-0-0: its selector was changed",
        "delete Service a-0-p-0-0: unneeded",
        "create pod a-0-p-1-0: missing at revision rev",
        "delete pod a-0-p-0-0: old",
        "adopt pods a-0-p-0-0: it has no owner",
    ]
    kept = Decisions()
    note(kept, A, replace(PLAN, decision=Act(actions, ("x",))))
    note(kept, A, replace(PLAN, decision=Done()))
    assert len(kept.decisions(None, None)[0].planned) == len(actions)
