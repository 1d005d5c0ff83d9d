"""Choosing ordinals to fill, to remove and to replace, against definitions too simple to be wrong."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.modelserving.plan.rollout import Member, replace
from isthmus.modelserving.plan.scaling import Candidate, free_ordinals, missing_ordinals, victims

ORDINALS = st.sets(st.integers(-1, 12), max_size=8)


@pytest.mark.covers("MS-52", "MS-224")
@given(taken=ORDINALS, wanted=st.integers(0, 12))
def test_missing_ordinals_must_be_the_lowest_free_ones(taken: set[int], wanted: int) -> None:
    found = list(missing_ordinals(taken, wanted))
    free = [ordinal for ordinal in range(wanted) if ordinal not in taken]
    assert found == free[: max(0, wanted - len(taken))]


@given(taken=ORDINALS, start=st.integers(0, 6), below=st.integers(0, 12), limit=st.integers(-1, 5))
def test_free_ordinals_must_stay_in_their_range(taken: set[int], start: int, below: int, limit: int) -> None:
    found = list(free_ordinals(taken, below, limit, start=start))
    assert found == [o for o in range(start, below) if o not in taken][: max(0, limit)]


@pytest.mark.covers("MS-52", "MS-224")
def test_free_ordinals_must_not_count_to_the_largest_number_there_is() -> None:
    began = time.perf_counter()
    assert list(free_ordinals({0, 1}, 2**31 - 1, 2)) == [2, 3]
    assert time.perf_counter() - began < 0.5


CANDIDATES = st.lists(
    st.builds(Candidate, st.integers(0, 9), st.booleans(), st.integers(-3, 3)),
    max_size=8,
    unique_by=lambda candidate: candidate.ordinal,
)


@pytest.mark.covers("MS-56", "MS-62", "MS-435")
@given(candidates=CANDIDATES, remove=st.integers(-1, 9), protected=st.integers(0, 10))
def test_no_survivor_must_be_a_better_victim(
    candidates: list[Candidate], remove: int, protected: int
) -> None:
    chosen = victims(candidates, remove, protected)
    assert len(chosen) == len(set(chosen)) == max(0, min(remove, len(candidates)))
    by_ordinal = {candidate.ordinal: candidate for candidate in candidates}

    def worth(ordinal: int) -> tuple[bool, bool, int, int]:
        candidate = by_ordinal[ordinal]
        return ordinal < protected, candidate.running, candidate.cost, -ordinal

    for survivor in by_ordinal.keys() - set(chosen):
        assert all(worth(victim) < worth(survivor) for victim in chosen)


MEMBERS = st.lists(
    st.tuples(
        st.integers(0, 9), st.sampled_from(["broken", "serving", "available"]), st.booleans(), st.booleans()
    ),
    max_size=8,
    unique_by=lambda each: each[0],
)


@pytest.mark.covers("R01", "R03", "MS-70", "MS-73", "MS-260", "MS-419")
@given(drawn=MEMBERS, wanted=st.integers(0, 9), allowed=st.integers(0, 9))
def test_replacing_must_never_take_what_others_need(
    drawn: list[tuple[int, str, bool, bool]], wanted: int, allowed: int
) -> None:
    members = [
        Member(ordinal, health == "available", health != "broken", outdated, protected)
        for ordinal, health, outdated, protected in drawn
    ]
    going = replace(members, wanted, allowed)
    floor = wanted - allowed
    taken = [member for member in members if member.ordinal in going]
    left = [member for member in members if member.ordinal not in going]
    assert len(set(going)) == len(going) == len(taken)
    assert all(member.outdated and not member.protected for member in taken)
    if any(member.available for member in taken):
        assert sum(member.available for member in left) >= floor
    if any(member.serving for member in taken):
        assert sum(member.serving for member in left) >= floor
    may_go = [member for member in left if member.outdated and not member.protected]
    assert all(member.serving for member in may_go)  # what is broken never waits
    if allowed > 0 and len(members) == wanted and all(member.available for member in members) and may_go:
        assert len(left) == floor  # the budget is used up, so that a healthy rollout always moves
