"""What the caches say about each relay, and which relays a change concerns.

The controller asks `observe`; the queue gets its keys from here. Nothing is held that the cluster does not
say: for each relay the names that it wants exported, so that a change of an export finds who wants it without
asking every relay of the namespace (PR-94, PR-96). Names are known again whenever the relay or its pool
changes. Events carry keys, never decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from isthmus.api.meta import Key
from isthmus.api.pods import ServingService
from isthmus.api.poolrelay import (
    PROPERTY_NAME,
    SERVING_TARGETS,
    ClusterProperty,
    DynamoPoolRelay,
    RelayChild,
    ServiceExport,
    Target,
    pool_relay_name,
)
from isthmus.poolrelay.plan import exports
from isthmus.poolrelay.plan.mapping import property_matters, relays_of_export
from isthmus.poolrelay.plan.model import (
    GRAPH_KIND,
    Observed,
    Pool,
    Property,
    PropertyState,
    RelaySettings,
)
from isthmus.poolrelay.plan.pool import serving_pool
from isthmus.poolrelay.plan.publication import target_of
from isthmus.poolrelay.plan.reconcile import sort_children
from isthmus.runtime.cache import AnyCache, Cache, Change

OWNER: Final = "owner"
TARGET: Final = "target"
SERVING: Final = "serving of a relay"


class Properties(Protocol):
    """ClusterProperties, whose API may be absent (runtime.optional.OptionalApi)."""

    @property
    def cache(self) -> Cache[ClusterProperty]:
        """What there is, as far as it is known."""

    @property
    def known(self) -> bool:
        """Whether the cache says what there is."""

    def subscribe(self, fn: Callable[[], None]) -> None:
        """Call `fn` when the API came or went."""


class Graphs(Protocol):
    """Graphs in whatever version they are served."""

    def pool(self, key: Key) -> Pool | None:
        """The graph of that key, as a pool."""

    def subscribe(self, fn: Callable[[Key], None]) -> None:
        """Call `fn` with the key of each graph that changed in what a relay reads of it (PR-34, PR-98)."""


@dataclass(frozen=True, kw_only=True)
class Caches:
    """The caches that the store is a view of. `children` are by kind. Without `exports` nothing is exported;
    without `properties` the cluster's ID is not looked at (PR-4, PR-14)."""

    relays: Cache[DynamoPoolRelay]
    graphs: Graphs
    children: Mapping[str, Cache[RelayChild]]
    servings: Cache[Target]
    serving_services: Cache[ServingService]
    exports: Cache[ServiceExport] | None = None
    properties: Properties | None = None

    @property
    def written(self) -> tuple[AnyCache, ...]:
        """Those of what the controller writes."""
        own: tuple[AnyCache, ...] = (self.relays, *self.children.values())
        return own if self.exports is None else (*own, self.exports)


class Store:
    """See the module. `wake` is called with the key of each relay that something has changed for; `skips`
    says which namespaces are another operator's (PR-101)."""

    def __init__(
        self,
        caches: Caches,
        settings: RelaySettings,
        wake: Callable[[Key], None],
        *,
        skips: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._caches = caches
        self._settings = settings
        self._wake_one = wake
        self._skips = skips
        self._names: dict[Key, frozenset[str]] = {}
        self._wanting: dict[Key, set[Key]] = {}
        caches.relays.add_index(TARGET, _target_key)
        caches.relays.subscribe(self._relay_changed)
        caches.graphs.subscribe(lambda key: self._pool_changed((GRAPH_KIND, *key)))
        caches.servings.subscribe(self._serving_changed)
        caches.serving_services.add_index(SERVING, _serving_of)
        caches.serving_services.subscribe(self._service_changed)
        for cache in caches.children.values():
            cache.subscribe(self._child_changed)
        if caches.exports is not None:
            caches.exports.add_index(OWNER, _owner_uid)
            caches.exports.subscribe(self._export_changed)
        if caches.properties is not None:
            caches.properties.cache.subscribe(self._property_changed)
            caches.properties.subscribe(self.wake_all)

    def keys(self) -> list[Key]:
        """Every relay that is this operator's to look at."""
        return [
            relay.key for relay in self._caches.relays.values() if not self._skips(relay.metadata.namespace)
        ]

    def wake_all(self) -> None:
        """The cluster's ID, or what is known of it, has changed (PR-90)."""
        for key in self.keys():
            self._wake_one(key)

    def relay(self, key: Key) -> DynamoPoolRelay | None:
        """The relay of that key."""
        return None if self._skips(key[0]) else self._caches.relays.get(key)

    def wanting(self, key: Key) -> Iterable[Key]:
        """The relays that want an export of this (namespace, name), whether or not it can be (PR-96)."""
        return tuple(self._wanting.get(key, ()))

    def observe(self, relay: DynamoPoolRelay, futile: frozenset[tuple[str, str]] = frozenset()) -> Observed:
        """All that the plan for `relay` depends on, as the caches have it now."""
        pool = self._pool(relay)
        name = pool_relay_name(relay.metadata.name)
        found = {
            kind: cache.get((relay.metadata.namespace, name)) for kind, cache in self._caches.children.items()
        }
        ours, strangers = sort_children(
            {kind: child for kind, child in found.items() if child is not None}, relay.metadata.uid
        )
        return Observed(
            relay=relay,
            pool=pool,
            cluster=self.cluster(),
            exports=self._exports(relay, pool),
            children=ours,
            strangers=strangers,
            futile=futile,
        )

    def cluster(self) -> Property:
        """What the cluster says of its ID (section 11)."""
        properties = self._caches.properties
        if properties is None:
            return PropertyState.UNWATCHED
        found = properties.cache.get(("", PROPERTY_NAME))
        if found is not None:
            return found
        return PropertyState.ABSENT if properties.known else PropertyState.UNKNOWN

    def _pool(self, relay: DynamoPoolRelay) -> Pool | None:
        kind, namespace, name = next(iter(_target_key(relay)))
        if kind == GRAPH_KIND:
            return self._caches.graphs.pool((namespace, name))
        serving = self._caches.servings.get((namespace, name))
        if serving is None:
            return None
        services = self._caches.serving_services.by_index(SERVING, (namespace, name))
        return serving_pool(serving, services.values())

    def _exports(self, relay: DynamoPoolRelay, pool: Pool | None) -> dict[str, ServiceExport]:
        cache = self._caches.exports
        if cache is None:
            return {}
        namespace = relay.metadata.namespace
        found = {
            export.metadata.name: export
            for export in cache.by_index(OWNER, relay.metadata.uid).values()
            if export.metadata.namespace == namespace
        }
        for name in _wanted_names(relay, pool):
            export = cache.get((namespace, name))
            if export is not None:
                found[name] = export
        return found

    # Changes

    def _wake(self, key: Key) -> None:
        if not self._skips(key[0]):
            self._wake_one(key)

    def _relay_changed(self, change: Change[DynamoPoolRelay]) -> None:
        self._learn(change.key, change.new)
        self._wake(change.key)

    def _pool_changed(self, target: tuple[str, str, str]) -> None:
        for key, relay in tuple(self._caches.relays.by_index(TARGET, target).items()):
            self._learn(key, relay)
            self._wake(key)

    def _serving_changed(self, change: Change[Target]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or _gist(old) != _gist(new):
            self._pool_changed((SERVING_TARGETS.kind, *change.key))

    def _service_changed(self, change: Change[ServingService]) -> None:
        for service in (change.old, change.new):
            if service is not None:
                self._pool_changed(
                    (SERVING_TARGETS.kind, service.metadata.namespace, service.metadata.labels.name)
                )

    def _child_changed(self, change: Change[RelayChild]) -> None:
        for child in (change.old, change.new):
            if child is not None:
                self._wake((child.metadata.namespace, child.metadata.labels.relay))

    def _export_changed(self, change: Change[ServiceExport]) -> None:
        for key in relays_of_export(change.old, change.new, self.wanting):
            self._wake(key)

    def _property_changed(self, change: Change[ClusterProperty]) -> None:
        if property_matters(change.old, change.new):
            self.wake_all()

    def _learn(self, key: Key, relay: DynamoPoolRelay | None) -> None:
        """Note which exports a relay wants; None where it is gone."""
        names = frozenset() if relay is None else frozenset(_wanted_names(relay, self._pool(relay)))
        before = self._names.pop(key, frozenset())
        if names:
            self._names[key] = names
        for name in before - names:
            wanting = self._wanting[key[0], name]
            wanting.discard(key)
            if not wanting:
                del self._wanting[key[0], name]
        for name in names - before:
            self._wanting.setdefault((key[0], name), set()).add(key)


def _wanted_names(relay: DynamoPoolRelay, pool: Pool | None) -> Iterable[str]:
    """Names of the exports that it wants while it is published, impossible ones included; of a relay without
    a pool its own Service's (PR-96)."""
    own = pool_relay_name(relay.metadata.name)
    if pool is None:
        return (own,)
    return exports.wanted(relay.metadata.name, pool, "")


def _target_key(relay: DynamoPoolRelay) -> Iterable[tuple[str, str, str]]:
    kind, name = target_of(relay)
    return ((kind, relay.metadata.namespace, name),)


def _serving_of(service: ServingService) -> Iterable[Key]:
    """The index of Services by (namespace, name) of their ModelServing."""
    return ((service.metadata.namespace, service.metadata.labels.name),)


def _owner_uid(export: ServiceExport) -> Iterable[str]:
    owner = export.metadata.controller()
    return () if owner is None else (owner.uid,)


def _gist(serving: Target) -> tuple[Any, ...]:
    meta = serving.metadata
    return meta.uid, meta.generation, meta.terminating
