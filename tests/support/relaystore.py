"""The caches of the pool relays' controller, filled by hand: what a test says is in the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isthmus.api.meta import Key
from isthmus.api.pods import SERVING_SERVICES
from isthmus.api.poolrelay import (
    CLUSTER_PROPERTIES,
    POOL_RELAYS,
    RELAY_CHILDREN,
    SERVING_TARGETS,
    service_exports,
)
from isthmus.poolrelay.plan.model import Pool, RelaySettings
from isthmus.poolrelay.store import Caches, Store
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics
from tests.support.relays import settings


class FakeGraphs:
    """Graphs as pools, by key."""

    def __init__(self) -> None:
        self.pools: dict[Key, Pool] = {}
        self._told: list[Callable[[Key], None]] = []

    def pool(self, key: Key) -> Pool | None:
        """See store.Graphs."""
        return self.pools.get(key)

    def subscribe(self, fn: Callable[[Key], None]) -> None:
        """See store.Graphs."""
        self._told.append(fn)

    def put(self, pool: Pool) -> None:
        """The graph is now this."""
        self.pools[pool.namespace, pool.name] = pool
        self._tell((pool.namespace, pool.name))

    def drop(self, key: Key) -> None:
        """The graph is gone."""
        del self.pools[key]
        self._tell(key)

    def _tell(self, key: Key) -> None:
        for fn in self._told:
            fn(key)


class FakeApi:
    """The About API, known or not."""

    def __init__(self, metrics: Metrics) -> None:
        self.cache = Cache(CLUSTER_PROPERTIES[0], metrics=metrics)
        self.known = True
        self.changed: list[Callable[[], None]] = []

    def subscribe(self, fn: Callable[[], None]) -> None:
        """See store.Optional."""
        self.changed.append(fn)


class Cluster:
    """All caches, the store over them, and the keys that it woke."""

    def __init__(self, under: RelaySettings | None = None, **store: Any) -> None:
        self.settings = under or settings()
        self.metrics = Metrics()
        self.graphs = FakeGraphs()
        self.api = FakeApi(self.metrics)
        watched = self.settings.checks_cluster_id
        version = self.settings.export_version
        self.caches = Caches(
            relays=Cache(POOL_RELAYS, metrics=self.metrics),
            graphs=self.graphs,
            children={each.kind: Cache(each, metrics=self.metrics) for each in RELAY_CHILDREN},
            servings=Cache(SERVING_TARGETS, metrics=self.metrics),
            serving_services=Cache(SERVING_SERVICES, metrics=self.metrics),
            exports=Cache(service_exports(version), metrics=self.metrics) if version else None,
            properties=self.api if watched else None,
        )
        self.woken: list[Key] = []
        self.store = Store(self.caches, self.settings, self.woken.append, **store)

    @property
    def exports(self) -> Cache[Any]:
        """The cache of exports, where there is one."""
        assert self.caches.exports is not None
        return self.caches.exports

    @property
    def properties(self) -> Cache[Any]:
        """The cache of ClusterProperties."""
        return self.api.cache

    @property
    def mistakes(self) -> float:
        """Exceptions of indexes and subscribers of the caches of exports and ModelServings."""
        name = "isthmus_cache_subscriber_errors_total"
        kinds = (self.exports.name, self.caches.servings.name)
        return sum(self.metrics.value(name, resource=kind) or 0 for kind in kinds)

    def put(self, cache: Cache[Any], *objects: Any) -> None:
        """These were added or changed."""
        for obj in objects:
            cache.upsert("", obj)

    def drop(self, cache: Cache[Any], obj: Any) -> None:
        """This is gone."""
        cache.remove("", obj)

    def wakes(self, change: Callable[[], None]) -> set[Key]:
        """The keys that a change wakes."""
        self.woken.clear()
        change()
        return set(self.woken)
