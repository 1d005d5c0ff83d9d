"""The API server takes good relays, gives them their defaults, and refuses what could never work."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.meta import Raw
from isthmus.api.poolrelay import POOL_RELAYS
from tests.support.rawapi import RawApi

SERVING = {"apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "name": "chat"}
GRAPH = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "name": "east"}


def manifest(namespace: str, name: str = "east", **spec: Any) -> Raw:
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoPoolRelay",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterId": "one"} | spec,
    }


@pytest.mark.covers("PR-16", "PR-17")
def test_good_relay_must_be_accepted_with_its_defaults(serving_api: RawApi, namespace: str) -> None:
    full = manifest(
        namespace,
        targetRef=SERVING,
        image="relay:1",
        imagePullSecrets=[{"name": "pull"}],
        resources={"limits": {"cpu": "1"}},
        env=[{"name": "A", "value": "b"}],
    )
    answer = serving_api.create(POOL_RELAYS, full)
    assert answer.code == 201, answer.message
    spec = answer.body["spec"]
    assert (spec["replicas"], spec["grpcPort"], spec["systemPort"]) == (1, 5561, 8081)
    path = POOL_RELAYS.path(namespace, "east", "status")
    status = {"status": {"clusterId": "one", "serviceName": "east-pool-relay"}}
    assert serving_api.call("PATCH", path, status, content_type="application/merge-patch+json").code == 200
    table = serving_api.table(POOL_RELAYS, namespace, "east")
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Cluster", "Service", "Ready", "Reason", "Age"]
    assert table["rows"][0]["cells"][1:3] == ["one", "east-pool-relay"]


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        pytest.param("e" * 52, {}, id="the longest name"),
        pytest.param("east", {"clusterId": "", "clusterIdFrom": "ClusterProperty"}, id="no ID of its own"),
        pytest.param("east", {"targetRef": GRAPH}, id="its own graph"),
        pytest.param("east", {"clusterId": "a b"}, id="a space within"),
    ],
)
@pytest.mark.covers("PR-17")
def test_relay_at_the_edge_must_be_accepted(
    serving_api: RawApi, namespace: str, name: str, spec: Raw
) -> None:
    answer = serving_api.create(POOL_RELAYS, manifest(namespace, name, **spec), dry_run=True)
    assert answer.code == 201, answer.message


@pytest.mark.parametrize(
    ("name", "spec", "field"),
    [
        pytest.param("e" * 53, {}, "metadata.name", id="too long"),
        pytest.param("east.v1", {}, "metadata.name", id="a dot"),
        pytest.param("1east", {}, "metadata.name", id="a digit first"),
        pytest.param("east", {"clusterId": ""}, "spec.clusterId", id="no ID"),
        pytest.param("east", {"clusterId": " one"}, "spec.clusterId", id="a space before"),
        pytest.param("east", {"clusterId": "one\n"}, "spec.clusterId", id="a line end after"),
        pytest.param("east", {"clusterId": "x" * 254}, "spec.clusterId", id="a long ID"),
        pytest.param("east", {"clusterIdFrom": "Secret"}, "spec.clusterIdFrom", id="another source"),
        pytest.param("east", {"grpcPort": 0}, "spec.grpcPort", id="no port"),
        pytest.param("east", {"systemPort": 65536}, "spec.systemPort", id="past the last port"),
        pytest.param("east", {"grpcPort": 8081}, "spec.systemPort", id="one port twice"),
        pytest.param("east", {"replicas": -1}, "spec.replicas", id="negative"),
        pytest.param("east", {"targetRef": {**SERVING, "kind": "Pod"}}, "spec.targetRef.kind", id="a pod"),
        pytest.param(
            "east",
            {"targetRef": {**SERVING, "apiVersion": "v1"}},
            "spec.targetRef.apiVersion",
            id="a core kind",
        ),
        pytest.param(
            "east", {"targetRef": {**GRAPH, "name": "west"}}, "spec.targetRef.name", id="another's graph"
        ),
    ],
)
@pytest.mark.covers("PR-17", "PR-28")
def test_relay_that_cannot_work_must_be_refused_with_its_field(
    serving_api: RawApi, namespace: str, name: str, spec: Raw, field: str
) -> None:
    answer = serving_api.create(POOL_RELAYS, manifest(namespace, name, **spec), dry_run=True)
    assert answer.code == 422, answer.body
    assert answer.fields == {field}
