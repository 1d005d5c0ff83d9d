"""What the planner would do with a ModelServing in an ideal cluster, step by step: nothing fails, and pods
are ready at once.

`isthmus plan` calls `World.settle` for each manifest. The planner is the operator's own; only the cluster is
made up: what is deleted is gone, and what is created is there and ready, before the next step. Pure, since
time is an argument and UIDs are counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from isthmus.api.meta import Raw
from isthmus.api.modelserving import ModelServing, Spec, Status
from isthmus.api.names import ordinal
from isthmus.api.podgroups import PodGroup
from isthmus.api.pods import ControllerRevision, PodCondition, PodStatus, ServingPod, ServingService
from isthmus.api.times import format_time
from isthmus.modelserving.plan import objects
from isthmus.modelserving.plan.desired import desired
from isthmus.modelserving.plan.gang import FULL_OFFER, in_cluster
from isthmus.modelserving.plan.model import (
    NO_OFFER,
    NOTHING_REMEMBERED,
    Act,
    Action,
    CreatePod,
    CreatePodGroup,
    CreateService,
    DeletePod,
    DeletePodGroup,
    DeleteService,
    Desired,
    DropRevision,
    Facts,
    PersistRevision,
    Plan,
    RepairPodGroup,
)
from isthmus.modelserving.plan.observe import observe
from isthmus.modelserving.plan.reconcile import Revisions, plan

MAX_STEPS: Final = 10_000
STEP_S: Final = 10.0
"""Seconds between two steps of the made-up cluster."""


class Step(msgspec.Struct, frozen=True, gc=False):
    """One pass that did something, and the status that it gave."""

    planned: Plan

    @property
    def actions(self) -> tuple[Action, ...]:
        """What it did."""
        return self.planned.decision.actions if isinstance(self.planned.decision, Act) else ()


class World:
    """See the module. `raw` is what was created, as it would be sent, by (kind, name)."""

    def __init__(self, now: float, *, gang: bool) -> None:
        self.raw: dict[tuple[str, str], Raw] = {}
        self._now = now
        self._offer = FULL_OFFER if gang else NO_OFFER
        self._uids = itertools.count(1)
        self._status = Status()
        self._generation = 0
        self._pods: dict[str, ServingPod] = {}
        self._services: dict[str, ServingService] = {}
        self._pod_groups: dict[str, PodGroup] = {}
        self._revisions: dict[str, ControllerRevision] = {}

    @property
    def status(self) -> Status:
        """What the ModelServing says now."""
        return self._status

    def settle(self, serving: ModelServing) -> Iterator[Step]:
        """Give it this spec, and yield what is done until nothing is any more. Its spec must be a Spec."""
        assert isinstance(serving.spec, Spec)
        self._generation += 1
        metadata = replace(serving.metadata, uid="planned", generation=self._generation)
        for _ in range(MAX_STEPS):
            serving = replace(serving, metadata=metadata, status=self._status)
            wanted = in_cluster(desired(serving, self._revisions.values()), serving, self._offer)
            planned = self._plan(wanted)
            if isinstance(planned.decision, Act):
                for action in planned.decision.actions:
                    self._do(wanted, action)
            elif planned.status == self._status:
                return
            self._status = planned.status
            self._now += STEP_S
            if isinstance(planned.decision, Act):
                yield Step(planned)

    def _plan(self, wanted: Desired) -> Plan:
        facts: dict[str, dict[str, dict[str, Any]]] = {}
        parts_of: dict[str, dict[str, Any]] = {
            "pods": self._pods,
            "services": self._services,
            "pod_groups": self._pod_groups,
        }
        for field, held in parts_of.items():
            for name, each in held.items():
                group = facts.setdefault(each.metadata.labels.group_name, {})
                group.setdefault(field, {})[name] = each
        groups = {
            ordinal(name): observe(name, Facts(**parts), wanted, NOTHING_REMEMBERED, self._now)
            for name, parts in facts.items()
        }
        return plan(wanted, groups, Revisions(owned=tuple(self._revisions.values())), self._now)

    def _do(self, wanted: Desired, action: Action) -> None:
        match action:
            case PersistRevision(revision):
                number = 1 + max((each.number for each in wanted.stored.values()), default=0)
                raw = objects.controller_revision(wanted, revision, number)
                self._revisions[raw["metadata"]["name"]] = self._made(raw, ControllerRevision)
            case CreateService(group, role, instance):
                raw = objects.service(wanted, group, role, instance)
                self._services[raw["metadata"]["name"]] = self._made(raw, ServingService)
            case CreatePodGroup(group, spec):
                self._pod_groups[group] = self._made(objects.pod_group(wanted, group, spec), PodGroup)
            case RepairPodGroup(pod_group, spec):
                name = pod_group.metadata.name
                self._pod_groups[name] = self._made(objects.pod_group(wanted, name, spec), PodGroup)
            case CreatePod(group, template, revision, instance, index, ganged):
                raw = objects.pod(wanted, group, template, revision, instance, index, ganged=ganged)
                ready = PodCondition(type="Ready", status="True", last_transition_time=format_time(self._now))
                status = PodStatus(phase="Running", conditions=(ready,))
                self._pods[raw["metadata"]["name"]] = replace(self._made(raw, ServingPod), status=status)
            case DeletePod(pod):
                self._gone("Pod", self._pods, pod.metadata.name)
            case DeleteService(service):
                self._gone("Service", self._services, service.metadata.name)
            case DeletePodGroup(pod_group):
                self._gone("PodGroup", self._pod_groups, pod_group.metadata.name)
            case DropRevision(name):
                self._gone("ControllerRevision", self._revisions, name)
            case _:
                raise AssertionError(f"nothing in an ideal cluster calls for {action}")

    def _made(self, raw: Raw, kind: Any) -> Any:
        number = str(next(self._uids))
        self.raw[raw["kind"], raw["metadata"]["name"]] = raw
        stamps = {"uid": number, "resourceVersion": number, "creationTimestamp": format_time(self._now)}
        body = {**raw, "metadata": {**raw["metadata"], **stamps}}
        return msgspec.json.decode(msgspec.json.encode(body), type=kind)

    def _gone(self, kind: str, held: dict[str, Any], name: str) -> None:
        held.pop(name, None)
        self.raw.pop((kind, name), None)
