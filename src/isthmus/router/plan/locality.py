"""Pools by distance: the router's own zone, then its region, then the rest, spilling over by load.

A pool is full when what runs there, by its relay or by this router's own count, reaches `spill_at` of its
capacity. Pools that are not full come first, near ones before far ones; full ones come after all of them, in
the same order, since a far pool with room beats a near one with a queue. Within one distance load.py
decides. A pool whose capacity nobody tells is never full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from isthmus.router.plan import load
from isthmus.router.plan.model import Candidate, Place, Ranked

NAMES: Final = ("zone", "region", "elsewhere")


def rank(candidates: Sequence[Candidate], place: Place, spill_at: float) -> list[Ranked]:
    """All candidates, the one to try first in front; `basis` says how near each is."""
    found: list[Ranked] = []
    for full in (False, True):
        for distance, name in enumerate(NAMES):
            here = [
                each
                for each in candidates
                if is_full(each, spill_at) is full and place.distance(each.pool.location) == distance
            ]
            basis = f"{name}_full" if full else name
            found += [each._replace(basis=basis) for each in load.rank(here)]
    return found


def is_full(candidate: Candidate, spill_at: float) -> bool:
    """Whether it has no room left for what is sent away only when it must be."""
    told = candidate.load.max_concurrency if candidate.load is not None else 0
    capacity = told or candidate.limit or capacity_of(candidate)
    if not capacity:
        return False
    seen = 0
    if candidate.load is not None:
        seen = candidate.load.running + candidate.since_sample
    return max(seen, candidate.in_flight) >= spill_at * capacity


def capacity_of(candidate: Candidate) -> int:
    """Requests at once that its models take together, as registered; 0 where one does not say."""
    each = [model.max_concurrency or 0 for model in candidate.pool.models]
    return sum(each) if all(each) else 0
