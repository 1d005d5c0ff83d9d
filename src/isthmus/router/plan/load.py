"""Pools by load: the cheapest first (GR-27).

The cost of a pool is what its relay saw running and waiting, plus what this router sent there since, divided
by the pool's capacity where every observed pool tells one. Pools without a load that can be relied on come
after all others, by this router's own requests there. A pool's weight divides its cost. Ties go to the
heavier pool, then by pool ID. `loads_of` reads a relay's sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from isthmus.api.pools import LoadSnapshot
from isthmus.router.plan.model import Candidate, Load, Ranked

REQUEST_COUNT: Final = "request_count"
CAPACITY_SHARE: Final = "capacity_share"
OWN_REQUESTS: Final = "own_request_count"

_Row = tuple[float, float, str, str]


def rank(candidates: Sequence[Candidate]) -> list[Ranked]:
    """All candidates, the one to try first in front."""
    observed = [(each, load) for each in candidates if (load := observed_load(each)) is not None]
    shares = all(load.max_concurrency > 0 for _, load in observed)
    basis = CAPACITY_SHARE if shares else REQUEST_COUNT
    first: list[_Row] = []
    for each, load in observed:
        cost = (load.running + each.since_sample) / (load.max_concurrency if shares else 1)
        first.append((cost / each.weight, -each.weight, each.pool.pool_id, basis))
    rest: list[_Row] = [
        (each.in_flight / each.weight, -each.weight, each.pool.pool_id, OWN_REQUESTS)
        for each in candidates
        if observed_load(each) is None
    ]
    return [Ranked(pool_id, cost, why) for cost, _, pool_id, why in (*sorted(first), *sorted(rest))]


def observed_load(candidate: Candidate) -> Load | None:
    """Its load, where that is known of all its frontends (D-28)."""
    load = candidate.load
    return load if load is not None and load.whole else None


def loads_of(sample: LoadSnapshot, now: float) -> dict[str, Load]:
    """The loads by model that a sample which came at `now` tells; none of models whose counts are missing. A
    load is whole where every frontend that there should be was asked, and there is one (RL-11, D-28)."""
    if sample.status == "unavailable" or sample.age_ms < 0:
        return {}
    found: dict[str, Load] = {}
    for entry in sample.entries:
        waiting, generating = entry.awaiting_first_token, entry.generating
        if waiting is None or generating is None or waiting < 0 or generating < 0:
            continue
        found[entry.model] = Load(
            running=waiting + generating,
            max_concurrency=max(0, entry.max_concurrency or 0),
            whole=entry.frontends.observed == entry.frontends.expected > 0,
            taken_s=now - sample.age_ms / 1000,
        )
    return found
