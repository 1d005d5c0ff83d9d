"""Kubernetes quantities (`600m`, `8Gi`, `1e3`): read, added up and written as the API server writes them.

plan/gang.py sums the requests of pods with `total`, and compares what it wants with what is stored by value,
since `0.1` six times and `600m` are the same (MS-423). Exact: nothing is rounded. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

_FORM: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]+))?"
)
_BINARY: Final = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {
    letter: Fraction(1000) ** power
    for letter, power in zip(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), range(-3, 7), strict=True)
}
_LARGEST_EXPONENT: Final = 60


def parse(text: str | float) -> Fraction:
    """The value of a quantity, which JSON may hold as a number. Raises ValueError for what is none."""
    return _read(text)[0]


def total(terms: Iterable[tuple[str | float, int]]) -> str:
    """The sum of quantities, each so many times, in the shortest exact form: powers of 1024 where the first
    one that is not zero is written so. Raises ValueError for what is no quantity."""
    value, binary = Fraction(0), False
    for text, times in terms:
        term, is_binary = _read(text)
        if not value and term * times:
            binary = is_binary
        value += term * times
    return _write(value, binary=binary)


def _read(text: str | float) -> tuple[Fraction, bool]:
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is no quantity")
    number, binary, decimal, exponent = match.groups()
    if exponent is not None and abs(int(exponent)) > _LARGEST_EXPONENT:
        raise ValueError(f"{text!r} is no quantity that can be")
    scale = _BINARY[binary] if binary else _DECIMAL[decimal or ""] * Fraction(10) ** int(exponent or 0)
    return Fraction(number) * scale, bool(binary)


def _write(value: Fraction, *, binary: bool) -> str:
    scales = [*_BINARY.items()][::-1] if binary else []
    for suffix, scale in [*scales, ("", Fraction(1))] if binary else reversed(_DECIMAL.items()):
        if value and (value / scale).denominator == 1:
            return f"{value / scale}{suffix}"
    if not value:
        return "0"
    if binary:
        return _write(value, binary=False)
    nano = value / _DECIMAL["n"]
    return f"{-(-nano.numerator // nano.denominator)}n"  # finer than there is: rounded up, as the server does
