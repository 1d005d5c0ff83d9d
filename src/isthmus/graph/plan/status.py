"""A plan and how its writes went -> the graph's status (section 9).

`state` and the condition Ready say the same: failed where something of the graph cannot be as it is written,
pending until each Deployment runs as it should, then successful. Written only where it differs (GD-49).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from isthmus.api.dynamo.children import DEPLOYMENTS, GraphChild
from isthmus.api.dynamo.graphs import ComponentStatus, GraphSpec, GraphStatus
from isthmus.api.dynamo.model import GraphComponent
from isthmus.api.dynamo.names import component_base_name
from isthmus.api.dynamo.normalise import MULTINODE
from isthmus.api.modelserving import Condition
from isthmus.api.times import format_time
from isthmus.graph.plan.model import ChildName, Observed, Plan

READY: Final = "Ready"
MAX_MESSAGE: Final = 4096
ALL_READY: Final = "all_resources_are_ready"
NOT_READY: Final = "some_resources_are_not_ready"
PODS_NOT_READY: Final = "pods_not_ready"
UPDATING: Final = "updating"
MIXED: Final = "mixed_not_ready_reasons"
FAILED: Final = "failed_to_reconcile_resources"
INVALID: Final = "invalid_spec"
CONFLICT: Final = "OwnershipConflict"


class Verdict(NamedTuple):
    """How a graph stands."""

    state: Literal["pending", "successful", "failed"]
    reason: str
    text: str


class Cause(NamedTuple):
    """Why a Deployment is not ready."""

    reason: str
    text: str


def status(observed: Observed, planned: Plan, errors: Sequence[str], now: float) -> GraphStatus:
    """The status as of this pass; `errors` are what writes failed with, `now` in seconds since the epoch."""
    graph = observed.graph
    verdict = judge(observed, planned, errors)
    old = {condition.type: condition for condition in graph.status.conditions}
    ready = _condition(verdict, graph.metadata.generation, old.pop(READY, None), now)
    counts = {each.name: _counts(observed, each) for each in planned.model.components}
    if planned.model.problems:
        counts = dict(graph.status.components)
    older = isinstance(graph.spec, GraphSpec) and bool(graph.spec.services)
    return GraphStatus(
        observed_generation=graph.metadata.generation,
        state=verdict.state,
        conditions=(ready, *old.values()),
        components=counts,
        services=counts if older else {},
    )


def judge(observed: Observed, planned: Plan, errors: Sequence[str]) -> Verdict:
    """How the graph stands, what is worst first (GD-43, GD-44, GD-46)."""
    model = planned.model
    if model.problems:
        return Verdict("failed", INVALID, "; ".join(map(str, model.problems)))
    if planned.conflicts:
        return Verdict("failed", CONFLICT, "; ".join(planned.conflicts))
    if errors:
        return Verdict("failed", FAILED, "; ".join(errors))
    if model.refusals:
        reasons = {each.reason for each in model.refusals}
        reason = MULTINODE if MULTINODE in reasons else model.refusals[0].reason
        return Verdict("failed", reason, "; ".join(map(str, model.refusals)))
    causes = [(name, cause) for name, cause in _causes(observed, planned) if cause is not None]
    if not causes:
        return Verdict("successful", ALL_READY, "all resources are ready")
    reasons = {cause.reason for _, cause in causes}
    reason = reasons.pop() if len(reasons) == 1 else MIXED
    return Verdict("pending", reason, "; ".join(f"{name}: {cause.text}" for name, cause in causes))


def _causes(observed: Observed, planned: Plan) -> list[tuple[str, Cause | None]]:
    changing = {action.name for action in planned.actions}
    found = []
    for each in planned.model.components:
        name = _deployment(observed, each)
        child = observed.children.get(name)
        cause: Cause | None = Cause(UPDATING, "is being changed")
        if child is None:
            cause = Cause(NOT_READY, "is not there yet")
        elif name not in changing:
            cause = cause_of(child, each.replicas)
        found.append((name.name, cause))
    return found


def cause_of(deployment: GraphChild, replicas: int) -> Cause | None:
    """Why a Deployment of so many replicas is not ready; None where it is (GD-47)."""
    is_, meta = deployment.status, deployment.metadata
    if meta.terminating:
        return Cause(NOT_READY, "is being deleted")
    if is_.observed_generation < meta.generation:
        return Cause(UPDATING, "its change has not been seen yet")
    if is_.updated_replicas < replicas or is_.replicas > is_.updated_replicas:
        return Cause(UPDATING, f"{is_.updated_replicas} of {replicas} pods are updated, {is_.replicas} run")
    if is_.available_replicas < replicas:
        return Cause(PODS_NOT_READY, f"{is_.available_replicas} of {replicas} pods are available")
    if is_.updated_replicas > replicas:
        return Cause(UPDATING, f"{is_.updated_replicas} pods run, {replicas} are wanted")
    return None


def _deployment(observed: Observed, each: GraphComponent) -> ChildName:
    return ChildName(DEPLOYMENTS.kind, component_base_name(observed.graph.metadata.name, each.name))


def _counts(observed: Observed, each: GraphComponent) -> ComponentStatus:
    name = _deployment(observed, each)
    child = observed.children.get(name)
    if child is None:
        return ComponentStatus(component_names=(name.name,))
    return ComponentStatus(
        component_names=(name.name,),
        replicas=child.status.replicas,
        updated_replicas=child.status.updated_replicas,
        ready_replicas=child.status.ready_replicas,
        available_replicas=child.status.available_replicas,
    )


def _condition(verdict: Verdict, generation: int, old: Condition | None, now: float) -> Condition:
    value = "True" if verdict.state == "successful" else "False"
    stamp = format_time(now)
    if old is not None and old.status == value and old.last_transition_time:
        stamp = old.last_transition_time
    return Condition(
        type=READY,
        status=value,
        reason=verdict.reason,
        message=verdict.text[:MAX_MESSAGE],
        last_transition_time=stamp,
        observed_generation=generation,
    )
