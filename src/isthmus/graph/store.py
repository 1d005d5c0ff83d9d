"""What the caches say about each graph, and which graphs a change concerns.

The controller asks `observe`; the queue gets its keys from here. Nothing is held that the cluster does not
say: children are found by the UID of their controller. Events carry keys, never decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from isthmus.api.dynamo.children import GraphChild
from isthmus.api.dynamo.graphs import GRAPHS, DynamoGraphDeployment
from isthmus.api.meta import Key
from isthmus.graph.plan.model import ChildName, Observed
from isthmus.runtime.cache import AnyCache, Cache, Change

OWNER: Final = "graph that controls it"


@dataclass(frozen=True, kw_only=True)
class Caches:
    """The caches that the store is a view of; `children` are by kind."""

    graphs: Cache[DynamoGraphDeployment]
    children: Mapping[str, Cache[GraphChild]]

    @property
    def written(self) -> tuple[AnyCache, ...]:
        """Those of what the controller writes."""
        return (self.graphs, *self.children.values())


class Store:
    """See the module. `wake` is called with the key of each graph that something has changed for; `skips`
    says which namespaces are another operator's (GD-55)."""

    def __init__(
        self, caches: Caches, wake: Callable[[Key], None], *, skips: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._caches = caches
        self._wake_one = wake
        self._skips = skips
        caches.graphs.subscribe(lambda change: self._wake(change.key))
        for cache in caches.children.values():
            cache.add_index(OWNER, _owner_uid)
            cache.subscribe(self._child_changed)

    def keys(self) -> list[Key]:
        """Every graph that is this operator's to look at."""
        return [
            graph.key for graph in self._caches.graphs.values() if not self._skips(graph.metadata.namespace)
        ]

    def graph(self, key: Key) -> DynamoGraphDeployment | None:
        """The graph of that key."""
        return None if self._skips(key[0]) else self._caches.graphs.get(key)

    def observe(
        self, graph: DynamoGraphDeployment, futile: frozenset[tuple[str, str]] = frozenset()
    ) -> Observed:
        """All that the plan for `graph` depends on, as the caches have it now. Objects of others that have a
        child's name are not in it: most carry no label of ours, and no cache has them."""
        meta = graph.metadata
        children = {
            ChildName(kind, child.metadata.name): child
            for kind, cache in self._caches.children.items()
            for child in cache.by_index(OWNER, meta.uid).values()
            if child.metadata.namespace == meta.namespace
        }
        return Observed(graph=graph, children=children, futile=futile)

    def _wake(self, key: Key) -> None:
        if not self._skips(key[0]):
            self._wake_one(key)

    def _child_changed(self, change: Change[GraphChild]) -> None:
        """Wakes the graph that it belongs to, and the one whose name it says it has."""
        names = set()
        for child in (change.old, change.new):
            if child is None:
                continue
            owner = child.metadata.controller()
            if owner is not None and owner.kind == GRAPHS[0].kind:
                names.add(owner.name)
            if child.metadata.labels.graph:
                names.add(child.metadata.labels.graph)
        for name in sorted(names):
            key = (change.key[0], name)
            if self._caches.graphs.get(key) is not None:
                self._wake(key)


def _owner_uid(child: GraphChild) -> Iterable[str]:
    owner = child.metadata.controller()
    return () if owner is None else (owner.uid,)
