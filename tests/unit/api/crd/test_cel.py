from __future__ import annotations

import pytest

from isthmus.api.crd.cel import digits, said, said_of_each


@pytest.mark.parametrize("number", [0, 9, 10, 99, 100, 12345, 999_999_999, 1_000_000_000, 2_147_483_647])
def test_digits_must_measure_the_decimal_form(number: int) -> None:
    expression = digits(str(number)).strip("()")
    arms = [arm.split(" ? ") for arm in expression.split(" : ")]
    length = next(int(arm[-1]) for arm in arms if len(arm) == 1 or number < int(arm[0].split(" < ")[1]))
    assert length == len(str(number))


def test_text_must_be_formatted_in_one_call() -> None:
    assert said("%d of %s", "self.a", "self.b") == "'%d of %s'.format([self.a, self.b])"


def test_items_must_be_written_out_per_index() -> None:
    parts = said_of_each(" %s", "self.r", 2, lambda r: f"bad({r})", lambda r: f"{r}.name")
    assert parts == (
        "(size(self.r) > 0 && bad(self.r[0]) ? ' %s'.format([self.r[0].name]) : '')",
        "(size(self.r) > 1 && bad(self.r[1]) ? ' %s'.format([self.r[1].name]) : '')",
    )
