"""Counts given as numbers or percentages, and what is done where they cannot be read."""

from __future__ import annotations

import pytest

from isthmus.modelserving.plan.numbers import max_unavailable, partition


@pytest.mark.covers("MS-68", "MS-248")
@pytest.mark.parametrize(
    ("value", "base", "expected"),
    [
        ("50%", 3, 2),
        ("50%", 4, 2),
        ("1%", 10, 1),
        ("100%", 5, 5),
        ("0%", 5, 0),
        (None, 5, 0),
        (3, 3, 3),
        (5, 3, 5),
        (0, 3, 0),
        ("10", 7, 7),
        (-1, 7, 7),
        ("110%", 7, 7),
    ],
)
def test_partition_must_round_up_and_protect_all_where_it_cannot_be_read(
    value: int | str | None, base: int, expected: int
) -> None:
    assert partition(value, base) == expected


@pytest.mark.covers("MS-68", "MS-249", "MS-263", "MS-421")
@pytest.mark.parametrize(
    ("value", "base", "expected"),
    [("50%", 9, 4), (None, 9, 1), (2, 9, 2), ("10%", 5, 1), (0, 5, 1), (9, 5, 9), ("x", 5, 0), (-1, 5, 0)],
)
def test_max_unavailable_must_round_down_but_not_to_nothing(
    value: int | str | None, base: int, expected: int
) -> None:
    assert max_unavailable(value, base) == expected


@pytest.mark.covers("MS-73", "MS-261")
def test_unset_max_unavailable_of_a_role_must_be_what_the_caller_says() -> None:
    assert max_unavailable(None, 4, unset=4) == 4
