"""The words of the planner: what is wanted, what is there, and what can be done about it.

`Desired` comes from one ModelServing and its revisions (desired.py), `Group` and `Instance` from its pods
(observe.py), and `Plan` goes to the executor (modelserving/controller.py). An instance is one replica of a
role in one ServingGroup: an entry pod and its workers, with the ID `<role>-<ordinal>`. Everything here is
frozen and holds no cycle, so that the garbage collector need not know it (`gc=False`); nothing here decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from isthmus.api.modelserving import Condition, Recovery, Spec, Status
from isthmus.api.podgroups import PodGroup, PodGroupSpec
from isthmus.api.pods import ServingPod, ServingService


class RoleTemplate(msgspec.Struct, frozen=True, gc=False):
    """A role of one revision. `hash` names its template (MS-33); `meaning` recognises it under another hash
    (MS-440).

    `raw` is the role as decoded JSON, which is what a ControllerRevision stores. `workers` is 0 where there
    is no worker template, whatever workerReplicas says (MS-36).
    """

    name: str
    replicas: int
    workers: int
    raw: dict[str, Any]
    hash: str
    meaning: bytes
    max_unavailable: int | str | None = None
    partition: int | str | None = None
    foreign: bool = False
    """Whether its revision was named by another controller, which writes the same templates differently."""

    @property
    def size(self) -> int:
        """Pods of one instance."""
        return 1 + self.workers

    @property
    def has_service(self) -> bool:
        """Whether each instance gets a headless Service: iff there is a worker template (MS-32)."""
        return self.raw.get("workerTemplate") is not None

    def pod_template(self, index: int) -> dict[str, Any]:
        """The template of the entry pod (index 0) or of a worker: `{"metadata": ..., "spec": ...}`."""
        return self.raw.get("entryTemplate" if index == 0 else "workerTemplate") or {}


class Revision(msgspec.Struct, frozen=True, gc=False):
    """One version of all role templates. `number` orders them; it is 0 for one that is not stored yet."""

    name: str
    number: int
    roles: dict[str, RoleTemplate]


class RoleTarget(msgspec.Struct, frozen=True, gc=False):
    """What one role of one group should be: `count` instances from `template`, labelled `revision`."""

    template: RoleTemplate
    revision: str
    count: int

    def has_service_of(self, ordinal: int) -> bool:
        """Whether the instance with this ordinal is one of it, and has a headless Service."""
        return self.template.has_service and 0 <= ordinal < self.count


class Offer(msgspec.Struct, frozen=True, gc=False):
    """What the cluster has for gang scheduling. `served`: whether it has the PodGroup API; None while that,
    or which PodGroups there are, is not known. `fields` of a PodGroup's spec that it keeps, of those that are
    ever written, as dotted paths, each with the default that it fills in or None."""

    served: bool | None = False
    fields: Mapping[str, Any] = {}


NO_OFFER = Offer()


class Desired(msgspec.Struct, frozen=True, gc=False):
    """What one ModelServing asks for, resolved: see desired.py. `stored` are its revisions by name, present
    one included once it is stored; `group_partition` is 0 unless groups roll as a whole."""

    uid: str
    namespace: str
    name: str
    generation: int
    spec: Spec
    status: Status
    revision: Revision
    stored: dict[str, Revision]
    group_partition: int
    by_role: bool
    """Whether roles roll by themselves (RoleRollingUpdate)."""
    offer: Offer = NO_OFFER
    queue: str = ""
    """Volcano's queue, from an annotation (MS-94)."""
    leader_worker_set: str = ""
    """The LeaderWorkerSet that owns the ModelServing, if one does."""

    def revision_named(self, name: str) -> Revision | None:
        """The templates of a revision, or None where its history is lost."""
        return self.revision if name == self.revision.name else self.stored.get(name)


class State(StrEnum):
    """Of an instance: Creating, Running, Deleting. Of a group also Scaling (MS-38)."""

    CREATING = "Creating"
    RUNNING = "Running"
    SCALING = "Scaling"
    DELETING = "Deleting"


class Failure(msgspec.Struct, frozen=True, gc=False):
    """Evidence that a pod cannot serve and will not by itself: when (seconds since the epoch, None where the
    kubelet does not say) and why, for people. `container` is "" where it is about the whole pod."""

    pod: str
    uid: str
    at: float | None
    reason: str
    message: str = ""
    container: str = ""
    looping: bool = False
    """Whether the container ended more than once, so that its restarts wait."""


class Obstacle(msgspec.Struct, frozen=True, gc=False):
    """Why a name cannot be used now; `lasting` where only a person can mend it."""

    why: str
    lasting: bool = False


class Instance(msgspec.Struct, frozen=True, gc=False):
    """One replica of a role, as its pods tell it. `live` are owned pods that are not terminating, by index;
    `dying` those that are. `revision` and `hash` are what its pods' labels say; `hash` is "" where unknown
    (MS-46). `template` is the one it was made from, or None where that is lost. `broken` says why what is
    left of it must go although nobody asked for that, or is ""."""

    role: str
    ordinal: int
    id: str
    revision: str
    hash: str
    template: RoleTemplate | None
    state: State
    live: dict[int, ServingPod]
    dying: tuple[ServingPod, ...] = ()
    broken: str = ""
    cost: int = 0


class Group(msgspec.Struct, frozen=True, gc=False):
    """One ServingGroup. `revision` is the oldest among its instances unless all match the present templates
    (MS-408); it is "" while there are none. `serving`: it has a running instance of each role, so that it is
    of use although it may not be complete. `broken` as in Instance. `instances` are by role, then ordinal."""

    name: str
    ordinal: int
    revision: str
    state: State
    instances: dict[str, dict[int, Instance]]
    services: dict[str, ServingService]
    serving: bool = False
    broken: str = ""
    cost: int = 0
    taken: dict[str, Obstacle] = {}
    """Pod, Service (`<name>/service`) and PodGroup (`<name>/podgroup`) names that cannot be used now: still
    terminating, or someone else's."""
    orphans: tuple[ServingPod | ServingService | PodGroup, ...] = ()
    """Objects with our labels and the right name that no controller owns (MS-416)."""
    failures: tuple[Failure, ...] = ()
    recheck_at: float | None = None
    """When the grace of a failing pod ends; None where none is failing."""
    recovery: Recovery | None = None
    """Its last recovery from a failure, one that is due now included."""
    pod_group: PodGroup | None = None
    """Its PodGroup, which by itself makes no group exist: it is there for the pods."""

    @property
    def exists(self) -> bool:
        """Whether anything of it is there, dying pods included; a group that only others' names stand for is
        not."""
        return bool(self.instances or self.services)

    def each(self) -> list[Instance]:
        """All instances, in no order that means anything."""
        return [instance for by_ordinal in self.instances.values() for instance in by_ordinal.values()]


class Facts(msgspec.Struct, frozen=True, gc=False):
    """The objects that carry one ServingGroup's labels, by name, whoever owns them. The store replaces this
    object when one of them changes, so that identity tells whether anything did."""

    pods: dict[str, ServingPod] = {}
    services: dict[str, ServingService] = {}
    pod_groups: dict[str, PodGroup] = {}


class Memory(msgspec.Struct, frozen=True, gc=False):
    """What this process knows of one ServingGroup that the cluster does not say, and that a restart may
    forget.

    `intended`: UIDs of pods whose deletion was asked for here, so that their end is no failure (MS-88);
    `condemned`: those of them that were deleted with their whole group. `lost`: instance ID -> UIDs of the
    instance's pods that were left when one of them vanished without notice (a forced deletion); `bereaved`:
    role -> the same for the whole group. Only those UIDs are ever acted on, so a replacement is safe (R16,
    MS-414). `failing`: UID -> when a failing pod was first seen so, from which its grace period runs.
    `calm`: UID -> its restarts when it was last ready, so that old restarts are no new failure (MS-418).
    """

    intended: frozenset[str] = frozenset()
    condemned: frozenset[str] = frozenset()
    lost: dict[str, frozenset[str]] = {}
    bereaved: dict[str, frozenset[str]] = {}
    failing: dict[str, float] = {}
    calm: dict[str, int] = {}


NOTHING_REMEMBERED = Memory()


class PersistRevision(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Store a revision before anything is made from it (MS-406)."""

    revision: Revision


class DropRevision(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Forget a revision that nothing uses (MS-78)."""

    name: str
    uid: str
    resource_version: str


class CreateService(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Make the headless Service of an instance, before its pods (MS-442)."""

    group: str
    role: str
    instance: int


class RepairService(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Put a Service's selector back (R13)."""

    group: str
    role: str
    instance: int
    service: ServingService


class DeleteService(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Remove a Service that no instance needs."""

    service: ServingService
    why: str


class CreatePodGroup(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Make the PodGroup of a group, before its pods (MS-96)."""

    group: str
    spec: PodGroupSpec


class RepairPodGroup(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Make a PodGroup say what the present spec asks for (MS-96)."""

    pod_group: PodGroup
    spec: PodGroupSpec


class DeletePodGroup(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Remove a PodGroup whose pods go, or are not gang scheduled any more."""

    pod_group: PodGroup
    why: str


class CreatePod(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Make one pod from the template of `revision`; index 0 is the entry. `ganged`: it belongs to the
    PodGroup of its group (MS-30)."""

    group: str
    template: RoleTemplate
    revision: str
    instance: int
    index: int
    ganged: bool = False


class DeletePod(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Remove one pod, as it was when this was decided; `with_group` where its whole group goes."""

    pod: ServingPod
    why: str
    with_group: bool = False


class Adopt(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Become the controller of an object that has our labels and name and no controller (MS-416)."""

    kind: str
    name: str
    uid: str
    resource_version: str


Action = (
    PersistRevision
    | DropRevision
    | CreateService
    | RepairService
    | DeleteService
    | CreatePodGroup
    | RepairPodGroup
    | DeletePodGroup
    | CreatePod
    | DeletePod
    | Adopt
)


class Done(msgspec.Struct, frozen=True, tag=True, gc=False):
    """All is as wanted."""


class Blocked(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Nothing to do now, yet not as wanted. `reasons` are for people; a change or `Plan.recheck_at` wakes the
    key."""

    reasons: tuple[str, ...]


class Act(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Things to do, in groups that the executor may carry out at once: revisions, then adoptions and
    Services, then pods."""

    actions: tuple[Action, ...]
    reasons: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What planning one ModelServing gave. `states` are (group, instance ID) to the state that it has once
    the actions are under way; the controller tells people of the changes between two plans (MS-106).
    `problems` need a person: (reason, message)."""

    decision: Done | Blocked | Act
    status: Status
    states: dict[tuple[str, str], State]
    recheck_at: float | None = None
    problems: tuple[tuple[str, str], ...] = ()


__all__ = [
    "NOTHING_REMEMBERED",
    "NO_OFFER",
    "Act",
    "Action",
    "Adopt",
    "Blocked",
    "Condition",
    "CreatePod",
    "CreatePodGroup",
    "CreateService",
    "DeletePod",
    "DeletePodGroup",
    "DeleteService",
    "Desired",
    "Done",
    "DropRevision",
    "Facts",
    "Failure",
    "Group",
    "Instance",
    "Memory",
    "Obstacle",
    "Offer",
    "PersistRevision",
    "Plan",
    "RepairPodGroup",
    "RepairService",
    "Revision",
    "RoleTarget",
    "RoleTemplate",
    "State",
]
