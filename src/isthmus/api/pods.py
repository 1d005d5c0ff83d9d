"""Pods, Services and ControllerRevisions of ModelServings, cut down to what the store and planner read.

A cluster has 20,000 of these pods, so labels are seven typed fields instead of a dictionary, equal texts are
one object, conditions that say nothing are dropped and messages are cut. kube/ decodes into these types; the
store indexes them; they are never written back.
"""

from __future__ import annotations

from sys import intern
from typing import Final

import msgspec

from isthmus.api import labels as keys
from isthmus.api.decode import cut_text, own_raw, settle
from isthmus.api.meta import Frozen, Object, ObjectMeta, Resource, shared_owner


class ServingLabels(Frozen, frozen=True, kw_only=True):
    """The labels of MS-27; empty where absent. Pods of one replica share these texts in memory."""

    name: str = msgspec.field(name=keys.NAME, default="")
    group_name: str = msgspec.field(name=keys.GROUP_NAME, default="")
    role: str = msgspec.field(name=keys.ROLE, default="")
    role_id: str = msgspec.field(name=keys.ROLE_ID, default="")
    revision: str = msgspec.field(name=keys.REVISION, default="")
    role_template_hash: str = msgspec.field(name=keys.ROLE_TEMPLATE_HASH, default="")
    entry: str = msgspec.field(name=keys.ENTRY, default="")

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            settle(self, field, intern(getattr(self, field)))


class ServingAnnotations(Frozen, frozen=True, kw_only=True):
    """The one annotation that scaling down reads; empty where absent."""

    deletion_cost: str = msgspec.field(name=keys.DELETION_COST, default="")


_NO_ANNOTATIONS: Final = ServingAnnotations()


class ServingMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata of an object of ours: the keys that are read, as fields."""

    labels: ServingLabels = ServingLabels()  # type: ignore[assignment]
    annotations: ServingAnnotations = _NO_ANNOTATIONS  # type: ignore[assignment]

    def __post_init__(self) -> None:
        settle(self, "namespace", intern(self.namespace))
        if self.annotations == _NO_ANNOTATIONS:
            settle(self, "annotations", _NO_ANNOTATIONS)
        if self.owner_references:
            settle(self, "owner_references", tuple(shared_owner(owner) for owner in self.owner_references))


class PodSpec(Frozen, frozen=True, kw_only=True):
    """Where the pod runs; empty until it is bound."""

    node_name: str = ""

    def __post_init__(self) -> None:
        settle(self, "node_name", intern(self.node_name))


class PodCondition(Frozen, frozen=True, kw_only=True):
    """status.conditions[] of a pod. The time is RFC 3339 text in UTC."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None

    def __post_init__(self) -> None:
        cut_text(self, "message")


class Terminated(Frozen, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None

    def __post_init__(self) -> None:
        cut_text(self, "message")


class Waiting(Frozen, frozen=True, kw_only=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""

    def __post_init__(self) -> None:
        cut_text(self, "message")


class ContainerState(Frozen, frozen=True, kw_only=True):
    """state or lastState; running is neither waiting nor terminated."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


_RUNNING: Final = ContainerState()


class ContainerStatus(Frozen, frozen=True, kw_only=True):
    """status.containerStatuses[] and status.initContainerStatuses[]."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = _RUNNING
    last_state: ContainerState = _RUNNING

    def __post_init__(self) -> None:
        settle(self, "name", intern(self.name))
        if self.state == _RUNNING:
            settle(self, "state", _RUNNING)
        if self.last_state == _RUNNING:
            settle(self, "last_state", _RUNNING)


class PodStatus(Frozen, frozen=True, kw_only=True):
    """status of a pod: of its conditions Ready, and those that are not True."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        settle(self, "phase", intern(self.phase))
        cut_text(self, "message")
        kept = tuple(c for c in self.conditions if c.type == "Ready" or c.status != "True")
        if len(kept) != len(self.conditions):
            settle(self, "conditions", kept)


class ServingPod(Object, frozen=True, kw_only=True):
    """A pod with the label modelserving.volcano.sh/group-name."""

    metadata: ServingMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def entry(self) -> bool:
        """Whether this is the entry pod of its role replica."""
        return self.metadata.labels.entry == "true"

    @property
    def ready_condition(self) -> PodCondition | None:
        """The Ready condition, if the kubelet has set one."""
        for condition in self.status.conditions:
            if condition.type == "Ready":
                return condition
        return None

    @property
    def ready(self) -> bool:
        """Whether the Ready condition is True. A terminating pod may still say so."""
        condition = self.ready_condition
        return condition is not None and condition.status == "True"

    @property
    def restarts(self) -> int:
        """Container restarts so far, init containers included."""
        status = self.status
        return sum(c.restart_count for c in status.container_statuses) + sum(
            c.restart_count for c in status.init_container_statuses
        )

    @property
    def deletion_cost(self) -> int:
        """The pod's deletion cost; 0 where the annotation is absent or no 32-bit integer."""
        text = self.metadata.annotations.deletion_cost
        if not text:
            return 0
        try:
            cost = int(text)
        except ValueError:
            return 0
        return cost if -(2**31) <= cost < 2**31 else 0


class ServiceSpec(Frozen, frozen=True, kw_only=True):
    """What of a Service is compared with what it should be."""

    selector: dict[str, str] = {}


class ServingService(Object, frozen=True, kw_only=True):
    """A headless Service of a role replica (MS-32)."""

    metadata: ServingMeta
    spec: ServiceSpec = ServiceSpec()


class ControllerRevision(Object, frozen=True, kw_only=True):
    """A stored revision (MS-77). `data` is the JSON as stored: `{"data": [role, ...]}` or a bare list."""

    metadata: ServingMeta
    revision: int = 0
    data: msgspec.Raw = msgspec.Raw(b"null")

    def __post_init__(self) -> None:
        own_raw(self, "data")


SERVING_PODS: Final = Resource(group="", version="v1", plural="pods", kind="Pod", type=ServingPod)
SERVING_SERVICES: Final = Resource(
    group="", version="v1", plural="services", kind="Service", type=ServingService
)
CONTROLLER_REVISIONS: Final = Resource(
    group="apps",
    version="v1",
    plural="controllerrevisions",
    kind="ControllerRevision",
    type=ControllerRevision,
)
