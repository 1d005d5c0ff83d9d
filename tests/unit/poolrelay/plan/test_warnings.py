"""What people are told: warnings of a plan, the cluster's ID, and each write (sections 10 and 11)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.meta import ObjectMeta
from isthmus.api.poolrelay import ClusterProperty
from isthmus.errors import IsthmusError
from isthmus.kube.answers import Written
from isthmus.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, ServerError, Unreachable
from isthmus.poolrelay.executor import is_settled
from isthmus.poolrelay.plan.model import (
    CreateExport,
    DeleteExport,
    Frontend,
    PropertyState,
    Related,
    RepairExport,
    Unreadable,
)
from isthmus.poolrelay.plan.reconcile import plan
from isthmus.poolrelay.plan.warnings import of_cluster_id, of_write
from tests.support.relays import (
    cluster_property,
    export,
    graph,
    observed,
    owner,
    pool,
    settings,
    steps,
    told,
)

FOUND = export("east-frontend", owner())
CREATE, REPAIR, DELETE = CreateExport("east-frontend", {}), RepairExport(FOUND, {}), DeleteExport(FOUND)
WRITTEN = Written("east-frontend", "serving", "new-uid", "99")
AS_READ = Related(
    "multicluster.x-k8s.io/v1alpha1", "ServiceExport", "serving", "east-frontend", "east-frontend-uid", "11"
)


@pytest.mark.covers("PR-79", "PR-80", "T-39")
@pytest.mark.parametrize("implementation", ["mcs", "karmada"])
def test_warning_of_a_name_must_name_the_pool_as_it_was_read(implementation: str) -> None:
    seen = graph("east", [Frontend("A", "a" * 60), Frontend("B", "b" * 64)])
    planned = plan(observed(seen), settings(implementation))
    expected = ["InvalidServiceName"] + (["ServiceNameTooLong"] if implementation == "karmada" else [])
    assert told(planned) == expected
    none = plan(observed(graph("east", [])), settings()).events
    for event in (*planned.events, *none):
        assert event.related == Related(
            "nvidia.com/v1beta1", "DynamoGraphDeployment", "serving", "east", "east-uid", "3"
        )
        assert (event.type, event.action) == ("Warning", "Export")


@pytest.mark.covers("PR-81", "R32")
def test_several_bad_names_must_be_one_event_that_lists_them() -> None:
    many = [Frontend(f"F{index}", f"{index}" + "x" * 63) for index in range(25)]
    (event,) = plan(observed(graph("east", many)), settings()).events
    assert "0xxx" in event.note
    assert "and 5 more" in event.note
    (event,) = plan(observed(graph("east", many[:20])), settings()).events
    assert "more" not in event.note


@pytest.mark.covers("PR-18", "PR-84", "T-41")
def test_other_cluster_id_must_be_warned_of_and_exported_all_the_same() -> None:
    planned = plan(observed(pool(), cluster=cluster_property("two")), settings())
    assert steps(planned) == ["Create east-pool-relay", "Create east-frontend"]
    (event,) = planned.events
    assert (event.type, event.reason, event.action) == ("Warning", "ClusterIDMismatch", "CheckClusterID")
    assert event.related.kind == "ClusterProperty"
    assert (event.related.uid, event.related.resource_version) == ("property-uid", "5")
    assert "one" in event.note
    assert "two" in event.note
    assert event.related.api_version == "about.k8s.io/v1beta1"
    older = msgspec.structs.replace(cluster_property("two"), api_version="about.k8s.io/v1alpha1")
    (event,) = of_cluster_id("one", older)
    assert event.related.api_version == "about.k8s.io/v1alpha1"


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(cluster_property("one"), marks=pytest.mark.covers("PR-85", "T-40", "T-123")),
        pytest.param(PropertyState.ABSENT, marks=pytest.mark.covers("PR-86", "PR-88", "T-42", "T-47")),
        pytest.param(cluster_property(""), marks=pytest.mark.covers("PR-86", "T-43")),
        pytest.param(PropertyState.UNWATCHED, marks=pytest.mark.covers("PR-87", "T-44", "T-122")),
        pytest.param(PropertyState.UNKNOWN),
    ],
)
def test_id_that_is_equal_or_not_there_must_be_passed_over(cluster: Any) -> None:
    planned = plan(observed(pool(), cluster=cluster), settings())
    assert (planned.events, planned.unread) == ((), "")


@pytest.mark.covers("PR-86", "T-124")
@pytest.mark.parametrize("raw_spec", [b"{}", b'{"value": ""}', b'{"value": 7}', b"null", b'{"value": null}'])
def test_property_without_a_usable_value_must_be_silent(raw_spec: bytes) -> None:
    raw = b'{"metadata": {"name": "cluster.clusterset.k8s.io"}, "spec": %b}' % raw_spec
    found = msgspec.json.decode(raw, type=ClusterProperty)
    assert found.spec.value == ""
    assert of_cluster_id("one", found) == []
    bare = ClusterProperty(metadata=ObjectMeta(name="cluster.clusterset.k8s.io"))
    assert of_cluster_id("one", bare) == []


@pytest.mark.covers("PR-89", "T-45", "T-47", "T-120")
def test_id_that_cannot_be_read_must_be_told_and_export_all_the_same() -> None:
    planned = plan(observed(pool(), cluster=Unreadable("403 Forbidden")), settings())
    assert steps(planned) == ["Create east-pool-relay", "Create east-frontend"]
    assert planned.unread == "403 Forbidden"
    (event,) = planned.events
    assert (event.reason, event.related.name) == ("ExportFailed", "cluster.clusterset.k8s.io")


# Writes


@pytest.mark.covers("PR-79", "PR-80", "PR-82", "T-38", "T-114")
@pytest.mark.parametrize(
    ("action", "result", "reason", "verb", "related"),
    [
        (CREATE, WRITTEN, "ExportCreated", "Export", AS_READ._replace(uid="new-uid", resource_version="99")),
        (REPAIR, WRITTEN, "ExportRepaired", "Export", AS_READ),
        (DELETE, None, "ExportDeleted", "Withdraw", AS_READ),
    ],
)
def test_write_that_was_done_must_be_told_with_its_export(
    action: Any, result: Any, reason: str, verb: str, related: Related
) -> None:
    (event,) = of_write(action, result, "serving", settings())
    assert (event.type, event.reason, event.action, event.related) == ("Normal", reason, verb, related)


@pytest.mark.covers("PR-74", "PR-82", "T-27", "T-28")
@pytest.mark.parametrize("error", [Forbidden(403), ServerError(500), Unreachable("gone"), NotFound(404)])
def test_failed_creation_must_be_told_with_what_is_known_of_the_export(error: IsthmusError) -> None:
    (event,) = of_write(CREATE, error, "serving", settings())
    assert (event.type, event.reason) == ("Warning", "ExportFailed")
    assert event.related == AS_READ._replace(uid="", resource_version="")
    assert not is_settled(CREATE, error)


@pytest.mark.covers("PR-74", "T-28")
@pytest.mark.parametrize("action", [REPAIR, DELETE])
def test_failed_repair_or_deletion_must_be_told_with_the_export_as_read(action: Any) -> None:
    (event,) = of_write(action, ServerError(500, message="broken"), "serving", settings())
    assert (event.reason, event.related) == ("ExportFailed", AS_READ)
    assert "broken" in event.note


@pytest.mark.parametrize(
    ("action", "error", "settled"),
    [
        pytest.param(
            CREATE,
            AlreadyExists(409),
            True,
            marks=pytest.mark.covers("PR-61", "T-26", "T-112"),
            id="made by another",
        ),
        pytest.param(
            DELETE, NotFound(404), True, marks=pytest.mark.covers("PR-68", "T-14", "T-113"), id="gone"
        ),
        pytest.param(DELETE, Conflict(409), False, marks=pytest.mark.covers("PR-68"), id="changed before"),
        pytest.param(
            REPAIR, Conflict(409), False, marks=pytest.mark.covers("PR-66"), id="changed before repair"
        ),
        pytest.param(REPAIR, NotFound(404), False, id="gone before repair"),
    ],
)
def test_lost_race_must_raise_no_event(action: Any, error: IsthmusError, settled: bool) -> None:
    assert of_write(action, error, "serving", settings()) == []
    assert is_settled(action, error) is settled
