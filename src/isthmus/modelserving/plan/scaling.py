"""Which ordinals to fill and which to remove when a count changes: groups of a ModelServing, instances of a
role.

Called by groups.py and roles.py with the same two functions for both levels. Ordinals are numbers, never
compared as text (MS-23); ones outside the range count but are never renumbered (MS-52).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

import msgspec


def free_ordinals(taken: Collection[int], below: int, limit: int, *, start: int = 0) -> Iterator[int]:
    """At most `limit` ordinals of [start, below) that are not `taken`, ascending. Lazy: `below` may be
    2**31-1 (MS-224)."""
    return islice((n for n in range(start, below) if n not in taken), max(0, limit))


def missing_ordinals(taken: Collection[int], wanted: int) -> Iterator[int]:
    """The ordinals to fill: as many as are missing, at the lowest free places (MS-52).

    `taken` holds every ordinal that exists, also those being deleted and those out of range: each of them
    counts, so {0, 5} of 4 yields 1 and 2 only (MS-225).
    """
    return free_ordinals(taken, wanted, wanted - len(taken))


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """Something that may be removed. `cost` is the sum of its pods' deletion costs (MS-57)."""

    ordinal: int
    running: bool
    cost: int = 0


def victims(candidates: Collection[Candidate], remove: int, protected_below: int) -> list[int]:
    """The ordinals to remove, at most `remove` of them: what is not running first, then the lowest deletion
    cost, then the highest ordinal; ordinals below `protected_below` only when no other is left (MS-56, MS-62,
    MS-435)."""
    if remove <= 0:
        return []
    order = sorted(candidates, key=lambda c: (c.ordinal < protected_below, c.running, c.cost, -c.ordinal))
    return [c.ordinal for c in order[:remove]]
