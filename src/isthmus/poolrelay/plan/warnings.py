"""What people are told about a relay's exports: warnings of names and IDs, and how each write went, as data.

reconcile.py asks for the warnings of a plan; the controller asks for those of its writes afterwards, and
hands all of them to the event recorder. Warnings are told in each pass while they hold, which the recorder
counts in one event (T-115); each names a related object as it was read, so that a changed one makes a new
event (PR-79, PR-80).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from isthmus.api.karmada import NAME_LIMIT
from isthmus.api.meta import Object, Resource
from isthmus.api.poolrelay import CLUSTER_PROPERTIES, PROPERTY_NAME, ClusterProperty, service_exports
from isthmus.errors import IsthmusError
from isthmus.kube.answers import Written
from isthmus.kube.errors import AlreadyExists, Conflict, NotFound
from isthmus.poolrelay.plan.exports import INVALID_NAME, NAME_TOO_LONG
from isthmus.poolrelay.plan.model import (
    RELAY,
    CreateExport,
    DeleteExport,
    Event,
    ExportAction,
    Pool,
    Property,
    Related,
    RelaySettings,
    Unreadable,
    Wanted,
)

MAX_LISTED: Final = 20
_LIMITS: Final = {
    INVALID_NAME: "a Service's name must be a DNS-1035 label of at most 63 characters",
    NAME_TOO_LONG: f"Karmada can collect names of at most {NAME_LIMIT} characters",
}


def of_names(wanted: Iterable[Wanted], pool: Pool) -> list[Event]:
    """InvalidServiceName, ServiceNameTooLong, ServiceNameCollision and NoFrontend of a published relay: one
    event each, which lists all names (PR-81)."""
    wanted = list(wanted)
    events = []
    for reason in (INVALID_NAME, NAME_TOO_LONG):
        names = [f"{each.name} ({len(each.name)})" for each in wanted if each.problem == reason]
        if names:
            text = f"not exported: {_listed(names)}; {_LIMITS[reason]}"
            events.append(_warn(reason, pool, text))
    shared = [f"{each.name} of {', '.join(each.of)}" for each in wanted if len(each.of) > 1]
    if shared:
        text = f"exported once, although several components come to one Service: {_listed(shared)}"
        events.append(_warn("ServiceNameCollision", pool, text))
    if all(RELAY in each.of for each in wanted):
        text = f"{pool.kind} {pool.name} has no frontend: other clusters see the pool, and no way into it"
        events.append(_warn("NoFrontend", pool, text))
    return events


def of_cluster_id(cluster_id: str, property_: Property) -> list[Event]:
    """ClusterIDMismatch where the cluster says of itself that it is another (PR-84), and ExportFailed where
    it cannot be asked (PR-89)."""
    match property_:
        case Unreadable(text):
            resource = CLUSTER_PROPERTIES[0]
            related = Related(resource.api_version, resource.kind, "", PROPERTY_NAME)
            note = f"cannot read the cluster's ID: {text}"
            return [Event("Warning", "ExportFailed", "CheckClusterID", related, note)]
        case ClusterProperty():
            value = property_.spec.value
            if not value or value == cluster_id:
                return []
            note = (
                f"clusterId is {cluster_id}, but ClusterProperty {PROPERTY_NAME} says {value}: "
                "the pool cannot be matched with its imports"
            )
            related = related_to(CLUSTER_PROPERTIES[0], property_)
            if property_.api_version:
                related = related._replace(api_version=property_.api_version)
            return [Event("Warning", "ClusterIDMismatch", "CheckClusterID", related, note)]
        case _:
            return []


_DONE: Final[dict[type[ExportAction], tuple[str, str]]] = {
    CreateExport: ("ExportCreated", "exported"),
    DeleteExport: ("ExportDeleted", "no longer exported"),
}


def of_write(
    action: ExportAction,
    result: Written | IsthmusError | None,
    namespace: str,
    settings: RelaySettings,
) -> list[Event]:
    """What to tell of one write: its success, or its failure unless that only means that somebody was faster
    (PR-61, PR-66, PR-68). `result` is None for a deletion that was done."""
    if isinstance(result, AlreadyExists | Conflict | NotFound) and not _is_lack(action, result):
        return []
    verb: Literal["Export", "Withdraw"] = "Withdraw" if isinstance(action, DeleteExport) else "Export"
    related = _export(action, result, namespace, settings)
    if isinstance(result, IsthmusError):
        note = f"ServiceExport {action.name}: {_text(result)}"
        return [Event("Warning", "ExportFailed", verb, related, note)]
    reason, words = _DONE.get(type(action), ("ExportRepaired", "its label, owner or spec was put right"))
    return [Event("Normal", reason, verb, related, f"ServiceExport {action.name}: {words}")]


def _is_lack(action: ExportAction, error: IsthmusError) -> bool:
    """A 404 for a creation: the API or the namespace is not there, which is no race."""
    return isinstance(action, CreateExport) and isinstance(error, NotFound)


def _export(
    action: ExportAction, result: Written | IsthmusError | None, namespace: str, settings: RelaySettings
) -> Related:
    resource = service_exports(settings.export_version)
    if not isinstance(action, CreateExport):
        return related_to(resource, action.export)
    created = result if isinstance(result, Written) else None
    return Related(
        resource.api_version,
        resource.kind,
        namespace,
        action.name,
        "" if created is None else created.uid,
        "" if created is None else created.resource_version,
    )


def related_to(resource: Resource[Any], obj: Object) -> Related:
    """A reference to an object as it was read."""
    meta = obj.metadata
    return Related(
        resource.api_version, resource.kind, meta.namespace, meta.name, meta.uid, meta.resource_version
    )


def _warn(reason: str, pool: Pool, note: str) -> Event:
    related = Related(pool.api_version, pool.kind, pool.namespace, pool.name, pool.uid, pool.resource_version)
    return Event("Warning", reason, "Export", related, note)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def _text(error: IsthmusError) -> str:
    return str(error) or type(error).__name__
