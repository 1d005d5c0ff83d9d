"""Pool relays for tests of the planner: the objects that it sees, with names that read like a cluster's.

Every function builds one object with sensible defaults; arguments change what a test is about. `act` plays a
plan's actions on the exports and children that were observed, as the API server would, so that a test can
reconcile twice without one.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from isthmus.api.decode import Unreadable, read_spec
from isthmus.api.meta import ObjectMeta, OwnerReference, Raw
from isthmus.api.poolrelay import (
    PROPERTY_NAME,
    ClusterProperty,
    DynamoPoolRelay,
    ExportLabels,
    ExportMeta,
    ExportSpec,
    PropertySpec,
    RelayChild,
    RelaySpec,
    RelayStatus,
    ServiceExport,
)
from isthmus.poolrelay.plan.model import (
    GRAPH_KIND,
    CreateChild,
    CreateExport,
    DeleteChild,
    DeleteExport,
    Frontend,
    Observed,
    Plan,
    Pool,
    RelaySettings,
    RepairChild,
    RepairExport,
)
from isthmus.poolrelay.plan.reconcile import plan

NAMESPACE = "serving"
RELAY_UID = "relay-uid"
NOW = 1_790_000_000.0
STAMP = "2026-09-21T14:13:20Z"
SPEC: msgspec.json.Decoder[RelaySpec | Unreadable] = msgspec.json.Decoder(RelaySpec)


def settings(implementation: Any = "mcs", **changes: Any) -> RelaySettings:
    """Settings under which everything is on."""
    version = {"export_version": "v1alpha1"} if implementation else {}
    return RelaySettings(
        **({"implementation": implementation, "image": "registry.example/relay:1"} | version | changes)
    )


def relay(
    name: str = "east", *, uid: str = RELAY_UID, namespace: str = NAMESPACE, dying: bool = False, **spec: Any
) -> DynamoPoolRelay:
    """A relay of a cluster `one`; `spec` in the manifest's words."""
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=uid,
        resource_version="7",
        generation=1,
        deletion_timestamp=STAMP if dying else None,
    )
    raw_spec = msgspec.json.encode({"clusterId": "one"} | spec)
    return DynamoPoolRelay(metadata=meta, spec=read_spec(SPEC, raw_spec), status=RelayStatus())


def spec_of(found: DynamoPoolRelay) -> RelaySpec:
    """Its spec, which must be readable."""
    assert isinstance(found.spec, RelaySpec)
    return found.spec


def pool(name: str = "east", *frontends: str, **changes: Any) -> Pool:
    """A graph with workers and these frontends; with one, `Frontend`, where none is named."""
    return graph(
        name, [Frontend(each, f"{name}-{each.lower()}") for each in frontends or ("Frontend",)], **changes
    )


def graph(name: str, frontends: list[Frontend], **changes: Any) -> Pool:
    """A graph with workers and just these frontends."""
    fields: dict[str, Any] = {
        "api_version": "nvidia.com/v1beta1",
        "kind": GRAPH_KIND,
        "namespace": NAMESPACE,
        "name": name,
        "uid": f"{name}-uid",
        "resource_version": "3",
        "generation": 1,
        "frontends": tuple(frontends),
        "namespaces": (f"{NAMESPACE}-{name}",),
    }
    return Pool(**(fields | changes))


def owner(name: str = "east", uid: str = RELAY_UID, **changes: Any) -> OwnerReference:
    """The reference that a relay's objects have."""
    fields: dict[str, Any] = {
        "api_version": "nvidia.com/v1alpha1",
        "kind": "DynamoPoolRelay",
        "name": name,
        "uid": uid,
        "controller": True,
        "block_owner_deletion": True,
    }
    return OwnerReference(**(fields | changes))


def export(
    name: str,
    *owners: OwnerReference,
    label: str = "east",
    uid: str = "",
    version: str = "11",
    dying: bool = False,
    namespace: str = NAMESPACE,
    spec: ExportSpec | None = None,
) -> ServiceExport:
    """An export as it is cached; nobody's unless owners are given."""
    meta = ExportMeta(
        name=name,
        namespace=namespace,
        uid=uid or f"{name}-uid",
        resource_version=version,
        deletion_timestamp=STAMP if dying else None,
        labels=ExportLabels(graph=label),
        owner_references=owners,
    )
    return ServiceExport(metadata=meta, spec=spec or ExportSpec())


def cluster_property(value: str, *, name: str = PROPERTY_NAME, version: str = "5") -> ClusterProperty:
    """What a cluster says of itself."""
    meta = ObjectMeta(name=name, uid="property-uid", resource_version=version)
    return ClusterProperty(metadata=meta, spec=PropertySpec(value=value))


def observed(
    pool_: Pool | None = None, *exports: ServiceExport, of: DynamoPoolRelay | None = None, **changes: Any
) -> Observed:
    """A relay and its pool as they are seen, with these exports in the namespace."""
    found = {each.metadata.name: each for each in exports}
    return replace(Observed(relay=of or relay(), pool=pool_, exports=found), **changes)


def act(seen: Observed, planned: Plan) -> Observed:
    """What is seen once the plan's writes have been accepted."""
    exports, children = dict(seen.exports), dict(seen.children)
    for step in planned.exports:
        match step:
            case CreateExport(name, body):
                exports[name] = _stored_export(body, {"uid": f"{name}-uid", "resourceVersion": "21"})
            case RepairExport(found, body):
                spec = found.spec if "spec" not in body else None
                stored = _stored_export(body, {"resourceVersion": "22"})
                exports[step.name] = stored if spec is None else replace(stored, spec=spec)
            case DeleteExport():
                del exports[step.name]
    for change in planned.children:
        match change:
            case CreateChild(resource, body):
                children[resource.kind] = stored_child(body)
            case RepairChild(resource, _, body):
                children[resource.kind] = stored_child(
                    body | {"metadata": body["metadata"] | {"ownerReferences": [raw_owner()]}}
                )
            case DeleteChild(resource, _):
                del children[resource.kind]
    return replace(seen, exports=exports, children=children)


def stored_child(body: Raw, **status: Any) -> RelayChild:
    """A child as the API server gives it back."""
    raw_metadata = {
        "name": "east-pool-relay",
        "namespace": NAMESPACE,
        "uid": "child-uid",
        "resourceVersion": "31",
    }
    raw_child = body | {"metadata": raw_metadata | body["metadata"]} | ({"status": status} if status else {})
    return msgspec.json.decode(msgspec.json.encode(raw_child), type=RelayChild)


def raw_owner(uid: str = RELAY_UID) -> Raw:
    """A relay's reference as JSON."""
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoPoolRelay",
        "name": "east",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _stored_export(body: Raw, more: Raw) -> ServiceExport:
    raw_export = body | {"metadata": body["metadata"] | more}
    return msgspec.json.decode(msgspec.json.encode(raw_export), type=ServiceExport)


def twice(seen: Observed, under: RelaySettings | None = None) -> tuple[Plan, Observed]:
    """The plan for what is seen, and the world after it, for which a second plan must write nothing."""
    chosen = under or settings()
    planned = plan(seen, chosen)
    after = act(seen, planned)
    again = plan(after, chosen)
    assert (again.exports, again.children) == ((), ())
    return planned, after


def steps(planned: Plan) -> list[str]:
    """Its exports' actions in short, as `Create east-pool-relay`."""
    return [f"{type(step).__name__.removesuffix('Export')} {step.name}" for step in planned.exports]


def told(planned: Plan) -> list[str]:
    """The reasons of its events."""
    return [event.reason for event in planned.events]
