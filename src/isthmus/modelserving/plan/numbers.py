"""Counts that may be written as a number or a percentage: maxUnavailable and partition, at both levels.

Called by desired.py and rollout.py. The CRD refuses what cannot be read; an object that got past it (an old
CRD, a direct write to etcd) must not stop a rollout for ever or let one run wild, so the fallbacks are chosen
to be safe.
"""

from __future__ import annotations

from isthmus.api.modelserving import IntOrPercent
from isthmus.api.percent import resolve


def max_unavailable(value: IntOrPercent | None, base: int, *, unset: int = 1) -> int:
    """How many of `base` may be unavailable. What rounds down to 0 is 1, since a rollout could otherwise
    never move (MS-421). An unreadable value is 0: the rollout waits until it is mended (MS-263)."""
    if value is None:
        return unset
    try:
        return max(1, resolve(value, base))
    except ValueError:
        return 0


def partition(value: IntOrPercent | None, base: int) -> int:
    """Ordinals below this keep their revision: unset is 0, percentages round up (MS-68, MS-248). An
    unreadable value protects all, since a protection that was asked for must not be lost to a typo."""
    if value is None:
        return 0
    try:
        return resolve(value, base, round_up=True)
    except ValueError:
        return base
