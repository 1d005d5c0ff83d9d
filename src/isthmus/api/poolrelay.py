"""DynamoPoolRelay, and what of other kinds its controller reads: exports, the cluster's ID, its own children.

kube/ decodes into these types; poolrelay/ plans on them; they are never written back. As with ModelServings,
decoding never raises because of one object's spec, whatever another CRD let into etcd: a spec that does not
fit is an `Unreadable`. Objects that there are thousands of (exports, children) keep only what is compared:
one label, one annotation, the owners. Kinds of the Multi-Cluster Services API and of the About API come in
versions, best first where there is a choice; who asks the API server chooses (PR-9, PR-111, PR-113).
"""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Final

import msgspec

from isthmus.api.decode import OptionalRaw, Unreadable, own_raw, settle, settle_parts
from isthmus.api.dynamo.names import GRAPH_LABEL
from isthmus.api.meta import Frozen, Object, ObjectMeta, Resource, shared_owner
from isthmus.api.modelserving import Condition

RELAY_SUFFIX: Final = "-pool-relay"
RELAY_LABEL: Final = "nvidia.com/dynamo-pool-relay"
"""On every child of a relay and on its pods: the relay's name. The relay's Service selects by it alone
(PR-21)."""
HASH_ANNOTATION: Final = "isthmus.dev/rendered-hash"
"""On every child: a hash of what was rendered, so that a change of what is wanted is noticed."""
PROPERTY_NAME: Final = "cluster.clusterset.k8s.io"
"""The one ClusterProperty that is read: the cluster's ID in its cluster set."""
MAX_CLUSTER_ID: Final = 253
GRPC_PORT: Final = 5561
SYSTEM_PORT: Final = 8081


def pool_relay_name(relay: str) -> str:
    """Name of the Service, Deployment, ServiceAccount, Role and RoleBinding of a relay, and of the export of
    that Service (PR-19, PR-114)."""
    return f"{relay}{RELAY_SUFFIX}"


class TargetRef(Frozen, frozen=True, kw_only=True):
    """spec.targetRef: the pool, where it is not the graph of the relay's name."""

    api_version: str = ""
    kind: str = ""
    name: str = ""

    @property
    def group(self) -> str:
        """The API group: apiVersion without its version; empty where there is none."""
        return self.api_version.rpartition("/")[0]


class PullSecret(Frozen, frozen=True, kw_only=True):
    """spec.imagePullSecrets[]."""

    name: str = ""


class RelaySpec(Frozen, frozen=True, kw_only=True):
    """spec. `resources` and `env` are the JSON of a container's fields of that name."""

    cluster_id: str = ""
    cluster_id_from: str = ""
    target_ref: TargetRef | None = None
    image: str = ""
    image_pull_secrets: tuple[PullSecret, ...] = ()
    resources: OptionalRaw = None
    replicas: int = 1
    grpc_port: int = GRPC_PORT
    system_port: int = SYSTEM_PORT
    env: OptionalRaw = None

    def __post_init__(self) -> None:
        own_raw(self, "resources", "env")


class ObservedTarget(Frozen, frozen=True, kw_only=True):
    """status.observedTarget: the pool that the status is about, as it was read."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    generation: int = 0


class RelayStatus(Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """status. Empty fields are absent on the wire."""

    observed_generation: int = 0
    cluster_id: str = ""
    service_name: str = ""
    observed_target: ObservedTarget | None = None
    conditions: tuple[Condition, ...] = ()


_decode_spec: Final = msgspec.json.Decoder(RelaySpec)
_decode_status: Final = msgspec.json.Decoder(RelayStatus)


class DynamoPoolRelay(Object, frozen=True, kw_only=True):
    """A relay: it marks the pool of its name for import in other clusters."""

    if TYPE_CHECKING:
        spec: RelaySpec | Unreadable
        status: RelayStatus = RelayStatus()
    else:
        # Bytes of any shape; see settle_parts.
        spec: msgspec.Raw = msgspec.Raw(b"{}")
        status: msgspec.Raw = RelayStatus()

    def __post_init__(self) -> None:
        settle_parts(self, _decode_spec, _decode_status, RelayStatus())


# The Multi-Cluster Services API


class ExportLabels(Frozen, frozen=True, kw_only=True):
    """The one label of an export that is compared: the pool's name (PR-41); empty where absent."""

    graph: str = msgspec.field(name=GRAPH_LABEL, default="")


class NoAnnotations(Frozen, frozen=True, kw_only=True):
    """Annotations of which none is read."""


_NO_ANNOTATIONS: Final = NoAnnotations()


class OwnedMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata of what a relay owns. The dozen objects of one relay share the texts that name it."""

    def __post_init__(self) -> None:
        settle(self, "namespace", intern(self.namespace))
        if self.owner_references:
            settle(self, "owner_references", tuple(shared_owner(owner) for owner in self.owner_references))


class ExportMeta(OwnedMeta, frozen=True, kw_only=True):
    """Metadata of an export, cut down to what is compared."""

    labels: ExportLabels = ExportLabels()  # type: ignore[assignment]
    annotations: NoAnnotations = _NO_ANNOTATIONS  # type: ignore[assignment]


class ExportSpec(Frozen, frozen=True, kw_only=True):
    """spec of an export: what its imports carry in other clusters."""

    exported_labels: dict[str, str] = {}
    exported_annotations: dict[str, str] = {}


_NO_SPEC: Final = ExportSpec()


class ServiceExport(Object, frozen=True, kw_only=True):
    """An export of the Service of the same name. Its status is never read (PR-48)."""

    metadata: ExportMeta
    spec: ExportSpec = _NO_SPEC


EXPORT_VERSIONS: Final = ("v1alpha1", "v1beta1")
"""Versions of exports that can be written, the preferred one first (PR-113)."""


def service_exports(version: str) -> Resource[ServiceExport]:
    """The resource of exports in one version: the only place that makes it (PR-9)."""
    return Resource(
        group="multicluster.x-k8s.io",
        version=version,
        plural="serviceexports",
        kind="ServiceExport",
        type=ServiceExport,
    )


# The About API


class PropertySpec(Frozen, frozen=True, kw_only=True):
    """spec of a ClusterProperty; an empty value is none."""

    value: str = ""


_decode_property: Final = msgspec.json.Decoder(PropertySpec)


class ClusterProperty(Object, frozen=True, kw_only=True):
    """What a cluster says about itself. A value that is absent or no text is an empty one (PR-86).
    `api_version` says in which version it was read."""

    api_version: str = ""
    if TYPE_CHECKING:
        spec: PropertySpec = PropertySpec()
    else:
        spec: msgspec.Raw = PropertySpec()

    def __post_init__(self) -> None:
        spec: object = self.spec
        if isinstance(spec, msgspec.Raw):
            try:
                settle(self, "spec", _decode_property.decode(spec))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                settle(self, "spec", PropertySpec())


CLUSTER_PROPERTIES: Final = tuple(
    Resource(
        group="about.k8s.io",
        version=version,
        plural="clusterproperties",
        kind="ClusterProperty",
        type=ClusterProperty,
        namespaced=False,
    )
    for version in ("v1beta1", "v1alpha1")
)
"""The kind in the versions that can be read, the best one first (PR-111)."""


# What a relay is made of


class ChildLabels(Frozen, frozen=True, kw_only=True):
    """The one label of a child that is read."""

    relay: str = msgspec.field(name=RELAY_LABEL, default="")


class ChildAnnotations(Frozen, frozen=True, kw_only=True):
    """The one annotation of a child that is read."""

    hash: str = msgspec.field(name=HASH_ANNOTATION, default="")


class ChildMeta(OwnedMeta, frozen=True, kw_only=True):
    """Metadata of a child, cut down to what is compared."""

    labels: ChildLabels = ChildLabels()  # type: ignore[assignment]
    annotations: ChildAnnotations = ChildAnnotations()  # type: ignore[assignment]


class ChildStatus(Frozen, frozen=True, kw_only=True):
    """status, as far as a Deployment has it."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0


_NO_STATUS: Final = ChildStatus()


class RelayChild(Object, frozen=True, kw_only=True):
    """Any object that a relay is made of, with the parts that can drift, as the API server gave them."""

    metadata: ChildMeta
    spec: OptionalRaw = None
    rules: OptionalRaw = None
    subjects: OptionalRaw = None
    status: ChildStatus = _NO_STATUS

    def __post_init__(self) -> None:
        own_raw(self, "spec", "rules", "subjects")


def _child(group: str, version: str, plural: str, kind: str) -> Resource[RelayChild]:
    return Resource(group=group, version=version, plural=plural, kind=kind, type=RelayChild)


_RBAC: Final = "rbac.authorization.k8s.io"
RELAY_SERVICE_ACCOUNTS: Final = _child("", "v1", "serviceaccounts", "ServiceAccount")
RELAY_ROLES: Final = _child(_RBAC, "v1", "roles", "Role")
RELAY_ROLE_BINDINGS: Final = _child(_RBAC, "v1", "rolebindings", "RoleBinding")
RELAY_SERVICES: Final = _child("", "v1", "services", "Service")
RELAY_DEPLOYMENTS: Final = _child("apps", "v1", "deployments", "Deployment")
RELAY_CHILDREN: Final = (
    RELAY_SERVICE_ACCOUNTS,
    RELAY_ROLES,
    RELAY_ROLE_BINDINGS,
    RELAY_SERVICES,
    RELAY_DEPLOYMENTS,
)
"""The kinds of children, in the order in which they are made."""

POOL_RELAYS: Final = Resource(
    group="nvidia.com",
    version="v1alpha1",
    plural="dynamopoolrelays",
    kind="DynamoPoolRelay",
    type=DynamoPoolRelay,
)


class Target(Object, frozen=True, kw_only=True):
    """A pool of which nothing but its metadata matters: a ModelServing that a relay names."""


SERVING_TARGETS: Final = Resource(
    group="workload.serving.volcano.sh",
    version="v1alpha1",
    plural="modelservings",
    kind="ModelServing",
    type=Target,
)
