"""How long changes are kept, and what is told of them."""

from __future__ import annotations

import pytest

from isthmus.discovery.plan import listing as module
from isthmus.discovery.plan.listing import Change, History, Listing
from tests.support.poolfacts import pool


@pytest.mark.covers("PW-9")
def test_history_must_be_bounded_by_its_changes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_EVENTS", 3)
    history = History()
    change = Change("added", pool("a"))
    history.add("v0", (change,) * 2)
    history.add("v1", (change,))
    assert history.since("v0") == (change,) * 3
    history.add("v2", (change,))
    assert history.since("v0") is None
    assert history.since("v1") == (change,) * 2
    history.add("v3", (change,) * 9)
    assert history.since("v3") is None


@pytest.mark.covers("PW-9")
def test_history_must_be_bounded_by_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_CHANGES", 2)
    history = History()
    for number in range(3):
        history.add(f"v{number}", ())
    assert [history.since(f"v{number}") for number in range(4)] == [None, (), (), None]


@pytest.mark.covers("PW-9")
def test_changes_must_be_told_from_the_last_time_that_a_list_was_of_that_version() -> None:
    history = History()
    first, second = Change("added", pool("a")), Change("removed", pool("a"))
    history.add("v0", (first,))
    history.add("v1", (second,))
    history.add("v0", (first,))
    assert history.since("v0") == (first,)


@pytest.mark.covers("PW-9", "DS-8")
def test_changes_between_two_lists_must_be_removals_first_and_no_more() -> None:
    old = Listing([pool("a"), pool("b"), pool("d")], complete=True, mode="mcs")
    changed = pool("b", zone="z")
    new = Listing([changed, pool("c"), pool("d")], complete=True, mode="mcs")
    assert new.changes_from(old) == (
        Change("removed", pool("a")),
        Change("changed", changed),
        Change("added", pool("c")),
    )
