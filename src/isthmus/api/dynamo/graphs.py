"""DynamoGraphDeployment in v1beta1 and v1alpha1, cut down to what its controller reads.

kube/ decodes into these; they are never written back. Both forms are fields of one spec, whatever version it
comes in: `components`, a list, and `services`, a map, since the API server converts nothing (GD-6). Pod
templates and their like are kept as JSON. A spec that does not fit, whatever another CRD let into etcd, is an
`Unreadable`, and harms no other object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from isthmus.api.decode import OptionalRaw, Unreadable, own_raw, settle_parts
from isthmus.api.dynamo.analysis import GraphMeta
from isthmus.api.meta import Frozen, Object, Resource
from isthmus.api.modelserving import Condition

Quantity = str | int | float


class CompilationCache(Frozen, frozen=True, kw_only=True):
    """A claim that is mounted for compiled kernels."""

    pvc_name: str = ""
    mount_path: str = ""


class Component(Frozen, frozen=True, kw_only=True):
    """spec.components[] of v1beta1."""

    name: str = ""
    type: str = ""
    replicas: int = 1
    pod_template: OptionalRaw = None
    global_dynamo_namespace: bool = False
    shared_memory_size: Quantity | None = None
    compilation_cache: CompilationCache | None = None
    frontend_sidecar: str = ""
    multinode: OptionalRaw = None
    model_ref: OptionalRaw = None
    epp_config: OptionalRaw = None
    scaling_adapter: OptionalRaw = None

    def __post_init__(self) -> None:
        own_raw(self, "pod_template", "multinode", "model_ref", "epp_config", "scaling_adapter")


class SharedMemory(Frozen, frozen=True, kw_only=True):
    """sharedMemory of v1alpha1."""

    disabled: bool = False
    size: Quantity | None = None


class Resources(Frozen, frozen=True, kw_only=True):
    """One side of resources of v1alpha1: `gpu_type` is the name of the resource that `gpu` counts."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    gpu: Quantity | None = None
    gpu_type: str = ""
    custom: dict[str, Quantity] = {}


class BothResources(Frozen, frozen=True, kw_only=True):
    """resources of v1alpha1."""

    requests: Resources | None = None
    limits: Resources | None = None
    claims: OptionalRaw = None

    def __post_init__(self) -> None:
        own_raw(self, "claims")


class VolumeMount(Frozen, frozen=True, kw_only=True):
    """volumeMounts[] of v1alpha1: `name` is a claim's."""

    name: str = ""
    mount_point: str = ""
    use_as_compilation_cache: bool = False


class PodMetadata(Frozen, frozen=True, kw_only=True):
    """extraPodMetadata of v1alpha1."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ScalingAdapter(Frozen, frozen=True, kw_only=True):
    """scalingAdapter of v1alpha1."""

    enabled: bool = False


class Service(Frozen, frozen=True, kw_only=True):
    """spec.services{} of v1alpha1; the key is the component's name (GD-4)."""

    component_type: str = ""
    sub_component_type: str = ""
    dynamo_namespace: str = ""
    global_dynamo_namespace: bool = False
    replicas: int = 1
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    envs: OptionalRaw = None
    env_from_secret: str = ""
    resources: BothResources | None = None
    volume_mounts: tuple[VolumeMount, ...] = ()
    shared_memory: SharedMemory | None = None
    extra_pod_metadata: PodMetadata = PodMetadata()
    extra_pod_spec: OptionalRaw = None
    liveness_probe: OptionalRaw = None
    readiness_probe: OptionalRaw = None
    multinode: OptionalRaw = None
    model_ref: OptionalRaw = None
    epp_config: OptionalRaw = None
    ingress: OptionalRaw = None
    scaling_adapter: ScalingAdapter = ScalingAdapter()

    def __post_init__(self) -> None:
        own_raw(self, "envs", "extra_pod_spec", "liveness_probe", "readiness_probe")
        own_raw(self, "multinode", "model_ref", "epp_config", "ingress")


class Claim(Frozen, frozen=True, kw_only=True):
    """spec.pvcs[] of v1alpha1."""

    name: str = ""
    create: bool = False


class GraphSpec(Frozen, frozen=True, kw_only=True):
    """spec, in either form."""

    components: tuple[Component, ...] = ()
    services: dict[str, Service] = {}
    env: OptionalRaw = None
    envs: OptionalRaw = None
    pvcs: tuple[Claim, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    priority_class_name: str = ""
    restart: OptionalRaw = None

    def __post_init__(self) -> None:
        own_raw(self, "env", "envs", "restart")


class ComponentStatus(Frozen, frozen=True, kw_only=True):
    """status.components{} (GD-42)."""

    component_kind: str = "Deployment"
    component_names: tuple[str, ...] = ()
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0


class GraphStatus(Frozen, frozen=True, kw_only=True, omit_defaults=True):
    """status. `services` is what v1alpha1 calls `components`; empty fields are absent on the wire."""

    observed_generation: int = 0
    state: str = ""
    conditions: tuple[Condition, ...] = ()
    components: dict[str, ComponentStatus] = {}
    services: dict[str, ComponentStatus] = {}


_decode_spec: Final = msgspec.json.Decoder(GraphSpec)
_decode_status: Final = msgspec.json.Decoder(GraphStatus)


class DynamoGraphDeployment(Object, frozen=True, kw_only=True):
    """A graph. `api_version` says in which version it was read."""

    api_version: str = ""
    metadata: GraphMeta
    if TYPE_CHECKING:
        spec: GraphSpec | Unreadable = GraphSpec()
        status: GraphStatus = GraphStatus()
    else:
        # Bytes of any shape; see settle_parts.
        spec: msgspec.Raw = GraphSpec()
        status: msgspec.Raw = GraphStatus()

    def __post_init__(self) -> None:
        settle_parts(self, _decode_spec, _decode_status, GraphStatus())


GRAPHS: Final[tuple[Resource[Any], ...]] = tuple(
    Resource(
        group="nvidia.com",
        version=version,
        plural="dynamographdeployments",
        kind="DynamoGraphDeployment",
        type=DynamoGraphDeployment,
    )
    for version in ("v1beta1", "v1alpha1")
)
"""Graphs in the versions that can be read, the stored one first."""
