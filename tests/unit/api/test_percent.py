from __future__ import annotations

import pytest

from isthmus.api.percent import is_valid, resolve


@pytest.mark.covers("MS-16")
@pytest.mark.parametrize(
    ("value", "valid"),
    [
        (0, True),
        (7, True),
        (-1, False),
        ("0%", True),
        ("100%", True),
        ("007%", True),
        ("101%", False),
        ("110%", False),
        ("1", False),
        ("%", False),
        ("-1%", False),
        ("1.5%", False),
        ("50% ", False),
        ("50%\n", False),
        ("\u0665%", False),
        ("", False),
        ("invalid", False),
    ],
)
def test_value_must_be_a_count_or_a_percentage(value: int | str, valid: bool) -> None:
    assert is_valid(value) is valid


@pytest.mark.covers("MS-17")
@pytest.mark.parametrize(
    ("value", "total", "down", "up"),
    [(3, 2, 3, 3), ("50%", 5, 2, 3), ("10%", 5, 0, 1), ("100%", 7, 7, 7), ("0%", 7, 0, 0), ("33%", 0, 0, 0)],
)
def test_percentage_must_be_rounded_as_asked(value: int | str, total: int, down: int, up: int) -> None:
    assert resolve(value, total) == down
    assert resolve(value, total, round_up=True) == up


def test_invalid_value_must_be_an_error() -> None:
    with pytest.raises(ValueError, match="'120%' is neither a count nor a percentage"):
        resolve("120%", 3)
