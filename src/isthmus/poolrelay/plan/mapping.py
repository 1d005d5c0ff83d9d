"""Which change matters to which relay: the predicates and mappings of section 12, as pure functions.

store.py asks them with the old and the new state of an object and gives the keys to the work queue. An export
matters to whoever controls or controlled it, and to whoever wants its name; the UID is not compared here,
since a reconcile does that (PR-94).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from isthmus.api.meta import Key
from isthmus.api.poolgraph import PoolGraph
from isthmus.api.poolrelay import POOL_RELAYS, PROPERTY_NAME, ClusterProperty, ServiceExport

Wanting = Callable[[Key], Iterable[Key]]
"""(namespace, name of an export) -> the relays of that namespace that want it."""


def export_matters(old: ServiceExport | None, new: ServiceExport | None) -> bool:
    """Whether a change of an export can matter: it came or went, or somebody controls or controlled it
    (PR-93)."""
    if old is None or new is None:
        return True
    return old.metadata.controller() is not None or new.metadata.controller() is not None


def relays_of_export(old: ServiceExport | None, new: ServiceExport | None, wanting: Wanting) -> set[Key]:
    """The relays that a change of an export concerns (PR-94, PR-95)."""
    if not export_matters(old, new):
        return set()
    found: set[Key] = set()
    for export in (old, new):
        if export is not None:
            found |= _controlling(export)
            found.update(wanting(export.key))
    return found


def _controlling(export: ServiceExport) -> set[Key]:
    owner = export.metadata.controller()
    if owner is None or owner.kind != POOL_RELAYS.kind:
        return set()
    if owner.api_version.rpartition("/")[0] != POOL_RELAYS.group:
        return set()
    return {(export.metadata.namespace, owner.name)}


def property_matters(old: ClusterProperty | None, new: ClusterProperty | None) -> bool:
    """Whether a change of a ClusterProperty can matter: it is the one that is read, and its value is another
    (PR-92, PR-97)."""
    if all(each is None or each.metadata.name != PROPERTY_NAME for each in (old, new)):
        return False
    if old is None or new is None:
        return True
    return old.spec.value != new.spec.value


def graph_matters(old: PoolGraph | None, new: PoolGraph | None) -> bool:
    """Whether a change of a graph can matter: it came or went or is about to go, or its spec or discovery is
    another; its status never is (PR-34, PR-98)."""
    if old is None or new is None:
        return True
    return _gist(old) != _gist(new)


def _gist(graph: PoolGraph) -> tuple[object, ...]:
    meta = graph.metadata
    return meta.uid, meta.generation, meta.terminating, meta.annotations
