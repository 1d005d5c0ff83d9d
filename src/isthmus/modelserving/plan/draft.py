"""A plan while it is being made: what the steps of planning add to, and the bound on how much one pass may
do.

Made by reconcile.py, filled by groups.py and roles.py, read by status.py. Mutable, and gone when the plan is
returned.
"""

from __future__ import annotations

from isthmus.api.names import role_id
from isthmus.api.pods import ServingPod, ServingService
from isthmus.modelserving.plan.model import (
    Action,
    CreatePod,
    CreateService,
    DeletePod,
    DeleteService,
    Group,
    Instance,
    RoleTemplate,
    State,
)

MAX_PODS_PER_PASS = 1000
"""Pods that one pass may create: a spec may ask for 2**31-1 groups (MS-52). The next pass goes on from what
is there."""
MAX_REASONS = 100
"""Reasons that one pass gives; nobody reads more."""


class Draft:
    """The actions of one pass and what they change. `states` are what instances become once the actions are
    under way; `created` are the ordinals of groups begun in this pass with their revision, `hollow` how many
    groups of a revision there are that need no pod, since every role has 0 replicas (MS-299); `deleting`
    names of groups on their way out, `disturbed` names of groups that lose or still miss something, and so
    are not available whatever their pods say."""

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
        self._pods = 0

    @property
    def pods(self) -> int:
        """How many pods this pass creates so far."""
        return self._pods

    @property
    def full(self) -> bool:
        """Whether this pass may create no more pods."""
        return self._pods >= MAX_PODS_PER_PASS

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

    def delete_group(self, group: Group, why: str) -> None:
        """Remove all that is left of a group."""
        self.deleting.add(group.name)
        began = False
        for instance in group.each():
            for index in sorted(instance.live):
                self.actions.append(DeletePod(instance.live[index], why, with_group=True))
                began = True
            self.states[group.name, instance.id] = State.DELETING
        for service in group.services.values():
            self.actions.append(DeleteService(service, why))
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

    def create_pod(
        self, group: str, template: RoleTemplate, revision: str, instance: int, index: int
    ) -> None:
        """Make one pod."""
        self.actions.append(CreatePod(group, template, revision, instance, index))
        self._pods += 1
