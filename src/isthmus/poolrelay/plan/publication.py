"""Whether a relay is published, and if not, the first cause of the table (PR-23 to PR-30).

Called by reconcile.py with what was observed. The order of the checks is the order of `Reason`: the first
that holds is told, the others are not looked at (T-85). A name that could not be that of a Service ends here,
before any export's name is computed (PR-28).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from isthmus.api.decode import Unreadable as UnreadableSpec
from isthmus.api.names import LABEL_LIMIT, is_dns_label
from isthmus.api.poolrelay import (
    MAX_CLUSTER_ID,
    POOL_RELAYS,
    SERVING_TARGETS,
    ClusterProperty,
    DynamoPoolRelay,
    RelaySpec,
    TargetRef,
    pool_relay_name,
)
from isthmus.poolrelay.plan.model import (
    GRAPH_KIND,
    SERVING_KIND,
    Observed,
    Pool,
    Property,
    PropertyState,
    Reason,
    RelaySettings,
    Unreadable,
    Verdict,
)

ID_SOURCE = "ClusterProperty"
"""The one value of spec.clusterIdFrom."""


class ClusterId(NamedTuple):
    """The ID in effect, or why there is none. `unknown`: it may be there, and has not been read."""

    value: str = ""
    problem: str = ""
    unknown: bool = False


def target_of(relay: DynamoPoolRelay) -> tuple[str, str]:
    """(kind, name) of the pool: what targetRef names, else the graph of the relay's name (PR-16). An
    unreadable spec has the default."""
    spec = relay.spec
    if isinstance(spec, RelaySpec) and spec.target_ref is not None:
        return spec.target_ref.kind, spec.target_ref.name
    return GRAPH_KIND, relay.metadata.name


def cluster_id(relay: DynamoPoolRelay, property_: Property) -> ClusterId:
    """spec.clusterId; where that is empty and clusterIdFrom asks for it, the cluster's own (PR-112).

    While that cannot be read, the ID that the status has stays in effect: nothing is concluded from a failed
    read (R36).
    """
    spec = relay.spec
    assert isinstance(spec, RelaySpec)
    if spec.cluster_id or not spec.cluster_id_from:
        return ClusterId(spec.cluster_id, _id_problem(spec.cluster_id))
    if isinstance(property_, ClusterProperty):
        value = property_.spec.value
        if not value:
            return ClusterId(problem="the ClusterProperty that clusterIdFrom names has no value")
        return ClusterId(value, _id_problem(value))
    if property_ is PropertyState.UNWATCHED:
        return ClusterId(
            problem="clusterIdFrom needs multiCluster.mcsImplementation mcs in the operator's configuration"
        )
    if property_ is PropertyState.ABSENT:
        return ClusterId(problem="the cluster has no ClusterProperty to take the clusterId from")
    known = relay.status.cluster_id
    return ClusterId(known, unknown=not known)


def _id_problem(value: str) -> str:
    if not value:
        return "clusterId is empty"
    if value != value.strip():
        return "clusterId has whitespace around it"
    if len(value) > MAX_CLUSTER_ID:
        return f"clusterId has {len(value)} characters; it may have at most {MAX_CLUSTER_ID}"
    return ""


def decide(observed: Observed, settings: RelaySettings, identity: ClusterId) -> Verdict | None:
    """The first cause for which the relay is withdrawn; None where it is published."""
    return next(causes(observed, settings, identity), None)


def causes(observed: Observed, settings: RelaySettings, identity: ClusterId) -> Iterator[Verdict]:
    """Every cause for which the relay is withdrawn, in the order of the table."""
    relay, pool = observed.relay, observed.pool
    for problem in (configuration_problem(relay, settings), identity.problem):
        if problem:
            yield Verdict(Reason.INVALID_CONFIGURATION, problem)
    kind, name = target_of(relay)
    graph = kind == GRAPH_KIND
    if pool is None:
        reason = Reason.GRAPH_NOT_FOUND if graph else Reason.TARGET_NOT_FOUND
        yield Verdict(reason, f"there is no {kind} {name}")
    else:
        if pool.terminating:
            reason = Reason.GRAPH_TERMINATING if graph else Reason.TARGET_TERMINATING
            yield Verdict(reason, f"{kind} {name} is being deleted")
        yield from _unfit(pool)
    if observed.strangers:
        names = ", ".join(f"{each.kind} {each.name} ({each.owner})" for each in observed.strangers)
        yield Verdict(Reason.OWNERSHIP_CONFLICT, f"not this relay's: {names}")


def configuration_problem(relay: DynamoPoolRelay, settings: RelaySettings) -> str:
    """What a person must change in the relay, whatever its pool is; empty where nothing (PR-28)."""
    spec, name = relay.spec, relay.metadata.name
    if isinstance(spec, UnreadableSpec):
        return spec.reason
    service = pool_relay_name(name)
    if len(service) > LABEL_LIMIT:
        return (
            f"the relay's Service {service} would have {len(service)} characters; "
            f"it may have at most {LABEL_LIMIT}, so the relay's name {LABEL_LIMIT - len(pool_relay_name(''))}"
        )
    if not is_dns_label(service):
        return f"the relay's Service {service} could not exist: its name must be a DNS-1035 label"
    if problem := _target_problem(spec.target_ref, name):
        return problem
    if not spec.image and not settings.image:
        return "there is no image: set spec.image, or relay.image in the operator's configuration"
    if spec.grpc_port == spec.system_port:
        return f"grpcPort and systemPort are both {spec.grpc_port}"
    return ""


def _target_problem(ref: TargetRef | None, relay: str) -> str:
    if ref is None:
        return ""
    if ref.kind == SERVING_KIND and ref.group == SERVING_TARGETS.group:
        return "" if ref.name else "targetRef has no name"
    if ref.kind == GRAPH_KIND and ref.group == POOL_RELAYS.group:
        return "" if ref.name == relay else "a relay serves the graph of its own name only"
    return (
        f"targetRef names {ref.kind or 'no kind'} of {ref.api_version or 'no apiVersion'}; it must be a "
        f"{GRAPH_KIND} of {POOL_RELAYS.group} or a {SERVING_KIND} of {SERVING_TARGETS.group}"
    )


def _unfit(pool: Pool) -> Iterator[Verdict]:
    """Causes that lie in the pool itself."""
    if pool.unsupported:
        yield Verdict(Reason.UNSUPPORTED_DISCOVERY, pool.unsupported)
    if pool.shared:
        yield Verdict(
            Reason.SHARED_NAMESPACE,
            f"{pool.kind} {pool.name} lives in the global Dynamo namespace, which other graphs share",
        )
    if not pool.has_workers:
        yield Verdict(
            Reason.NO_WORKERS, f"{pool.kind} {pool.name} has no component of type worker, prefill or decode"
        )


def unread(property_: Property) -> str:
    """Why the cluster's ID cannot be read now; empty where it can be, or is not looked for."""
    return property_.text if isinstance(property_, Unreadable) else ""
