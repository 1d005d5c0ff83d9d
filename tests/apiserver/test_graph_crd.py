"""The API server takes good graphs in both versions, keeps every field of both, and refuses what could never
work, with its field."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.meta import Raw
from tests.support.graphs import ALPHA, BETA, alpha, beta, component, service
from tests.support.rawapi import RawApi

MANY = [component(f"c{number}") for number in range(26)]


def placed(manifest: Raw, namespace: str) -> Raw:
    return manifest | {"metadata": {**manifest["metadata"], "namespace": namespace}}


def full_beta() -> Raw:
    """A graph with every field of v1beta1."""
    engine = component(
        "Engine",
        "worker",
        replicas=2,
        globalDynamoNamespace=True,
        multinode={"nodeCount": 2},
        sharedMemorySize="1Gi",
        runtimeVersionOverride="1.0.0",
        modelRef={"name": "m", "revision": "r"},
        frontendSidecar="side",
        scalingAdapter={},
        compilationCache={"pvcName": "cache", "mountPath": "/cache"},
        minAvailable=1,
        topologyConstraint={"a": 1},
        experimental={"b": {"c": 2}},
        sidecars=[{"name": "side", "image": "y"}],
    )
    picker = component("Picker", "epp", eppConfig={"x": 1})
    return beta(
        "chat",
        engine,
        picker,
        env=[{"name": "A", "value": "b"}],
        labels={"team": "a"},
        annotations={"note": "b"},
        backendFramework="vllm",
        priorityClassName="high",
        providerOverride={"p": 1},
        topologyConstraint={"t": 1},
        experimental={"e": 1},
    )


def full_alpha() -> Raw:
    """A graph with every field of v1alpha1."""
    engine = service(
        "worker",
        subComponentType="decode",
        serviceName="x",
        dynamoNamespace="old",
        replicas=2,
        envs=[{"name": "A", "value": "b"}],
        envFromSecret="keys",
        resources={
            "limits": {"cpu": "1", "memory": "2Gi", "gpu": "1", "gpuType": "g", "custom": {"x/y": "1"}}
        },
        volumeMounts=[{"name": "cache", "mountPoint": "/cache", "useAsCompilationCache": True}],
        sharedMemory={"disabled": False, "size": "1Gi"},
        extraPodMetadata={"labels": {"a": "b"}, "annotations": {"c": "d"}},
        labels={"e": "f"},
        annotations={"g": "h"},
        livenessProbe={"httpGet": {"path": "/", "port": 1}},
        readinessProbe={"httpGet": {"path": "/", "port": 1}},
        scalingAdapter={"enabled": True},
        ingress={"enabled": True},
        autoscaling={"enabled": True},
        pod={"nodeSelector": {"disk": "ssd"}},
    )
    return alpha(
        services={"Engine": engine},
        envs=[{"name": "A", "value": "b"}],
        pvcs=[{"name": "cache", "create": True, "size": "1Gi", "storageClass": "s", "volumeAccessMode": "m"}],
        labels={"team": "a"},
    )


@pytest.mark.covers("GD-1", "GD-2", "GD-3", "GD-5", "GD-6")
@pytest.mark.parametrize("manifest", [full_beta(), full_alpha()], ids=["v1beta1", "v1alpha1"])
def test_graph_must_read_in_both_versions_as_it_was_written(
    serving_api: RawApi, namespace: str, manifest: Raw
) -> None:
    written, other = (BETA, ALPHA) if manifest["apiVersion"] == BETA.api_version else (ALPHA, BETA)
    answer = serving_api.create(written, placed(manifest, namespace))
    assert answer.code == 201, answer.message
    for resource in (other, written):
        assert contains(serving_api.get(resource, namespace, "chat").body["spec"], manifest["spec"])
        patch = {"metadata": {"annotations": {"touched": resource.version}}}
        assert serving_api.patch(resource, namespace, "chat", patch).code == 200
    found = serving_api.get(other, namespace, "chat").body
    assert found["apiVersion"] == other.api_version
    assert contains(found["spec"], manifest["spec"])
    assert found["metadata"]["generation"] == 1
    state = {"state": "failed", "components": {"Engine": {"replicas": 1}}, "services": {"Engine": {}}}
    assert serving_api.patch(written, namespace, "chat", {"status": state}, subresource="status").code == 200
    assert contains(serving_api.get(other, namespace, "chat").body["status"], state)
    table = serving_api.table(BETA, namespace, "chat")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Ready", "Backend", "Age"]


def contains(live: Any, written: Any) -> bool:
    """Whether nothing that was written is missing; defaults may have come."""
    if isinstance(written, dict):
        return isinstance(live, dict) and all(
            key in live and contains(live[key], written[key]) for key in written
        )
    if isinstance(written, list):
        return len(live) == len(written) and all(map(contains, live, written))
    return bool(live == written)


@pytest.mark.covers("GD-3", "GD-6", "GD-13", "G-5")
@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        pytest.param(beta("chat", *MANY), "spec.components", id="26 components"),
        pytest.param(
            beta("chat", component("Engine"), component("engine")), "spec.components", id="names by case"
        ),
        pytest.param(
            beta("chat", component("A", "epp"), component("B", "epp")), "spec.components", id="two epps"
        ),
        pytest.param(beta("chat", {"name": "Engine"}), "spec.components[0].podTemplate", id="no template"),
        pytest.param(
            beta("chat", component("Engine", main={"name": "other"})),
            "spec.components[0].podTemplate",
            id="no main",
        ),
        pytest.param(
            beta("chat", component("Engine", image="")), "spec.components[0].podTemplate", id="no image"
        ),
        pytest.param(
            beta("chat", component("Engine", replicas=-1)), "spec.components[0].replicas", id="negative"
        ),
        pytest.param(beta("chat", component("a b")), "spec.components[0].name", id="a space in a name"),
        pytest.param(beta("chat", component("x" * 59)), "spec.components", id="a long name"),
        pytest.param(beta("1chat"), "metadata.name", id="a digit first"),
        pytest.param(beta("chat", component("E", "Worker")), "spec.components[0].type", id="another type"),
        pytest.param(
            beta("chat", component("E", sharedMemorySize="much")),
            "spec.components[0].sharedMemorySize",
            id="no quantity",
        ),
        pytest.param(beta("chat", services={"E": service()}), "spec.services", id="both forms"),
        pytest.param(beta("chat", restart={"id": "1"}), "spec.restart", id="a restart at the start"),
        pytest.param(
            alpha(services={f"s{n}": service() for n in range(26)}), "spec.services", id="26 services"
        ),
        pytest.param(
            alpha(services={"Engine": service(), "engine": service()}), "spec.services", id="keys by case"
        ),
        pytest.param(
            alpha(services={"A": service("epp"), "B": service("epp")}), "spec.services", id="two epp services"
        ),
        pytest.param(alpha(services={"a b": service()}), "spec.services", id="a space in a key"),
        pytest.param(
            alpha(services={"A": {"extraPodSpec": {}}}), "spec.services.A.extraPodSpec", id="no container"
        ),
        pytest.param(
            alpha(services={"A": service(replicas=-1)}), "spec.services.A.replicas", id="negative service"
        ),
    ],
)
def test_graph_that_cannot_work_must_be_refused_with_its_field(
    serving_api: RawApi, namespace: str, manifest: Raw, field: str
) -> None:
    resource = BETA if manifest["apiVersion"] == BETA.api_version else ALPHA
    answer = serving_api.create(resource, placed(manifest, namespace), dry_run=True)
    assert answer.code == 422, answer.body
    assert {each.replace("[A]", ".A") for each in answer.fields} == {field}


@pytest.mark.covers("G-5")
def test_type_must_not_change_in_either_form(serving_api: RawApi, namespace: str) -> None:
    for manifest, resource, changed in (
        (beta("chat"), BETA, beta("chat", component("Frontend", "frontend"), component("Engine", "decode"))),
        (alpha("talk"), ALPHA, alpha(services={"Engine": service("planner")})),
    ):
        assert serving_api.create(resource, placed(manifest, namespace)).code == 201
        name = manifest["metadata"]["name"]
        answer = serving_api.patch(resource, namespace, name, {"spec": changed["spec"]})
        assert answer.code == 422
        assert {field.rpartition(".")[2] for field in answer.fields} <= {"type", "componentType"}
        assert answer.fields


@pytest.mark.covers("GD-42")
def test_restart_may_be_asked_for_later(serving_api: RawApi, namespace: str) -> None:
    assert serving_api.create(BETA, placed(beta("chat"), namespace)).code == 201
    patch = {"spec": {"restart": {"id": "1", "strategy": {"type": "Parallel"}}}}
    assert serving_api.patch(BETA, namespace, "chat", patch).code == 200
