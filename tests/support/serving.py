"""Terse builders for the planner's tests: ModelServings from a few words, and the objects made from them.

Pods, Services and ControllerRevisions are built by the production code (plan/objects.py) and decoded into the
types that caches hold, so that a test's world looks like the API server's answers. `Scene` is a fixed world
of one ModelServing: facts by group, and the plan for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from isthmus.api.meta import Raw
from isthmus.api.modelserving import ModelServing, Status
from isthmus.api.names import group_name, ordinal
from isthmus.api.pods import (
    ContainerState,
    ContainerStatus,
    ControllerRevision,
    PodCondition,
    PodStatus,
    ServingPod,
    ServingService,
    Terminated,
    Waiting,
)
from isthmus.api.times import format_time
from isthmus.modelserving.decisions import describe
from isthmus.modelserving.plan import objects
from isthmus.modelserving.plan.desired import desired
from isthmus.modelserving.plan.model import (
    NOTHING_REMEMBERED,
    Act,
    Action,
    Desired,
    Facts,
    Group,
    Memory,
    Plan,
    Revision,
)
from isthmus.modelserving.plan.observe import observe
from isthmus.modelserving.plan.reconcile import Revisions, plan
from tests.support import manifests

NOW = 1_790_000_000.0
UID = "uid-a"
_counter = itertools.count(1)


def unique(prefix: str = "uid") -> str:
    """A UID that no other object of this test run has."""
    return f"{prefix}-{next(_counter)}"


def role(
    name: str = "p",
    replicas: int = 1,
    workers: int = 0,
    *,
    image: str = "one",
    **fields: object,
) -> Raw:
    """A role as in a manifest, with the CRD's default of maxUnavailable; a worker template where there are
    workers."""
    raw: Raw = {
        "name": name,
        "replicas": replicas,
        "workerReplicas": workers,
        "entryTemplate": manifests.pod_template(manifests.container(image=image)),
        "maxUnavailable": 1,
    }
    if workers:
        raw["workerTemplate"] = manifests.pod_template(manifests.container(image=image))
    return {**raw, **fields}


def serving(
    *roles: Raw,
    name: str = "a",
    uid: str = UID,
    generation: int = 1,
    status: Status | None = None,
    template: Raw | None = None,
    **spec: Any,
) -> ModelServing:
    """A ModelServing as the cache holds it. Keywords in snake case become fields of the spec; `partition` and
    `max_unavailable` become its rollout strategy."""
    rolling = {
        key: spec.pop(field)
        for key, field in (("partition", "partition"), ("maxUnavailable", "max_unavailable"))
        if field in spec
    }
    if rolling:
        spec["rolloutStrategy"] = {
            "type": "ServingGroupRollingUpdate",
            "rollingUpdateConfiguration": rolling,
        }
    if spec.pop("by_role", False):
        spec["rolloutStrategy"] = {"type": "RoleRollingUpdate"}
    if "recovery" in spec:
        spec["recoveryPolicy"] = spec.pop("recovery")
    raw = manifests.model_serving(name, roles=list(roles or [role()]), template=template, **spec)
    raw["metadata"] |= {"uid": uid, "generation": generation, "resourceVersion": str(generation)}
    raw["metadata"]["creationTimestamp"] = format_time(NOW - 3600)
    if status is not None:
        raw["status"] = msgspec.to_builtins(status)
    return msgspec.json.decode(msgspec.json.encode(raw), type=ModelServing)


def revision_object(of: ModelServing | Desired, number: int = 1, **metadata: object) -> ControllerRevision:
    """The ControllerRevision that stores the present templates of `of`."""
    wanted = of if isinstance(of, Desired) else desired(of, ())
    raw = objects.controller_revision(wanted, wanted.revision, number)
    raw["metadata"] |= {"uid": unique("cr"), "resourceVersion": "1", **metadata}
    return msgspec.json.decode(msgspec.json.encode(raw), type=ControllerRevision)


def ready_status(*, since: float = NOW - 600, restarts: int = 0) -> PodStatus:
    """Running and Ready since that time, in seconds since the epoch."""
    return PodStatus(
        phase="Running",
        conditions=(PodCondition(type="Ready", status="True", last_transition_time=format_time(since)),),
        container_statuses=(ContainerStatus(name="engine", ready=True, restart_count=restarts),),
    )


def unready_status(*, since: float = NOW - 600, phase: str = "Running") -> PodStatus:
    """Not Ready since that time, without any container having ended."""
    return PodStatus(
        phase=phase,
        conditions=(PodCondition(type="Ready", status="False", last_transition_time=format_time(since)),),
        container_statuses=(ContainerStatus(name="engine"),),
    )


def ended(at: float | None, code: int = 1, reason: str = "Error", message: str = "") -> ContainerState:
    """A container state: it ended at that time."""
    finished = None if at is None else format_time(at)
    return ContainerState(
        terminated=Terminated(exit_code=code, reason=reason, message=message, finished_at=finished)
    )


def crashed_status(
    *,
    at: float | None = NOW - 10,
    since: float | None = None,
    restarts: int = 1,
    waiting: str = "",
    phase: str = "Running",
) -> PodStatus:
    """A container ended at `at` and was started again; the pod is not Ready since `since` (by default since
    then)."""
    unready = since if since is not None else at
    state = ContainerState(waiting=Waiting(reason=waiting)) if waiting else ContainerState()
    condition = PodCondition(
        type="Ready",
        status="False",
        last_transition_time=None if unready is None else format_time(unready),
    )
    container = ContainerStatus(
        name="engine",
        restart_count=restarts,
        state=state,
        last_state=ended(at) if at is not None else ContainerState(),
    )
    return PodStatus(phase=phase, conditions=(condition,), container_statuses=(container,))


def failed_status(
    *, at: float | None = NOW - 10, reason: str = "Evicted", message: str = "node is full"
) -> PodStatus:
    """Phase Failed since `at`."""
    condition = PodCondition(
        type="Ready", status="False", last_transition_time=None if at is None else format_time(at)
    )
    return PodStatus(phase="Failed", reason=reason, message=message, conditions=(condition,))


def decode_pod(raw: Raw, *, status: PodStatus | None = None, uid: str = "") -> ServingPod:
    """A pod as the cache holds it after it was created from `raw`."""
    metadata = {
        **raw["metadata"],
        "uid": uid or unique("pod"),
        "resourceVersion": "1",
        "creationTimestamp": format_time(NOW - 900),
    }
    decoded = msgspec.convert({**raw, "metadata": metadata}, ServingPod)
    return replace(decoded, status=status if status is not None else ready_status())


def decode_service(raw: Raw, *, uid: str = "") -> ServingService:
    """A Service as the cache holds it after it was created from `raw`."""
    metadata = {**raw["metadata"], "uid": uid or unique("svc"), "resourceVersion": "1"}
    return msgspec.convert({**raw, "metadata": metadata}, ServingService)


def with_meta(pod: ServingPod, **metadata: Any) -> ServingPod:
    """The same pod with other metadata."""
    return replace(pod, metadata=replace(pod.metadata, **metadata))


def terminating(pod: ServingPod, at: float = NOW - 5) -> ServingPod:
    """The same pod, being deleted."""
    return with_meta(pod, deletion_timestamp=format_time(at))


def costing(pod: ServingPod, cost: object) -> ServingPod:
    """The same pod with a deletion cost."""
    annotations = replace(pod.metadata.annotations, deletion_cost=str(cost))
    return with_meta(pod, annotations=annotations)


class Scene:
    """A fixed world of one ModelServing. `pods` and `services` are by name; change them and plan again.

    `stored` are the ModelServings whose templates are stored as revisions 1, 2, ..., by default its own.
    """

    def __init__(self, of: ModelServing, *, stored: Iterable[ModelServing] | None = None) -> None:
        self.serving = of
        history = [of] if stored is None else list(stored)
        self.revisions = [revision_object(each, number) for number, each in enumerate(history, 1)]
        self.pods: dict[str, ServingPod] = {}
        self.services: dict[str, ServingService] = {}
        self.memory: dict[str, Memory] = {}
        self.now = NOW

    @property
    def desired(self) -> Desired:
        """What the ModelServing asks for, with the stored revisions."""
        return desired(self.serving, self.revisions)

    def revision(self, of: ModelServing) -> Revision:
        """The revision of these templates, as this scene's history knows it."""
        return desired(of, self.revisions).revision

    def has_group(
        self,
        number: int,
        *,
        of: ModelServing | None = None,
        status: PodStatus | None = None,
        only: Iterable[str] | None = None,
    ) -> Self:
        """Add a whole group, made from the templates of `of` (by default its own) and ready; `only` names
        instance IDs."""
        source = of if of is not None else self.serving
        wanted = desired(source, self.revisions)
        group = group_name(source.metadata.name, number)
        for template in wanted.revision.roles.values():
            for instance in range(template.replicas):
                if only is not None and f"{template.name}-{instance}" not in only:
                    continue
                self.has_instance(group, template.name, instance, of=wanted, status=status)
        return self

    def has_instance(
        self,
        group: str,
        role_name: str,
        instance: int,
        *,
        of: Desired | None = None,
        status: PodStatus | None = None,
    ) -> Self:
        """Add one instance with its Service."""
        wanted = of if of is not None else self.desired
        template = wanted.revision.roles[role_name]
        for index in range(template.size):
            raw = objects.pod(wanted, group, template, wanted.revision.name, instance, index)
            self.pods[raw["metadata"]["name"]] = decode_pod(raw, status=status)
        if template.has_service:
            raw = objects.service(wanted, group, role_name, instance)
            self.services[raw["metadata"]["name"]] = decode_service(raw)
        return self

    def has_groups(self, *numbers: int, of: ModelServing | None = None) -> Self:
        """Add several whole groups."""
        for number in numbers:
            self.has_group(number, of=of)
        return self

    def set_status(self, name_prefix: str, status: PodStatus) -> Self:
        """Give every pod whose name begins so this status."""
        for name in [name for name in self.pods if name.startswith(name_prefix)]:
            self.pods[name] = replace(self.pods[name], status=status)
        return self

    def terminate(self, name_prefix: str) -> Self:
        """Begin the deletion of every pod whose name begins so."""
        for name in [name for name in self.pods if name.startswith(name_prefix)]:
            self.pods[name] = terminating(self.pods[name])
        return self

    def lose(self, name_prefix: str) -> Self:
        """Forget every pod whose name begins so, as if it had never been."""
        for name in [name for name in self.pods if name.startswith(name_prefix)]:
            del self.pods[name]
        return self

    def reports(self, **fields: object) -> Self:
        """Give the ModelServing this status."""
        self.serving = replace(self.serving, status=replace(self.serving.status, **fields))
        return self

    def facts(self) -> dict[str, Facts]:
        """The objects by group."""
        found: dict[str, Facts] = {}
        for pod in self.pods.values():
            group = found.setdefault(pod.metadata.labels.group_name, Facts({}, {}))
            group.pods[pod.metadata.name] = pod
        for service in self.services.values():
            group = found.setdefault(service.metadata.labels.group_name, Facts({}, {}))
            group.services[service.metadata.name] = service
        return found

    def groups(self) -> dict[int, Group]:
        """What the planner sees, by ordinal."""
        wanted = self.desired
        past = {each.group: each for each in self.serving.status.recoveries}
        return {
            ordinal(name): observe(
                name, facts, wanted, self.memory.get(name, NOTHING_REMEMBERED), self.now, past.get(name)
            )
            for name, facts in self.facts().items()
        }

    def plan(self) -> Plan:
        """The plan for this world."""
        return plan(self.desired, self.groups(), Revisions(owned=tuple(self.revisions)), self.now)

    def reported(self) -> Plan:
        """The plan after its own status was written."""
        self.serving = replace(self.serving, status=self.plan().status)
        return self.plan()


def actions(planned: Plan) -> tuple[Action, ...]:
    """The actions of a plan; none unless it acts."""
    return planned.decision.actions if isinstance(planned.decision, Act) else ()


def in_words(planned: Plan) -> list[str]:
    """The actions as short sorted texts: `create pod a-0-p-0-0`, `delete pod ...`."""
    return sorted(f"{each.action} {each.target}" for each in map(describe, actions(planned)))


def pods_created(planned: Plan) -> set[str]:
    """Names of the pods that a plan makes."""
    return _targets(planned, "create pod ")


def pods_deleted(planned: Plan) -> set[str]:
    """Names of the pods that a plan deletes."""
    return _targets(planned, "delete pod ")


def _targets(planned: Plan, prefix: str) -> set[str]:
    return {text.removeprefix(prefix) for text in in_words(planned) if text.startswith(prefix)}


def groups_of(names: Iterable[str]) -> set[int]:
    """The ordinals of the groups of pods of ModelServing `a`."""
    return {int(name.split("-")[1]) for name in names}


def conditions(status: Status) -> Mapping[str, tuple[str, str]]:
    """Condition type -> (status, reason)."""
    return {each.type: (each.status, each.reason) for each in status.conditions}
