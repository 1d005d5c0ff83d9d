from __future__ import annotations

import json
import sys
import tracemalloc

import msgspec
import pytest

from isthmus.api import labels
from isthmus.api.decode import MESSAGE_LIMIT
from isthmus.api.meta import Raw
from isthmus.api.pods import (
    CONTROLLER_REVISIONS,
    SERVING_PODS,
    SERVING_SERVICES,
    ControllerRevision,
    PodStatus,
    ServingAnnotations,
    ServingPod,
    ServingService,
)

BYTES_PER_POD = 2_000


class Page(msgspec.Struct):
    items: list[ServingPod]


def pod(number: int = 0, **status: object) -> Raw:
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastProbeTime": None}
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "metadata": {
            "name": f"demo-{number % 50}-prefill-0-{number}",
            "namespace": "default",
            "uid": f"4b5b1c9e-0000-4000-8000-{number:012d}",
            "resourceVersion": str(100_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                labels.NAME: "demo",
                labels.GROUP_NAME: f"demo-{number % 50}",
                labels.ROLE: "prefill",
                labels.ROLE_ID: "prefill-0",
                labels.REVISION: "8574cb849",
                labels.ROLE_TEMPLATE_HASH: "8574cb849",
                labels.ENTRY: "true",
                "team": "serving",
            },
            "annotations": {"team/notes": "x" * 200},
            "managedFields": [{"manager": "isthmus", "fieldsV1": {"f:metadata": {"f:labels": {}}}}] * 3,
            "ownerReferences": [
                {
                    "apiVersion": "workload.serving.volcano.sh/v1alpha1",
                    "kind": "ModelServing",
                    "name": "demo",
                    "uid": "9c9c1c9e-0000-4000-8000-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"nodeName": f"node-{number % 20}", "containers": [{"name": "engine", "image": "x"}]},
        "status": {
            "phase": "Running",
            "conditions": ready,
            "containerStatuses": [
                {
                    "name": "engine",
                    "ready": True,
                    "restartCount": 0,
                    "lastState": {},
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
            **status,
        },
    }


def decode(raw_pod: Raw) -> ServingPod:
    return msgspec.json.decode(json.dumps(raw_pod).encode(), type=ServingPod)


@pytest.mark.covers("MS-27")
def test_labels_must_be_typed_fields() -> None:
    decoded = decode(pod()).metadata.labels
    assert (decoded.name, decoded.group_name, decoded.role, decoded.role_id) == (
        "demo",
        "demo-0",
        "prefill",
        "prefill-0",
    )
    assert (decoded.revision, decoded.role_template_hash, decoded.entry) == ("8574cb849", "8574cb849", "true")


def test_absent_labels_must_be_empty() -> None:
    decoded = decode({"metadata": {"name": "orphan"}})
    assert (decoded.metadata.labels.group_name, decoded.entry, decoded.status) == ("", False, PodStatus())


def test_pod_must_fit_its_memory_budget() -> None:
    pages = [json.dumps({"items": [pod(p * 250 + i) for i in range(250)]}).encode() for p in range(4)]
    decoder = msgspec.json.Decoder(Page)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        pods = [item for page in pages for item in decoder.decode(page).items]
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / len(pods) < BYTES_PER_POD


def test_equal_texts_must_be_shared_between_pods() -> None:
    first, second = decode(pod(0)).metadata, decode(pod(50)).metadata
    assert first.labels.group_name is second.labels.group_name
    assert first.owner_references[0].uid is second.owner_references[0].uid
    assert first.annotations is second.annotations


def test_true_conditions_other_than_ready_must_be_dropped() -> None:
    assert [condition.type for condition in decode(pod()).status.conditions] == ["Ready"]


def test_false_conditions_must_be_kept_with_their_reason() -> None:
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no node",
    }
    status = decode(pod(phase="Pending", conditions=[unschedulable])).status
    assert [(c.type, c.reason, c.message) for c in status.conditions] == [
        ("PodScheduled", "Unschedulable", "no node")
    ]


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_readiness_must_follow_the_ready_condition(status: str, ready: bool) -> None:
    decoded = decode(pod(conditions=[{"type": "Ready", "status": status, "lastTransitionTime": "t"}]))
    assert decoded.ready is ready
    assert decoded.ready_condition is not None
    assert decoded.ready_condition.last_transition_time == "t"


def test_pod_without_a_ready_condition_must_not_be_ready() -> None:
    decoded = decode(pod(conditions=[]))
    assert decoded.ready is False
    assert decoded.ready_condition is None


def test_container_that_ended_must_say_how() -> None:
    ended = {
        "exitCode": 137,
        "reason": "OOMKilled",
        "message": "x" * 5000,
        "finishedAt": "2026-01-01T00:00:01Z",
    }
    raw_status = {
        "name": "engine",
        "ready": False,
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": ended},
    }
    (status,) = decode(pod(containerStatuses=[raw_status])).status.container_statuses
    assert status.state.waiting is not None
    assert status.state.waiting.reason == "CrashLoopBackOff"
    assert status.last_state.terminated is not None
    assert (status.last_state.terminated.exit_code, status.last_state.terminated.reason) == (137, "OOMKilled")
    assert len(status.last_state.terminated.message) == MESSAGE_LIMIT
    assert status.last_state.terminated.finished_at == "2026-01-01T00:00:01Z"


def test_restarts_must_count_init_containers_too() -> None:
    raw_pod = pod(
        containerStatuses=[{"name": "a", "restartCount": 2}, {"name": "b", "restartCount": 1}],
        initContainerStatuses=[{"name": "i", "restartCount": 4}],
    )
    assert decode(raw_pod).restarts == 7


@pytest.mark.parametrize(
    ("text", "cost"),
    [("7", 7), ("-3", -3), ("", 0), ("x", 0), ("1.5", 0), ("99999999999", 0), ("2147483647", 2147483647)],
)
def test_deletion_cost_must_be_a_32_bit_integer_or_nothing(text: str, cost: int) -> None:
    raw_pod = pod()
    raw_pod["metadata"]["annotations"] = {labels.DELETION_COST: text}
    assert decode(raw_pod).deletion_cost == cost


def test_other_annotations_must_be_dropped() -> None:
    assert decode(pod()).metadata.annotations == ServingAnnotations()


def test_terminating_pod_must_say_so() -> None:
    raw_pod = pod()
    raw_pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert decode(raw_pod).metadata.terminating
    assert not decode(pod()).metadata.terminating


def test_controller_must_be_the_owner_that_controls() -> None:
    owner = decode(pod()).metadata.controller()
    assert owner is not None
    assert (owner.kind, owner.name) == ("ModelServing", "demo")


def test_service_must_be_read_by_its_metadata_alone() -> None:
    raw_service = {
        "metadata": {"name": "s", "labels": {labels.ROLE_ID: "a-0"}},
        "spec": {"clusterIP": "None"},
    }
    service = msgspec.json.decode(json.dumps(raw_service).encode(), type=ServingService)
    assert service.metadata.labels.role_id == "a-0"


@pytest.mark.covers("MS-77")
def test_controller_revision_must_keep_its_data_but_not_the_page() -> None:
    page = b'{"metadata":{"name":"r"},"revision":3,"data":{"data":[{"name": "a"}]}}' + b" " * 10_000
    before = sys.getrefcount(page)
    revision = msgspec.json.decode(page, type=ControllerRevision)
    assert sys.getrefcount(page) == before
    assert (revision.revision, bytes(revision.data)) == (3, b'{"data":[{"name": "a"}]}')


def test_resources_must_have_their_paths() -> None:
    assert SERVING_PODS.path("ns") == "/api/v1/namespaces/ns/pods"
    assert SERVING_SERVICES.path("ns") == "/api/v1/namespaces/ns/services"
    assert CONTROLLER_REVISIONS.path("ns") == "/apis/apps/v1/namespaces/ns/controllerrevisions"
