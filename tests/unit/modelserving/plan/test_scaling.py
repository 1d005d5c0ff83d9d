"""Which ordinals are filled and which are removed: the cases of the catalogue, one by one."""

from __future__ import annotations

import pytest

from isthmus.modelserving.plan.scaling import Candidate, free_ordinals, missing_ordinals, victims


@pytest.mark.covers("MS-224")
@pytest.mark.parametrize(
    ("taken", "below", "limit", "free"),
    [
        ({0, 2, 4}, 5, 2, [1, 3]),
        ({-1, 1, 10}, 3, 2, [0, 2]),
        ({0, 1}, 2**31 - 1, 2, [2, 3]),
        (set(), 3, -1, []),
        ({0, 1, 2}, 3, 1, []),
    ],
)
def test_free_ordinals_must_be_the_lowest_in_their_range(
    taken: set[int], below: int, limit: int, free: list[int]
) -> None:
    assert list(free_ordinals(taken, below, limit)) == free


def test_free_ordinals_must_begin_where_they_are_told_to() -> None:
    assert list(free_ordinals({3}, 9, 3, start=2)) == [2, 4, 5]


@pytest.mark.covers("MS-52", "MS-61", "MS-225")
@pytest.mark.parametrize(
    ("taken", "wanted", "missing"),
    [({0, 5}, 4, [1, 2]), ({10}, 3, [0, 1]), ({0, 1}, 2, []), ({0, 1, 2}, 2, []), (set(), 0, [])],
)
def test_ordinal_that_is_taken_must_count_wherever_it_is(
    taken: set[int], wanted: int, missing: list[int]
) -> None:
    assert list(missing_ordinals(taken, wanted)) == missing


def running(*ordinals: int, **costs: int) -> list[Candidate]:
    """Running candidates; `_3=7` gives ordinal 3 the cost 7."""
    return [Candidate(ordinal, True, costs.get(f"_{ordinal}", 0)) for ordinal in ordinals]


def starting(*ordinals: int, cost: int = 0) -> list[Candidate]:
    return [Candidate(ordinal, False, cost) for ordinal in ordinals]


@pytest.mark.covers("MS-56", "MS-227", "MS-228", "MS-229", "MS-230", "MS-232", "MS-233", "MS-234", "MS-241")
@pytest.mark.parametrize(
    ("candidates", "remove", "gone"),
    [
        (running(0, 2, 5, 8), 2, [8, 5]),
        ([*running(0, 1, 3), *starting(2)], 2, [2, 3]),
        (running(0, 1, 2, 3, _0=100, _1=50, _3=75), 2, [2, 1]),
        ([*running(0, 1), *starting(2, cost=1000)], 1, [2]),
        (starting(0, 1, 2), 2, [2, 1]),
        (running(0, 1, 2, _0=5, _1=5, _2=5), 1, [2]),
        (running(0, 1, _0=-100), 1, [0]),
        (running(0, 1, 2, 3, _3=9), 3, [2, 1, 0]),
        (running(8, 9, 10), 1, [10]),
        (running(0, 1), 0, []),
        (running(0, 1), -3, []),
    ],
)
def test_victims_must_be_the_least_ready_then_the_cheapest_then_the_highest(
    candidates: list[Candidate], remove: int, gone: list[int]
) -> None:
    assert victims(candidates, remove, 0) == gone


@pytest.mark.covers("MS-62", "MS-237", "MS-238", "MS-239", "MS-270", "MS-435")
@pytest.mark.parametrize(
    ("candidates", "remove", "protected", "gone"),
    [
        (running(0, 1, 2, 3, 4, _3=9, _4=9), 2, 3, [4, 3]),
        (running(0, 1, 2, 3, 4, _0=2, _2=1), 3, 3, [4, 3, 1]),
        ([*starting(0), *running(1, 2, 3)], 1, 2, [3]),
        ([*starting(0), *running(1, 2, 3)], 3, 2, [3, 2, 0]),
        (running(1, 3, 5, 8), 2, 2, [8, 5]),
        (running(1, 3, 5, 8, _5=9), 2, 2, [8, 3]),
        (running(1, 3, 5, 8, _1=-9), 3, 2, [8, 5, 3]),
        (running(0, 1, 2, 3, 4, _0=-5, _1=-5, _2=-5), 2, 3, [4, 3]),
    ],
)
def test_victims_below_the_partition_must_come_last(
    candidates: list[Candidate], remove: int, protected: int, gone: list[int]
) -> None:
    assert victims(candidates, remove, protected) == gone
