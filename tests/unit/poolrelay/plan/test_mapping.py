"""Which change concerns which relay (section 12)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from isthmus.api.meta import Key
from isthmus.api.poolrelay import ClusterProperty, ServiceExport
from isthmus.poolrelay.plan.mapping import export_matters, property_matters, relays_of_export
from tests.support.relays import cluster_property, export, owner

EAST, WEST = ("serving", "east"), ("serving", "west")
FREE, OURS = export("east-frontend"), export("east-frontend", owner())


def nobody(_: Key) -> Iterable[Key]:
    return ()


def both(_: Key) -> Iterable[Key]:
    return (EAST, WEST)


@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [
        pytest.param(None, FREE, True, marks=pytest.mark.covers("T-128")),
        pytest.param(FREE, None, True, marks=pytest.mark.covers("T-128")),
        pytest.param(FREE, export("east-frontend", label="x"), False, marks=pytest.mark.covers("T-125")),
        pytest.param(OURS, FREE, True, marks=pytest.mark.covers("T-126")),
        pytest.param(FREE, OURS, True, marks=pytest.mark.covers("T-127")),
        pytest.param(OURS, export("east-frontend", owner(), label="x"), True),
        pytest.param(FREE, export("east-frontend", owner(controller=False)), False),
    ],
)
@pytest.mark.covers("PR-93")
def test_export_must_matter_if_it_came_went_or_is_controlled(
    old: ServiceExport | None, new: ServiceExport | None, matters: bool
) -> None:
    assert export_matters(old, new) is matters
    assert bool(relays_of_export(old, new, both)) is matters


@pytest.mark.covers("PR-94", "T-126")
def test_former_owner_must_be_told_too() -> None:
    theirs = export("east-frontend", owner("west", "west-uid"))
    assert relays_of_export(OURS, theirs, nobody) == {EAST, WEST}
    assert relays_of_export(OURS, FREE, nobody) == {EAST}


@pytest.mark.covers("PR-94")
def test_controllers_uid_and_version_must_not_be_compared() -> None:
    other = export("east-frontend", owner(uid="earlier", api_version="nvidia.com/v2"))
    assert relays_of_export(None, other, nobody) == {EAST}


@pytest.mark.covers("PR-94", "PR-95", "T-51", "T-129")
@pytest.mark.parametrize(
    "of",
    [
        owner(kind="Relay"),
        owner(api_version="example.com/v1"),
        owner(api_version="v1"),
        owner(controller=False),
    ],
)
def test_controller_of_another_kind_must_concern_only_who_wants_the_name(of: object) -> None:
    found = export("east-frontend", of)  # type: ignore[arg-type]
    assert relays_of_export(None, found, nobody) == set()
    assert relays_of_export(None, found, both) == {EAST, WEST}


@pytest.mark.covers("PR-94", "T-131")
def test_relays_that_want_the_name_must_each_be_told_once() -> None:
    asked: list[Key] = []

    def wanting(key: Key) -> Iterable[Key]:
        asked.append(key)
        return (EAST, WEST)

    assert relays_of_export(OURS, None, wanting) == {EAST, WEST}
    assert asked == [("serving", "east-frontend")]


@pytest.mark.covers("T-130")
def test_export_that_nobody_wants_must_concern_nobody() -> None:
    assert relays_of_export(None, export("else"), nobody) == set()


ONE = cluster_property("one")


@pytest.mark.parametrize(
    ("old", "new", "matters"),
    [
        (None, ONE, True),
        (ONE, None, True),
        (ONE, cluster_property("two"), True),
        pytest.param(ONE, cluster_property("one", version="6"), False, marks=pytest.mark.covers("T-133")),
        pytest.param(
            None, cluster_property("x", name="clusterset.k8s.io"), False, marks=pytest.mark.covers("T-132")
        ),
    ],
)
@pytest.mark.covers("PR-92", "PR-97")
def test_property_must_matter_if_its_value_changed(
    old: ClusterProperty | None, new: ClusterProperty | None, matters: bool
) -> None:
    assert property_matters(old, new) is matters
