"""Whatever there is in a namespace: a plan touches only what is the relay's, brings about exactly what is
wanted, and then has nothing left to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.meta import OwnerReference
from isthmus.api.poolrelay import ExportSpec, ServiceExport
from isthmus.poolrelay.plan.exports import wanted
from isthmus.poolrelay.plan.model import (
    CreateExport,
    DeleteExport,
    Frontend,
    Observed,
    Pool,
    RelaySettings,
    RepairExport,
    Stranger,
)
from isthmus.poolrelay.plan.ownership import is_ours
from isthmus.poolrelay.plan.reconcile import plan
from tests.support.relays import act, export, graph, observed, owner, relay, settings

NAMES = [
    "east-pool-relay",
    "east-frontend",
    "east-api",
    "e" * 55,
    "e" * 56,
    "e" * 63,
    "e" * 64,
    "1-bad",
    "else",
]
OWNERS = [
    owner(),
    owner(block_owner_deletion=False),
    owner(name="west"),
    owner(controller=False),
    owner(uid="earlier"),
    OwnerReference(api_version="v1", kind="ConfigMap", name="mine", uid="user", controller=True),
]


def owners() -> st.SearchStrategy[list[OwnerReference]]:
    """Some references, at most one of which controls, as the API server sees to."""
    return st.lists(st.sampled_from(OWNERS), max_size=2, unique_by=lambda each: each.uid).filter(
        lambda found: sum(each.controller for each in found) <= 1
    )


@st.composite
def exports(draw: st.DrawFn) -> list[ServiceExport]:
    """What is in the namespace: any name, owner, label, spec, dying or not."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return [
        export(
            name,
            *draw(owners()),
            label=draw(st.sampled_from(["east", "west", ""])),
            dying=draw(st.booleans()),
            spec=ExportSpec(exported_labels=draw(st.sampled_from([{}, {"a": "1"}, {"a": "2", "b": "3"}]))),
        )
        for name in names
    ]


@st.composite
def pools(draw: st.DrawFn) -> Pool | None:
    """A graph in any condition, or none."""
    if not draw(st.integers(0, 9)):
        return None
    services = draw(st.lists(st.sampled_from(NAMES[1:-1]), max_size=4))
    return graph(
        "east",
        [Frontend(f"c{index}", name) for index, name in enumerate(services)],
        terminating=not draw(st.integers(0, 4)),
        has_workers=bool(draw(st.integers(0, 4))),
        shared=not draw(st.integers(0, 4)),
    )


@st.composite
def worlds(draw: st.DrawFn) -> Observed:
    """A relay and what it sees."""
    stranger = (Stranger("Service", "east-pool-relay", "controlled by nobody"),)
    return observed(
        draw(pools()), *draw(exports()), of=relay(), strangers=stranger if not draw(st.integers(0, 5)) else ()
    )


CHOICES = st.sampled_from(
    [settings(), settings("karmada"), settings(exported_labels={"a": "1"}), settings("")]
)


@pytest.mark.covers("PR-55", "PR-57", "PR-58", "PR-69", "T-12", "T-13")
@given(worlds(), CHOICES)
def test_plan_must_touch_only_what_is_the_relays(seen: Observed, under: RelaySettings) -> None:
    for step in plan(seen, under).exports:
        if isinstance(step, CreateExport):
            assert step.name not in seen.exports
        else:
            assert seen.exports[step.name] is step.export
            assert is_ours(step.export, seen.uid)
            assert not step.export.metadata.terminating


@pytest.mark.covers("PR-33", "PR-71")
@given(worlds(), CHOICES)
def test_plan_must_leave_nothing_to_do(seen: Observed, under: RelaySettings) -> None:
    after = act(seen, plan(seen, under))
    again = plan(after, under)
    assert (again.exports, again.children) == ((), ())


@pytest.mark.covers("PR-37", "PR-52", "PR-54")
@given(worlds(), CHOICES)
def test_plan_must_bring_about_exactly_what_is_wanted(seen: Observed, under: RelaySettings) -> None:
    planned = plan(seen, under)
    after = act(seen, planned).exports
    held = {
        name
        for name, each in seen.exports.items()
        if each.metadata.terminating or not is_ours(each, seen.uid)
    }
    ours = {name for name, each in after.items() if is_ours(each, seen.uid)} - held
    if not under.export_version:
        assert after == seen.exports
    elif planned.withdrawn is not None or seen.pool is None:
        assert ours == set()
    else:
        names = wanted("east", seen.pool, under.implementation).values()
        assert ours == {each.name for each in names if not each.problem} - held


@pytest.mark.covers("PR-62", "PR-63", "T-104")
@given(worlds(), CHOICES)
def test_repair_must_always_say_what_was_read(seen: Observed, under: RelaySettings) -> None:
    for step in plan(seen, under).exports:
        if isinstance(step, RepairExport):
            metadata = step.body["metadata"]
            assert set(step.body) <= {"apiVersion", "kind", "metadata", "spec"}
            assert set(metadata) == {
                "name",
                "namespace",
                "labels",
                "ownerReferences",
                "uid",
                "resourceVersion",
            }
            assert metadata["uid"] == step.export.metadata.uid
            assert metadata["resourceVersion"] == step.export.metadata.resource_version
        else:
            assert isinstance(step, CreateExport | DeleteExport)
