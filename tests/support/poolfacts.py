"""Pools, loads and grids for tests of what a router decides."""

from __future__ import annotations

import json
from typing import Any

from isthmus.api.pools import Location, Model, Pool, PoolKey
from isthmus.router.plan.directory import Directory
from isthmus.router.plan.gridfile import Grid, read
from isthmus.router.plan.model import Candidate, Load
from isthmus.router.plan.selector import PolicySettings, Selector

MODEL = "example/tiny"


def pool(name: str, **changes: Any) -> Pool:
    """A pool that is ready: `name`, or `cluster/name`; `region` and `zone` place it."""
    cluster, _, short = name.rpartition("/")
    key = PoolKey(cluster or "east", "serving", short)
    location = Location(region=changes.pop("region", ""), availability_zone=changes.pop("zone", ""))
    model = Model(id=MODEL, aliases=("tiny",), max_concurrency=changes.pop("takes", None))
    given: dict[str, Any] = {
        "pool_id": key.pool_id,
        "cluster_id": key.cluster_id,
        "namespace": key.namespace,
        "name": key.name,
        "location": location,
        "models": (model,),
        "frontend_urls": (f"http://{short}:8000",),
        "runtime_namespaces": (f"dynamo-{short}",),
    }
    return Pool(**(given | changes))


def load(running: int = 0, *, takes: int = 0, whole: bool = True, taken_s: float = 0.0) -> Load:
    """A load with so many requests running."""
    return Load(running=running, max_concurrency=takes, whole=whole, taken_s=taken_s)


def candidate(name: str, **changes: Any) -> Candidate:
    """A pool of this name that may be chosen. `pool_changes` are for the pool itself."""
    return Candidate(pool(name, **changes.pop("pool_changes", {})), **changes)


def selector(*pools: Pool, **settings: Any) -> Selector:
    """A selector over these pools, all of them told by a complete list."""
    directory = Directory()
    directory.replace(pools, complete=True, now=0.0)
    return Selector(PolicySettings(**settings), directory)


def agg(**changes: Any) -> dict[str, Any]:
    """A grid's file of mode agg: two pools, the first for short targets. `strategy` changes parts of its
    strategy; None takes a key out."""
    strategy: dict[str, Any] = {
        "ttft_min_ms": 0,
        "ttft_max_ms": 1000,
        "ttft_resolution": 2,
        "itl_min_ms": 0,
        "itl_max_ms": 100,
        "itl_resolution": 2,
        "agg_pool_mapping": [[0, 0], [1, 1]],
    }
    strategy |= changes.pop("strategy", {})
    raw: dict[str, Any] = {
        "mode": "agg",
        "num_agg_pools": 2,
        "agg_pool_dynamo_namespaces": ["dynamo-fast", "dynamo-slow"],
        "agg_pool_selection_strategy": {k: v for k, v in strategy.items() if v is not None},
    }
    return {key: value for key, value in (raw | changes).items() if value is not None}


def disagg(**changes: Any) -> dict[str, Any]:
    """A grid's file of mode disagg: three prefill pools by size and target, two decode pools."""
    raw: dict[str, Any] = {
        "num_prefill_pools": 3,
        "num_decode_pools": 2,
        "prefill_pool_dynamo_namespaces": ["p0", "p1", "p2"],
        "decode_pool_dynamo_namespaces": ["d0", "d1"],
        "prefill_pool_selection_strategy": {
            "isl_min": 0,
            "isl_max": 4000,
            "isl_resolution": 2,
            "ttft_min_ms": 0,
            "ttft_max_ms": 1000,
            "ttft_resolution": 2,
            "prefill_pool_mapping": [[0, 1], [1, 2]],
        },
        "decode_pool_selection_strategy": {
            "context_length_min": 0,
            "context_length_max": 4000,
            "context_length_resolution": 2,
            "itl_min_ms": 0,
            "itl_max_ms": 100,
            "itl_resolution": 1,
            "decode_pool_mapping": [[0], [1]],
        },
    }
    return {key: value for key, value in (raw | changes).items() if value is not None}


def grid(raw: dict[str, Any]) -> Grid:
    """The grid for whole requests of a file."""
    return read(json.dumps(raw).encode()).grid
