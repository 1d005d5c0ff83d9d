"""Pools by distance: the router's own zone, then its region, then the rest, spilling over by load.

A pool is full when what its relay saw running, or this router's own requests there, reach `spill_at` of what
it takes. Pools that are not full come first, near ones before far ones; full ones come after all of them, in
the same order, since a far pool with room beats a near one with a queue. Within one distance load.py decides,
weights included. A pool whose capacity nobody tells is never full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from isthmus.api.pools import Pool
from isthmus.router.plan import load
from isthmus.router.plan.model import Candidate, Place, Ranked

NAMES: Final = ("zone", "region", "elsewhere")


def rank(candidates: Sequence[Candidate], place: Place, spill_at: float) -> list[Ranked]:
    """All candidates, the one to try first in front; `basis` says how near each is."""
    rings: list[list[Candidate]] = [[] for _ in range(2 * len(NAMES))]
    for each in candidates:
        full = is_full(each, spill_at)
        rings[full * len(NAMES) + place.distance(each.pool.location)].append(each)
    found: list[Ranked] = []
    for index, ring in enumerate(rings):
        name = NAMES[index % len(NAMES)]
        basis = name if index < len(NAMES) else f"{name}_full"
        found += [each._replace(basis=basis) for each in load.rank(ring)]
    return found


def is_full(candidate: Candidate, spill_at: float) -> bool:
    """Whether it has no room left but for what fits nowhere else. `limit` is for this router's own requests,
    what the relay tells for everybody's."""
    if candidate.limit and candidate.in_flight >= spill_at * candidate.limit:
        return True
    told = candidate.load
    if told is None or not told.max_concurrency:
        return False
    return told.running + candidate.since_sample >= spill_at * told.max_concurrency


def capacity_of(pool: Pool) -> int:
    """Requests at once that its models take together, as registered; 0 where one does not say."""
    each = [model.max_concurrency or 0 for model in pool.models]
    return sum(each) if all(each) else 0
