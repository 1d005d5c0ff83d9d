"""Pools by load: the cheapest first (GR-27).

The cost of a pool is what its relay saw running and waiting, plus what this router sent there since, divided
by the pool's capacity where every observed pool tells one. Pools without a load that can be relied on come
after all others, by this router's own requests there. A pool's weight divides its cost. Ties go by pool ID.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from isthmus.router.plan.model import Candidate, Ranked

REQUEST_COUNT: Final = "request_count"
CAPACITY_SHARE: Final = "capacity_share"
OWN_REQUESTS: Final = "own_request_count"


def rank(candidates: Sequence[Candidate]) -> list[Ranked]:
    """All candidates, the one to try first in front."""
    observed = [each for each in candidates if is_observed(each)]
    shares = bool(observed) and all(each.load and each.load.max_concurrency > 0 for each in observed)
    first = [Ranked(each.pool.pool_id, cost(each, shares), _basis(shares)) for each in observed]
    rest = [
        Ranked(each.pool.pool_id, each.in_flight / each.weight, OWN_REQUESTS)
        for each in candidates
        if not is_observed(each)
    ]
    return [*sorted(first, key=_order), *sorted(rest, key=_order)]


def is_observed(candidate: Candidate) -> bool:
    """Whether its load is known of all its frontends (D-28)."""
    return candidate.load is not None and candidate.load.whole


def cost(candidate: Candidate, shares: bool) -> float:
    """Of an observed candidate: requests, or the share of its capacity where `shares`."""
    load = candidate.load
    assert load is not None
    running = load.running + candidate.since_sample
    return running / (load.max_concurrency if shares else 1) / candidate.weight


def _basis(shares: bool) -> str:
    return CAPACITY_SHARE if shares else REQUEST_COUNT


def _order(ranked: Ranked) -> tuple[float, str]:
    return ranked.cost, ranked.pool_id
