"""What a check of a pool tells: the controller's own plan, with every cause at once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.poolrelay.plan.check import check
from isthmus.poolrelay.plan.model import Frontend, PropertyState, Stranger
from isthmus.poolrelay.plan.reconcile import plan
from tests.support.relays import (
    act,
    cluster_property,
    export,
    graph,
    observed,
    owner,
    pool,
    relay,
    settings,
)


def states(seen: Any, under: Any = None) -> dict[str, str]:
    return {each.name: each.state for each in check(seen, under or settings()).exports}


def reasons(seen: Any, under: Any = None) -> list[str]:
    return [each.reason for each in check(seen, under or settings()).findings]


def test_pool_without_faults_must_have_no_findings() -> None:
    found = check(observed(pool()), settings())
    assert (found.published, found.cluster_id, found.findings, found.notes) == (True, "one", (), ())
    assert states(observed(pool())) == {"east-pool-relay": "create", "east-frontend": "create"}


def test_name_that_cannot_be_a_services_must_be_impossible_and_not_only_withheld() -> None:
    seen = observed(graph("east", [Frontend("F", "x" * 64)]))
    assert states(seen)["x" * 64] == "impossible"


def test_pool_that_waits_for_the_clusters_id_must_not_pass_for_published() -> None:
    seen = observed(
        pool(), cluster=PropertyState.UNKNOWN, of=relay(clusterId="", clusterIdFrom="ClusterProperty")
    )
    assert plan(seen, settings()).hold
    assert not check(seen, settings()).published


def test_check_must_tell_what_the_controller_then_does() -> None:
    seen = observed(pool("east", "Frontend", "Api"))
    done = act(seen, plan(seen, settings()))
    assert set(states(done).values()) == {"exported"}
    drifted = replace(
        done, exports={**done.exports, "east-frontend": export("east-frontend", owner(), label="x")}
    )
    assert states(drifted)["east-frontend"] == "repair"
    renamed = replace(done, pool=pool("east", "Front"))
    assert states(renamed) == {
        "east-pool-relay": "exported",
        "east-front": "create",
        "east-frontend": "withdraw",
        "east-api": "withdraw",
    }


@pytest.mark.parametrize(
    ("seen", "under", "reason"),
    [
        (observed(pool()), settings(""), "ExportsOff"),
        (observed(None), settings(), "GraphNotFound"),
        (observed(pool(terminating=True)), settings(), "GraphTerminating"),
        (observed(pool(unsupported="backend etcd")), settings(), "UnsupportedDiscovery"),
        (observed(pool(shared=True)), settings(), "SharedNamespace"),
        (observed(pool(has_workers=False)), settings(), "NoWorkers"),
        (observed(pool(), of=relay(clusterId="")), settings(), "InvalidConfiguration"),
        (observed(pool(), strangers=(Stranger("Service", "x", "y"),)), settings(), "OwnershipConflict"),
        (observed(graph("east", [])), settings(), "NoFrontend"),
        (observed(graph("east", [Frontend("F", "x" * 64)])), settings(), "InvalidServiceName"),
        (observed(graph("east", [Frontend("F", "x" * 56)])), settings("karmada"), "ServiceNameTooLong"),
        (observed(pool(), cluster=cluster_property("two")), settings(), "ClusterIDMismatch"),
        (observed(pool(), export("east-frontend")), settings(), "ForeignExport"),
        (observed(pool(), export("east-frontend", owner(), dying=True)), settings(), "TerminatingExport"),
    ],
)
def test_each_obstacle_must_be_found(seen: Any, under: Any, reason: str) -> None:
    assert reasons(seen, under) == [reason]


def test_causes_must_all_be_told() -> None:
    seen = observed(
        replace(graph("east", []), unsupported="backend etcd", shared=True, has_workers=False),
        of=relay(clusterId="two"),
        cluster=cluster_property("one"),
    )
    assert reasons(seen) == [
        "UnsupportedDiscovery",
        "SharedNamespace",
        "NoWorkers",
        "NoFrontend",
        "ClusterIDMismatch",
    ]


def test_names_of_an_unpublished_pool_must_be_shown_and_withheld() -> None:
    seen = observed(pool(shared=True), export("east-frontend", owner()))
    assert states(seen) == {"east-pool-relay": "withheld", "east-frontend": "withdraw"}
    assert not check(seen, settings()).published
    assert set(states(observed(pool()), settings("")).values()) == {"withheld"}


def test_relay_whose_service_cannot_be_must_show_no_names() -> None:
    seen = observed(pool("a.b"), of=relay("a.b"))
    assert states(seen) == {}
    assert reasons(seen) == ["InvalidConfiguration"]


def test_frontend_that_discovery_does_not_look_for_must_be_noted() -> None:
    (note,) = check(observed(pool("east", "Api")), settings()).notes
    assert note.startswith("east-api does not end in -frontend")
