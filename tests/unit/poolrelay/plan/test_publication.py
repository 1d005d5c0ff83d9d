"""When a relay is published and why it is not: each cause of the table, their order, and back again
(section 4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.poolrelay import RelaySpec
from isthmus.poolrelay.plan.children import render
from isthmus.poolrelay.plan.model import Observed, Pool, PropertyState, Reason, Stranger, Unreadable
from isthmus.poolrelay.plan.publication import target_of
from isthmus.poolrelay.plan.reconcile import plan
from tests.support.relays import (
    cluster_property,
    export,
    graph,
    observed,
    owner,
    pool,
    relay,
    settings,
    steps,
    stored_child,
    twice,
)

SERVING = {"apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "name": "chat"}
OWN = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "name": "east"}
STRANGER = Stranger("Service", "east-pool-relay", "controlled by nobody")
LONG = "e" * 53


def reason(seen: Observed, **changes: Any) -> Reason | None:
    """Why it is withdrawn; None where it is published."""
    verdict = plan(seen, settings(**changes)).withdrawn
    return None if verdict is None else verdict.reason


def with_export(pool_: Pool | None, **changes: Any) -> Observed:
    """A relay with its Service and an export, so that there is something to withdraw."""
    body = render(relay(), pool(), "one", settings())["Service"]
    return observed(
        pool_, export("east-frontend", owner()), children={"Service": stored_child(body)}, **changes
    )


CAUSES = [
    pytest.param(
        with_export(pool(), of=relay(clusterId="")),
        Reason.INVALID_CONFIGURATION,
        marks=pytest.mark.covers("PR-28", "T-80"),
        id="empty clusterId",
    ),
    pytest.param(
        with_export(None), Reason.GRAPH_NOT_FOUND, marks=pytest.mark.covers("PR-23", "T-17", "T-72")
    ),
    pytest.param(
        with_export(graph("east", [], terminating=True)),
        Reason.GRAPH_TERMINATING,
        marks=pytest.mark.covers("PR-24", "T-73"),
    ),
    pytest.param(
        with_export(graph("east", [], unsupported="its discovery backend is etcd")),
        Reason.UNSUPPORTED_DISCOVERY,
        marks=pytest.mark.covers("PR-25"),
    ),
    pytest.param(
        with_export(graph("east", [], shared=True)),
        Reason.SHARED_NAMESPACE,
        marks=pytest.mark.covers("PR-27", "T-78"),
    ),
    pytest.param(
        with_export(graph("east", [], has_workers=False)),
        Reason.NO_WORKERS,
        marks=pytest.mark.covers("PR-26", "T-19", "T-82"),
    ),
    pytest.param(
        with_export(pool(), strangers=(STRANGER,)),
        Reason.OWNERSHIP_CONFLICT,
        marks=pytest.mark.covers("PR-29", "T-21", "T-83"),
    ),
    pytest.param(with_export(None, of=relay(targetRef=SERVING)), Reason.TARGET_NOT_FOUND),
    pytest.param(
        with_export(graph("east", [], kind="ModelServing", terminating=True), of=relay(targetRef=SERVING)),
        Reason.TARGET_TERMINATING,
    ),
]


@pytest.mark.parametrize(("seen", "cause"), CAUSES)
@pytest.mark.covers("PR-30", "PR-36")
def test_cause_must_withdraw_exports_and_service_and_name_itself(seen: Observed, cause: Reason) -> None:
    planned, after = twice(seen)
    assert planned.withdrawn is not None
    assert planned.withdrawn.reason is cause
    assert steps(planned) == ["Delete east-frontend"]
    assert (after.exports, after.children) == ({}, {})


@pytest.mark.parametrize(("seen", "cause"), CAUSES)
@pytest.mark.covers("PR-32", "PR-33", "T-18", "T-84")
def test_cause_undone_must_publish_again_whatever_the_pools_uid(seen: Observed, cause: Reason) -> None:
    _, withdrawn = twice(seen)
    back = msgspec.structs.replace(withdrawn, relay=relay(), pool=pool(uid="another"), strangers=())
    planned, after = twice(back)
    assert planned.withdrawn is None, cause
    assert set(after.exports) == {"east-pool-relay", "east-frontend"}


@pytest.mark.covers("PR-30", "T-85")
def test_first_cause_of_the_table_must_be_told() -> None:
    bad = relay(clusterId="")
    everything: dict[str, Any] = {
        "terminating": True,
        "unsupported": "etcd",
        "shared": True,
        "has_workers": False,
    }
    order = [Reason.INVALID_CONFIGURATION]
    assert reason(observed(graph("east", [], **everything), of=bad, strangers=(STRANGER,))) is order[0]
    for field, cause in (
        ("terminating", Reason.GRAPH_TERMINATING),
        ("unsupported", Reason.UNSUPPORTED_DISCOVERY),
        ("shared", Reason.SHARED_NAMESPACE),
        ("has_workers", Reason.NO_WORKERS),
    ):
        assert reason(observed(graph("east", [], **everything), strangers=(STRANGER,))) is cause
        del everything[field]
    assert reason(observed(graph("east", []), strangers=(STRANGER,))) is Reason.OWNERSHIP_CONFLICT


@pytest.mark.parametrize(
    ("of", "words"),
    [
        pytest.param(relay("east.v1"), "DNS-1035", marks=pytest.mark.covers("PR-28", "T-79")),
        pytest.param(relay("1east"), "DNS-1035", marks=pytest.mark.covers("T-90")),
        pytest.param(relay(LONG), "64 characters", marks=pytest.mark.covers("PR-28", "R32")),
        pytest.param(relay(clusterId=" one"), "whitespace"),
        pytest.param(relay(clusterId="x" * 254), "254 characters"),
        pytest.param(relay(clusterId=7), "clusterId", id="a number"),
        pytest.param(relay(grpcPort=8081), "both 8081"),
        pytest.param(relay(targetRef={**SERVING, "name": ""}), "no name"),
        pytest.param(relay(targetRef={**SERVING, "apiVersion": "v1"}), "targetRef names ModelServing of v1"),
        pytest.param(relay(targetRef={**SERVING, "kind": "Pod"}), "targetRef names Pod"),
        pytest.param(relay(targetRef={**OWN, "kind": "Pod"}), "targetRef names Pod of nvidia.com/v1beta1"),
        pytest.param(relay(targetRef={**OWN, "apiVersion": "v1"}), "names DynamoGraphDeployment of v1"),
        pytest.param(
            relay(
                targetRef={
                    "apiVersion": "nvidia.com/v1beta1",
                    "kind": "DynamoGraphDeployment",
                    "name": "west",
                }
            ),
            "its own name only",
        ),
    ],
)
@pytest.mark.covers("PR-28")
def test_relay_that_cannot_work_must_say_what_to_change(of: Any, words: str) -> None:
    verdict = plan(observed(pool(), of=of), settings()).withdrawn
    assert verdict is not None
    assert verdict.reason is Reason.INVALID_CONFIGURATION
    assert words in verdict.text


@pytest.mark.covers("PR-28")
def test_relay_without_any_image_must_say_where_to_name_one() -> None:
    assert reason(observed(pool()), image="") is Reason.INVALID_CONFIGURATION
    assert reason(observed(pool(), of=relay(image="own:1")), image="") is None
    assert reason(observed(pool(), of=relay("e" * 52))) is None
    assert reason(observed(pool(), of=relay(clusterId="x" * 253))) is None


@pytest.mark.covers("PR-16")
def test_target_must_be_the_graph_of_the_relays_name_unless_named() -> None:
    assert target_of(relay()) == ("DynamoGraphDeployment", "east")
    assert target_of(relay(clusterId=7)) == ("DynamoGraphDeployment", "east")
    assert target_of(relay(targetRef=SERVING)) == ("ModelServing", "chat")
    assert reason(observed(pool(), of=relay(targetRef=OWN))) is None


@pytest.mark.covers("PR-17")
def test_spec_must_have_the_defaults_of_the_crd() -> None:
    spec = msgspec.json.decode(b'{"clusterId": "one"}', type=RelaySpec)
    assert isinstance(spec, RelaySpec)
    assert (spec.replicas, spec.grpc_port, spec.system_port) == (1, 5561, 8081)


# The ID from the cluster itself


@pytest.mark.covers("PR-112")
def test_empty_cluster_id_must_be_filled_from_the_property() -> None:
    of = relay(clusterId="", clusterIdFrom="ClusterProperty")
    planned = plan(observed(pool(), of=of, cluster=cluster_property("two")), settings())
    assert (planned.withdrawn, planned.cluster_id, planned.events) == (None, "two", ())
    given = relay(clusterId="one", clusterIdFrom="ClusterProperty")
    assert plan(observed(pool(), of=given, cluster=cluster_property("two")), settings()).cluster_id == "one"
    unasked = observed(pool(), of=relay(clusterId=""), cluster=cluster_property("two"))
    assert reason(unasked) is Reason.INVALID_CONFIGURATION


@pytest.mark.covers("PR-112")
@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (PropertyState.ABSENT, "the cluster has no ClusterProperty"),
        (PropertyState.UNWATCHED, "needs multiCluster.mcsImplementation mcs"),
        (cluster_property(""), "has no value"),
        (cluster_property(" x"), "whitespace"),
    ],
)
def test_cluster_without_an_id_must_be_an_invalid_configuration(cluster: Any, words: str) -> None:
    of = relay(clusterId="", clusterIdFrom="ClusterProperty")
    verdict = plan(observed(pool(), of=of, cluster=cluster), settings()).withdrawn
    assert verdict is not None
    assert verdict.reason is Reason.INVALID_CONFIGURATION
    assert words in verdict.text


@pytest.mark.covers("PR-112", "R36")
@pytest.mark.parametrize("cluster", [PropertyState.UNKNOWN, Unreadable("403")])
def test_id_that_cannot_be_read_must_withdraw_nothing(cluster: Any) -> None:
    of = relay(clusterId="", clusterIdFrom="ClusterProperty")
    ours = export("east-frontend", owner())
    planned = plan(observed(pool(), ours, of=of, cluster=cluster), settings())
    assert planned.hold
    assert (planned.exports, planned.children) == ((), ())
    known = msgspec.structs.replace(of, status=msgspec.structs.replace(of.status, cluster_id="two"))
    planned = plan(observed(pool(), ours, of=known, cluster=cluster), settings())
    assert (planned.hold, planned.cluster_id) == ("", "two")
    assert steps(planned) == ["Create east-pool-relay"]


@pytest.mark.covers("PR-20")
def test_conflict_must_be_looked_at_again_since_no_watch_shows_strangers() -> None:
    assert plan(observed(pool(), strangers=(STRANGER,)), settings(conflict_recheck_s=3)).recheck_s == 3
    assert plan(observed(pool()), settings()).recheck_s is None
