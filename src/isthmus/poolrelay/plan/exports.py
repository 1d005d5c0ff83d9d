"""Which exports a published relay wants, which of them can be, and what to do about each name.

`wanted` names them (PR-37 to PR-39), `decide` compares one name with what is cached (PR-49 to PR-70), and
`creation`, `repair` are the bodies that are sent. Ownership is the controller's UID and nothing else (PR-59):
a label, a name or an owner that is no controller proves nothing, and what is not ours is left as it is.
"""

from __future__ import annotations

from typing import Final, Literal

from isthmus.api.dynamo.names import GRAPH_LABEL
from isthmus.api.karmada import NAME_LIMIT
from isthmus.api.meta import Raw
from isthmus.api.names import is_dns_label
from isthmus.api.poolrelay import (
    DynamoPoolRelay,
    ServiceExport,
    pool_relay_name,
    service_exports,
)
from isthmus.poolrelay.plan.model import (
    RELAY,
    CreateExport,
    DeleteExport,
    ExportAction,
    Observed,
    Pool,
    RelaySettings,
    RepairExport,
    Wanted,
)
from isthmus.poolrelay.plan.ownership import is_ours, owner_of, raw_owner

INVALID_NAME: Final = "InvalidServiceName"
NAME_TOO_LONG: Final = "ServiceNameTooLong"

Left = Literal["terminating", "foreign", "right", "futile", "impossible"]
"""Why a wanted name needs nothing done."""


def name_problem(name: str, implementation: str) -> str:
    """The reason why no export can have this name, or nothing. Validity is asked first (PR-53)."""
    if not is_dns_label(name):
        return INVALID_NAME
    if implementation == "karmada" and len(name) > NAME_LIMIT:
        return NAME_TOO_LONG
    return ""


def wanted(relay: str, pool: Pool, implementation: str) -> dict[str, Wanted]:
    """The exports of a published relay by name, those included whose names cannot be; one for components
    that come to one name (PR-37, PR-43, PR-96)."""
    found: dict[str, tuple[str, ...]] = {pool_relay_name(relay): (RELAY,)}
    for frontend in pool.frontends:
        found[frontend.service] = (*found.get(frontend.service, ()), frontend.component)
    return {name: Wanted(name, of, name_problem(name, implementation)) for name, of in found.items()}


def decide(
    want: Wanted, export: ServiceExport | None, observed: Observed, pool: Pool, settings: RelaySettings
) -> ExportAction | Left:
    """What to do about one wanted name: the table of section 17."""
    if export is None:
        if want.problem:
            return "impossible"
        return CreateExport(want.name, creation(want.name, observed.relay, pool, settings))
    if export.metadata.terminating:
        return "terminating"
    if not is_ours(export, observed.uid):
        return "foreign"
    if want.problem:
        return DeleteExport(export)
    if is_right(export, observed.relay, pool, settings):
        return "right"
    if (export.metadata.uid, export.metadata.resource_version) in observed.futile:
        return "futile"
    return RepairExport(export, repair(export, observed.relay, pool, settings))


def withdrawals(observed: Observed, keep: frozenset[str] = frozenset()) -> tuple[DeleteExport, ...]:
    """The deletion of every export of ours that is not to be kept, found by owner and not by label (PR-69,
    PR-70)."""
    return tuple(
        DeleteExport(export)
        for name, export in observed.exports.items()
        if name not in keep and not export.metadata.terminating and is_ours(export, observed.uid)
    )


def is_right(export: ServiceExport, relay: DynamoPoolRelay, pool: Pool, settings: RelaySettings) -> bool:
    """Whether an export of ours has the label, the reference and the spec that it should (PR-62). More of
    each is not our business (PR-65)."""
    if export.metadata.labels.graph != pool.name:
        return False
    if export.metadata.controller() != owner_of(relay):
        return False
    spec = export.spec
    if not settings.exported_labels.items() <= spec.exported_labels.items():
        return False
    return settings.exported_annotations.items() <= spec.exported_annotations.items()


def creation(name: str, relay: DynamoPoolRelay, pool: Pool, settings: RelaySettings) -> Raw:
    """A new export (PR-40 to PR-42), with a spec only where the configuration gives one."""
    raw_spec: Raw = {}
    if settings.exported_labels:
        raw_spec["exportedLabels"] = dict(settings.exported_labels)
    if settings.exported_annotations:
        raw_spec["exportedAnnotations"] = dict(settings.exported_annotations)
    resource = service_exports(settings.export_version)
    raw_export: Raw = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": relay.metadata.namespace,
            "labels": {GRAPH_LABEL: pool.name},
            "ownerReferences": [raw_owner(relay)],
        },
    }
    return raw_export | ({"spec": raw_spec} if raw_spec else {})


def repair(export: ServiceExport, relay: DynamoPoolRelay, pool: Pool, settings: RelaySettings) -> Raw:
    """What is applied to an export of ours: what a new one would have, and the UID and resourceVersion on
    which its ownership was read. Nothing of the live object is in it (PR-63, PR-64)."""
    raw_export = creation(export.metadata.name, relay, pool, settings)
    raw_export["metadata"] |= {
        "uid": export.metadata.uid,
        "resourceVersion": export.metadata.resource_version,
    }
    return raw_export
