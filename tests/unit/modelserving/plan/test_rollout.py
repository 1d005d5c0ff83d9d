"""Which outdated things a rollout takes now: tables of small fleets, one letter for each member.

`o` is outdated and available, `i` outdated, incomplete and of use, `b` outdated and broken; `n` is new and
available, `u` new and not running, `p` protected, outdated and available, `q` protected and broken. A dot is
an ordinal that is missing or being deleted.
"""

from __future__ import annotations

import pytest

from isthmus.modelserving.plan.rollout import Member, replace


def fleet(letters: str) -> list[Member]:
    return [
        Member(
            ordinal=ordinal,
            available=letter in "onp",
            serving=letter in "onpi",
            outdated=letter in "oibpq",
            protected=letter in "pq",
        )
        for ordinal, letter in enumerate(letters)
        if letter != "."
    ]


def going(letters: str, allowed: int) -> list[int]:
    return replace(fleet(letters), len(letters), allowed)


@pytest.mark.covers("MS-70", "MS-79", "MS-260")
@pytest.mark.parametrize(
    ("letters", "allowed", "expected"),
    [
        ("oooo", 1, [3]),
        ("oooo", 2, [3, 2]),
        ("oooo", 9, [3, 2, 1, 0]),
        ("oonn", 1, [1]),
        ("nnnn", 4, []),
        ("ooo.", 1, []),
        ("ooo.", 2, [2]),
        ("ooou", 1, []),
        ("ooou", 2, [2]),
        ("", 1, []),
    ],
)
def test_available_members_must_go_from_the_highest_as_far_as_the_budget_allows(
    letters: str, allowed: int, expected: list[int]
) -> None:
    assert going(letters, allowed) == expected


@pytest.mark.covers("MS-70", "MS-260", "R01")
@pytest.mark.parametrize(
    ("letters", "allowed", "expected"),
    [
        ("obob", 1, [3, 1]),
        ("bbbb", 1, [3, 2, 1, 0]),
        ("boob", 0, [3, 0]),
        ("booo", 2, [0, 3]),
        ("ubbu", 1, [2, 1]),
    ],
)
def test_broken_members_must_go_first_and_cost_nothing(
    letters: str, allowed: int, expected: list[int]
) -> None:
    assert going(letters, allowed) == expected


@pytest.mark.covers("MS-70")
@pytest.mark.parametrize(
    ("letters", "allowed", "expected"),
    [
        ("iiii", 1, [3]),
        ("iiii", 2, [3, 2]),
        ("oioi", 1, [3]),
        ("oooi", 2, [3, 2]),
        ("iii.", 1, []),
        ("ibio", 2, [1, 2]),
    ],
)
def test_incomplete_members_must_go_as_far_as_enough_others_are_of_use(
    letters: str, allowed: int, expected: list[int]
) -> None:
    assert going(letters, allowed) == expected


@pytest.mark.covers("MS-69", "MS-72", "MS-419")
@pytest.mark.parametrize(
    ("letters", "allowed", "expected"),
    [
        ("ppoo", 4, [3, 2]),
        ("qpoo", 1, []),
        ("qpoo", 2, [3]),
        ("qqqq", 4, []),
        ("pppp", 4, []),
    ],
)
def test_protected_members_must_stay_and_use_the_budget_where_they_are_down(
    letters: str, allowed: int, expected: list[int]
) -> None:
    assert going(letters, allowed) == expected


@pytest.mark.covers("MS-261")
@pytest.mark.parametrize(
    ("letters", "expected"), [("obob", [3, 1]), ("ooou", [2]), ("oo.u", []), ("oouu", [])]
)
def test_role_with_two_allowed_must_follow_the_catalogue(letters: str, expected: list[int]) -> None:
    assert going(letters, 2) == expected


@pytest.mark.covers("MS-265", "MS-435")
@pytest.mark.parametrize(("allowed", "expected"), [(4, [8, 5, 3]), (2, [8, 5]), (1, [8])])
def test_partition_must_protect_by_ordinal_and_not_by_position(allowed: int, expected: list[int]) -> None:
    members = [Member(n, available=True, serving=True, outdated=True, protected=n < 2) for n in (1, 3, 5, 8)]
    assert replace(members, 4, allowed) == expected


@pytest.mark.covers("MS-58", "MS-70")
def test_more_members_than_wanted_must_be_a_budget_of_their_own() -> None:
    assert replace(fleet("oooo"), 2, 1) == [3, 2, 1]
