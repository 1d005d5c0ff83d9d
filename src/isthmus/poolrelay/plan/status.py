"""A plan and how its children's writes went -> the relay's status (PR-30, PR-31).

The condition Ready speaks of the relay alone: neither exports nor warnings move it, and the pool's own health
is the pool's. The time of the last transition moves only when True becomes False or back.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.api.meta import Resource
from isthmus.api.modelserving import Condition
from isthmus.api.poolrelay import (
    RELAY_DEPLOYMENTS,
    ObservedTarget,
    RelayChild,
    RelaySpec,
    RelayStatus,
    pool_relay_name,
)
from isthmus.api.times import format_time
from isthmus.poolrelay.plan.model import Observed, Plan, Pool, Reason, Verdict

READY = "Ready"
MAX_MESSAGE = 4096


def status(observed: Observed, planned: Plan, problems: Sequence[str], now: float) -> RelayStatus:
    """The status as of this pass; `problems` are the children's failed writes, `now` in seconds since the
    epoch."""
    relay, pool = observed.relay, observed.pool
    published = planned.withdrawn is None
    verdict = planned.withdrawn or _of_workload(observed, planned, problems)
    old = {condition.type: condition for condition in relay.status.conditions}
    ready = _condition(verdict, relay.metadata.generation, old.pop(READY, None), now)
    return RelayStatus(
        observed_generation=relay.metadata.generation,
        cluster_id=planned.cluster_id,
        service_name=pool_relay_name(relay.metadata.name) if published else "",
        observed_target=_target(pool) if pool is not None else None,
        conditions=(ready, *old.values()),
    )


def _target(pool: Pool) -> ObservedTarget:
    return ObservedTarget(kind=pool.kind, name=pool.name, uid=pool.uid, generation=pool.generation)


def _of_workload(observed: Observed, planned: Plan, problems: Sequence[str]) -> Verdict:
    """The lower part of the table: of a relay that is published."""
    if problems:
        return Verdict(Reason.RECONCILE_FAILED, "; ".join(problems))
    deployment = observed.children.get(RELAY_DEPLOYMENTS.kind)
    changing = any(_is_deployment(action.resource) for action in planned.children)
    spec = observed.relay.spec
    assert isinstance(spec, RelaySpec)
    if deployment is None or changing or not is_available(deployment, spec.replicas):
        return Verdict(Reason.PROGRESSING, "published; the relay's Deployment is not available yet")
    return Verdict(Reason.AVAILABLE, "published; the relay's Deployment is available")


def _is_deployment(resource: Resource[RelayChild]) -> bool:
    return resource.kind == RELAY_DEPLOYMENTS.kind


def is_available(deployment: RelayChild, replicas: int) -> bool:
    """Whether a Deployment of so many replicas runs as its spec says, and nothing older does (GD-47)."""
    is_, meta = deployment.status, deployment.metadata
    if meta.terminating or is_.observed_generation < meta.generation:
        return False
    return is_.updated_replicas == is_.available_replicas == is_.replicas == replicas


def _condition(verdict: Verdict, generation: int, old: Condition | None, now: float) -> Condition:
    value = "True" if verdict.reason is Reason.AVAILABLE else "False"
    stamp = format_time(now)
    if old is not None and old.status == value and old.last_transition_time:
        stamp = old.last_transition_time
    return Condition(
        type=READY,
        status=value,
        reason=verdict.reason.value,
        message=verdict.text[:MAX_MESSAGE],
        last_transition_time=stamp,
        observed_generation=generation,
    )
