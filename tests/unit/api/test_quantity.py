"""Quantities: their value, their sums, and the form in which the API server writes them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.quantity import parse, total


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("600m", Fraction(3, 5)),
        ("0.6", Fraction(3, 5)),
        (".5", Fraction(1, 2)),
        ("4", 4),
        (4, 4),
        (0.5, Fraction(1, 2)),
        ("8Gi", 8 * 1024**3),
        ("1e3", 1000),
        ("2E-1", Fraction(1, 5)),
        ("2E", 2 * 10**18),
        ("-1k", -1000),
        ("+1k", 1000),
        ("5n", Fraction(5, 10**9)),
    ],
)
def test_quantity_must_have_its_value(text: str | float, value: Fraction) -> None:
    assert parse(text) == value


@pytest.mark.parametrize("text", ["", "one", "1 Gi", "1GiB", "1e", "0x10", "--1", "1e999999999"])
def test_text_that_is_no_quantity_must_be_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        parse(text)


@pytest.mark.parametrize(
    ("terms", "written"),
    [
        ([("0.1", 6)], "600m"),
        ([("100m", 10)], "1"),
        ([("500", 2)], "1k"),
        ([("125", 2)], "250"),
        ([("2Gi", 3), ("512Mi", 2)], "7Gi"),
        ([("512Mi", 1)], "512Mi"),
        ([("400Gi", 4)], "1600Gi"),
        ([("1Gi", 1), ("1G", 1)], "2073741824"),
        ([("1G", 1), ("1Gi", 1)], "2073741824"),
        ([("1Gi", 1), ("1073741824", 1)], "2Gi"),
        ([("1073741824", 1), ("1Gi", 1)], "2147483648"),
        ([("1Gi", 0), ("1073741824", 1)], "1073741824"),
        ([("1Ki", 1), ("500m", 1)], "1024500m"),
        ([("0", 3), ("1Gi", 1)], "1Gi"),
        ([("4", 0)], "0"),
        ([], "0"),
        ([("1e3", 2)], "2k"),
    ],
)
@pytest.mark.covers("MS-93")
def test_sum_must_be_written_as_the_api_server_writes_it(terms: list[tuple[str, int]], written: str) -> None:
    assert total(terms) == written


def test_sum_finer_than_there_is_must_be_rounded_up() -> None:
    assert total([("1e-10", 1)]) == "1n"


NUMBERS = st.integers(0, 10**6).map(str)
SUFFIXES = st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"])


@given(st.lists(st.tuples(st.builds(str.__add__, NUMBERS, SUFFIXES), st.integers(0, 9)), max_size=5))
def test_sum_must_be_worth_its_terms(terms: list[tuple[str, int]]) -> None:
    assert parse(total(terms)) == sum(parse(text) * times for text, times in terms)
