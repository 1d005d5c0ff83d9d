"""A plan while it is being made: what the steps of planning add to, and the bound on how much one pass may
do.

Made by reconcile.py, filled by groups.py and roles.py, read by status.py. Mutable, and gone when the plan is
returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from isthmus.api.modelserving import Recovery
from isthmus.api.names import ordinal, role_id
from isthmus.api.podgroups import PodGroup, PodGroupSpec
from isthmus.api.pods import ServingPod, ServingService
from isthmus.modelserving.plan.model import (
    Action,
    CreatePod,
    CreatePodGroup,
    CreateService,
    DeletePod,
    DeletePodGroup,
    DeleteService,
    Group,
    Instance,
    RoleTarget,
    RoleTemplate,
    State,
)

MAX_PODS_PER_PASS = 1000
"""Pods that one pass may create: a spec may ask for 2**31-1 groups (MS-52). The next pass goes on from what
is there."""
MAX_REASONS = 100
"""Reasons that one pass gives; nobody reads more."""

_NOTHING: Mapping[str, RoleTarget] = MappingProxyType({})


class Draft:
    """The actions of one pass and what they change. `states` are what instances become once the actions are
    under way; `created` are the ordinals of groups begun in this pass with their revision, `hollow` how many
    groups of a revision there are that need no pod, since every role has 0 replicas (MS-299); `deleting`
    names of groups on their way out, `disturbed` names of groups that lose or still miss something, and so
    are not available whatever their pods say. `pod_group` is what each PodGroup should say, None where there
    should be none or nothing can be done about them; `ganged` are names of groups whose pods belong to
    theirs, `held` of those of which nothing may be made now. `recoveries` are what the
    status keeps of them."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.reasons: dict[str, None] = {}
        self.problems: dict[tuple[str, str], None] = {}
        self.states: dict[tuple[str, str], State] = {}
        self.created: dict[int, str] = {}
        self.hollow: dict[str, int] = {}
        self.deleting: set[str] = set()
        self.disturbed: set[str] = set()
        self.may_create = True
        self.pod_group: PodGroupSpec | None = None
        self.ganged: set[str] = set()
        self.held: set[str] = set()
        self.recoveries: tuple[Recovery, ...] = ()
        self.pod_groups = 0
        self._pods = 0

    @property
    def pods(self) -> int:
        """How many pods this pass creates so far."""
        return self._pods

    @property
    def full(self) -> bool:
        """Whether this pass may create no more pods."""
        return self._pods >= MAX_PODS_PER_PASS

    def may_create_in(self, group: str) -> bool:
        """Whether this pass may make anything of this group."""
        return self.may_create and group not in self.held

    def because(self, reason: str) -> None:
        """Note why something is done or waited for; a repeated reason is noted once."""
        if len(self.reasons) < MAX_REASONS:
            self.reasons[reason] = None

    def problem(self, reason: str, message: str) -> None:
        """Note something that a person must mend."""
        self.problems[reason, message] = None

    def delete_instance(self, group: Group, instance: Instance, why: str) -> None:
        """Remove the live pods of an instance; its Service goes since no instance claims it any more."""
        for index in sorted(instance.live):
            self.actions.append(DeletePod(instance.live[index], why))
        self.states[group.name, instance.id] = State.DELETING
        self.disturbed.add(group.name)
        if instance.live:
            self.because(f"delete {group.name}/{instance.id}: {why}")

    def delete_group(self, group: Group, why: str, lasting: Mapping[str, RoleTarget] = _NOTHING) -> None:
        """Remove all that is left of a group, but the Services that it has again when it is made as
        `lasting`: they say nothing of its templates."""
        self.deleting.add(group.name)
        began = False
        for instance in group.each():
            for index in sorted(instance.live):
                self.actions.append(DeletePod(instance.live[index], why, with_group=True))
                began = True
            self.states[group.name, instance.id] = State.DELETING
        for service in group.services.values():
            labels = service.metadata.labels
            if labels.role in lasting and lasting[labels.role].has_service_of(ordinal(labels.role_id)):
                continue
            self.actions.append(DeleteService(service, why))
            began = True
        if group.pod_group is not None:
            self.actions.append(DeletePodGroup(group.pod_group, why))
            began = True
        if began:
            self.because(f"delete {group.name}: {why}")

    def delete_service(self, service: ServingService, why: str) -> None:
        """Remove one Service."""
        self.actions.append(DeleteService(service, why))
        self.because(f"delete Service {service.metadata.name}: {why}")

    def delete_pod(self, pod: ServingPod, why: str) -> None:
        """Remove one pod and nothing else."""
        self.actions.append(DeletePod(pod, why))
        self.because(f"delete pod {pod.metadata.name}: {why}")

    def create_service(self, group: str, role: str, instance: int) -> None:
        """Make the headless Service of an instance."""
        self.actions.append(CreateService(group, role, instance))
        self.because(f"create the Service of {group}/{role_id(role, instance)}")

    def create_pod_group(self, group: str, spec: PodGroupSpec) -> None:
        """Make the PodGroup of a group."""
        self.actions.append(CreatePodGroup(group, spec))
        self.pod_groups += 1
        self.because(f"create the PodGroup of {group}")

    def delete_pod_group(self, pod_group: PodGroup, why: str) -> None:
        """Remove one PodGroup and nothing else."""
        self.actions.append(DeletePodGroup(pod_group, why))
        self.because(f"delete PodGroup {pod_group.metadata.name}: {why}")

    def create_pod(
        self, group: str, template: RoleTemplate, revision: str, instance: int, index: int
    ) -> None:
        """Make one pod."""
        self.actions.append(CreatePod(group, template, revision, instance, index, group in self.ganged))
        self._pods += 1
