"""Counts given as a number or as a percentage: `3` or `25%` (MS-16).

The planner resolves maxUnavailable and partition with it; the CRD's CEL rules refuse what `is_valid` refuses.
Integers only: a percentage of a count is rounded down unless asked otherwise. Pure.
"""

from __future__ import annotations

import re
from typing import Final

PATTERN: Final = "^0*(100|[0-9]{1,2})%$"
"""A percentage from 0% to 100%, as a regular expression that RE2 (CEL) and Python read alike."""

_PERCENT: Final = re.compile(PATTERN)


def is_valid(value: int | str) -> bool:
    """Whether this is a count of 0 or more, or a percentage from 0% to 100%. A bare numeric text is none."""
    if isinstance(value, int):
        return value >= 0
    return value.isascii() and _PERCENT.fullmatch(value) is not None


def resolve(value: int | str, total: int, *, round_up: bool = False) -> int:
    """The count that `value` means for `total` objects; a number may exceed the total.

    Raises ValueError where `is_valid` is false.
    """
    if not is_valid(value):
        raise ValueError(f"{value!r} is neither a count nor a percentage from 0% to 100%")
    if isinstance(value, int):
        return value
    scaled = int(value[:-1]) * total
    return -(-scaled // 100) if round_up else scaled // 100
