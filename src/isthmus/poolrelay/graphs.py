"""Graphs as the pools of relays: a view of the cache of graphs, in whatever version they are served.

store.py asks it for pools and hears of the changes that matter; it holds nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.api.meta import Key
from isthmus.api.poolgraph import PoolGraph
from isthmus.poolrelay.plan.mapping import graph_matters
from isthmus.poolrelay.plan.model import Pool
from isthmus.poolrelay.plan.pool import graph_pool
from isthmus.runtime.cache import Cache, Change


class GraphPools:
    """See the module and store.Graphs. `default_backend` is the discovery backend of the configuration."""

    def __init__(self, cache: Cache[PoolGraph], default_backend: str) -> None:
        self._cache = cache
        self._default_backend = default_backend

    def pool(self, key: Key) -> Pool | None:
        """The graph of that key, as a pool."""
        graph = self._cache.get(key)
        return None if graph is None else graph_pool(graph, self._default_backend)

    def subscribe(self, fn: Callable[[Key], None]) -> None:
        """Call `fn` with the key of each graph that changed in what a relay reads of it."""

        def changed(change: Change[PoolGraph]) -> None:
            if graph_matters(change.old, change.new):
                fn(change.key)

        self._cache.subscribe(changed)
