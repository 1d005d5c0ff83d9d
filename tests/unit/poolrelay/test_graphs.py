"""Graphs as pools, out of a cache (PR-34, PR-98)."""

from __future__ import annotations

import pytest

from isthmus.api.meta import Key
from isthmus.api.poolgraph import POOL_GRAPHS
from isthmus.poolrelay.graphs import GraphPools
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics
from tests.unit.poolrelay.plan.test_pool import beta, graph


@pytest.mark.covers("PR-34", "PR-98", "T-75", "T-134", "T-135")
def test_pools_must_follow_the_cache_and_tell_of_what_matters() -> None:
    cache = Cache(POOL_GRAPHS[0], metrics=Metrics())
    pools, told = GraphPools(cache, "etcd"), list[Key]()
    pools.subscribe(told.append)
    assert pools.pool(("serving", "east")) is None
    cache.upsert("", graph(beta(("Engine", "worker")), version="1"))
    found = pools.pool(("serving", "east"))
    assert found is not None
    assert "etcd" in found.unsupported
    cache.upsert("", graph(beta(("Engine", "worker")), version="2"))
    assert told == [("serving", "east")]
    cache.upsert("", graph(beta(), version="3", generation=2))
    cache.remove("", graph(beta(), version="4", generation=2))
    assert told == [("serving", "east")] * 3
