from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.dynamo.graphs import DynamoGraphDeployment
from isthmus.api.dynamo.normalise import normalise
from isthmus.api.meta import Raw
from tests.support.graphs import alpha, beta, bodies, component, example, look, read, service


def same(one: Raw, other: Raw) -> None:
    """Both manifests mean the same graph, wherever they say it."""
    left, right = normalise(read(one)), normalise(read(other))
    assert not left.problems
    by_name = {each.name: each for each in left.components}
    for each in right.components:
        assert msgspec.structs.replace(by_name[each.name], path="") == msgspec.structs.replace(each, path="")
    assert (left.env, left.labels, left.priority_class) == (right.env, right.labels, right.priority_class)
    assert bodies(look(one)) == bodies(look(other))


@pytest.mark.covers("GD-4", "GD-6", "G-1")
def test_example_pair_must_mean_the_same() -> None:
    same(example("aggregated"), example("aggregated-v1alpha1"))


@pytest.mark.covers("GD-4", "G-1")
@pytest.mark.parametrize(
    ("of_beta", "of_alpha"),
    [
        pytest.param(
            component("E", "prefill", replicas=2),
            service("worker", subComponentType="prefill", replicas=2),
            id="phases",
        ),
        pytest.param(component("E"), service("default"), id="untyped"),
        pytest.param(component("E", "planner"), service("planner", subComponentType="decode"), id="sub type"),
        pytest.param(
            component("E", main={"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]}),
            service(
                "",
                envs=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                main={"env": [{"name": "B", "value": "3"}]},
            ),
            id="environment",
        ),
        pytest.param(
            component("E", main={"envFrom": [{"secretRef": {"name": "keys"}}]}),
            service(envFromSecret="keys"),
            id="secret",
        ),
        pytest.param(
            component("E", main={"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1", "x/y": "3"}}}),
            service(resources={"limits": {"cpu": 2, "gpu": "1", "custom": {"x/y": "3"}}}),
            id="resources",
        ),
        pytest.param(
            component(
                "E", main={"resources": {"requests": {"memory": "2Gi"}, "limits": {"amd.com/gpu": "2"}}}
            ),
            service(
                resources={"requests": {"memory": "1Gi"}, "limits": {"gpu": "2", "gpuType": "amd.com/gpu"}},
                main={"resources": {"requests": {"memory": "2Gi"}}},
            ),
            id="resources of the container win",
        ),
        pytest.param(
            component("E", main={"livenessProbe": {"exec": {"command": ["a"]}}}),
            service(livenessProbe={"exec": {"command": ["a"]}}),
            id="probe",
        ),
        pytest.param(
            component("E", pod={"nodeSelector": {"a": "b"}}, sidecars=[{"name": "side", "image": "s"}]),
            service(pod={"nodeSelector": {"a": "b"}, "containers": [{"name": "side", "image": "s"}]}),
            id="pod",
        ),
        pytest.param(
            component(
                "E", template={"metadata": {"labels": {"a": "2", "b": "1"}, "annotations": {"c": "1"}}}
            ),
            service(
                labels={"a": "1", "b": "1"},
                extraPodMetadata={"labels": {"a": "2"}, "annotations": {"c": "1"}},
            ),
            id="metadata",
        ),
        pytest.param(
            component("E", sharedMemorySize="0"), service(sharedMemory={"disabled": True}), id="no memory"
        ),
        pytest.param(
            component("E", sharedMemorySize="1Gi"), service(sharedMemory={"size": "1Gi"}), id="memory"
        ),
        pytest.param(
            component("E", compilationCache={"pvcName": "c", "mountPath": "/c"}),
            service(volumeMounts=[{"name": "c", "mountPoint": "/c", "useAsCompilationCache": True}]),
            id="claim",
        ),
        pytest.param(
            component("E", globalDynamoNamespace=True), service(globalDynamoNamespace=True), id="shared"
        ),
    ],
)
def test_component_and_service_must_mean_the_same(of_beta: Raw, of_alpha: Raw) -> None:
    same(beta("chat", of_beta), alpha(services={"E": of_alpha}))


@pytest.mark.covers("GD-4", "GD-5", "GD-6")
def test_form_must_be_told_by_fields_not_by_version() -> None:
    swapped = alpha() | {"apiVersion": "nvidia.com/v1beta1"}
    assert normalise(read(swapped)) == normalise(read(alpha()))


@pytest.mark.covers("GD-5")
def test_order_of_services_must_not_matter() -> None:
    one = alpha(services={"B": service("worker"), "A": service("frontend")})
    other = alpha(services={"A": service("frontend"), "B": service("worker")})
    assert normalise(read(one)) == normalise(read(other))


@pytest.mark.covers("GD-18", "G-5")
@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        pytest.param(
            beta("chat", *(component(f"c{n}") for n in range(26))), "spec.components", id="26 components"
        ),
        pytest.param(
            beta("chat", component("Engine"), component("engine")), "spec.components[1].name", id="by case"
        ),
        pytest.param(
            beta("chat", component("a", "epp"), component("b", "epp")),
            "spec.components[1].type",
            id="two epps",
        ),
        pytest.param(
            beta("chat", component("E", main={"name": "other"})),
            "spec.components[0].podTemplate",
            id="no main",
        ),
        pytest.param(beta("chat", {"name": "E"}), "spec.components[0].podTemplate", id="no template"),
        pytest.param(
            beta("chat", component("E", image=" ")), "spec.components[0].podTemplate", id="no image"
        ),
        pytest.param(beta("chat", component("E", replicas=-1)), "spec.components[0].replicas", id="negative"),
        pytest.param(
            beta("chat", component("E", replicas=2**31)), "spec.components[0].replicas", id="too many"
        ),
        pytest.param(beta("chat", component("a/b")), "spec.components[0].name", id="no name"),
        pytest.param(beta("chat", component("x" * 59)), "spec.components[0].name", id="long name"),
        pytest.param(beta("1chat", component("E")), "spec.components[0].name", id="no Service's name"),
        pytest.param(beta("chat", component("E", "Worker")), "spec.components[0].type", id="type"),
        pytest.param(beta("x" * 56, component("E")), "metadata.name", id="long label"),
        pytest.param(beta("chat", services={"Z": service()}), "spec.services", id="both forms"),
        pytest.param(
            beta("chat", component("E", frontendSidecar="gone")),
            "spec.components[0].frontendSidecar",
            id="sidecar",
        ),
        pytest.param(
            beta("chat", component("E", compilationCache={"pvcName": "c"})),
            "spec.components[0].compilationCache",
            id="half a cache",
        ),
        pytest.param(
            beta("chat", component("E", pod={"containers": 3})), "spec.components[0].podTemplate", id="list"
        ),
        pytest.param(
            beta("chat", component("E", main={"env": [{"value": "x"}]})),
            "spec.components[0].podTemplate",
            id="env",
        ),
        pytest.param(
            beta("chat", {"name": "E", "podTemplate": 1}),
            "spec.components[0].podTemplate",
            id="number",
        ),
        pytest.param(beta("chat", env="x"), "spec.env", id="no list"),
        pytest.param(beta("chat", env=[{"name": 1}]), "spec.env", id="no variable"),
        pytest.param(
            alpha(services={"E": service(pod={"mainContainer": 1})}),
            "spec.services[E]",
            id="main is a number",
        ),
        pytest.param(
            alpha(services={"E": service(pod={"containers": "x"})}),
            "spec.services[E]",
            id="text for containers",
        ),
        pytest.param(alpha(services={"E": {"extraPodSpec": 5}}), "spec.services[E]", id="pod is a number"),
        pytest.param(
            alpha(services={"E": service(main={"env": [1]})}), "spec.services[E]", id="number for a variable"
        ),
        pytest.param(
            alpha(services={"E": service(envs=[{"value": "x"}])}), "spec.services[E]", id="nameless"
        ),
        pytest.param(
            alpha(services={"E": service(volumeMounts=[{"name": "c"}])}),
            "spec.services[E].volumeMounts[0]",
            id="mount",
        ),
        pytest.param(alpha(services={"": service()}), "spec.services[].name", id="empty key"),
    ],
)
def test_what_came_past_the_crd_must_be_a_problem_with_its_field(manifest: Raw, path: str) -> None:
    graph = normalise(read(manifest))
    assert path in {each.path for each in graph.problems}, graph.problems
    assert look(manifest).actions == ()


@pytest.mark.parametrize(
    "spec", ["text", 5, {"components": 3}, {"components": [{"replicas": "x"}]}, {"services": [1]}]
)
def test_unreadable_spec_must_be_a_problem_and_never_raise(spec: Any) -> None:
    graph = normalise(read(beta() | {"spec": spec}))
    assert [each.path for each in graph.problems] == ["spec"]


def test_unreadable_status_must_be_an_empty_one() -> None:
    found = read(beta() | {"status": {"conditions": 3}})
    assert isinstance(found, DynamoGraphDeployment)
    assert found.status.state == ""


@pytest.mark.covers("GD-40", "G-13")
@pytest.mark.parametrize(
    ("manifest", "path", "reason"),
    [
        (
            beta("chat", component("E", multinode={})),
            "spec.components[0].multinode",
            "no_multinode_orchestrator",
        ),
        (beta("chat", component("E", modelRef={})), "spec.components[0].modelRef", "unsupported_field"),
        (
            beta("chat", component("E", scalingAdapter={})),
            "spec.components[0].scalingAdapter",
            "unsupported_field",
        ),
        (
            beta("chat", component("E", "epp", eppConfig={})),
            "spec.components[0].eppConfig",
            "unsupported_field",
        ),
        (beta("chat", restart={"id": "1"}), "spec.restart", "unsupported_field"),
        (alpha(pvcs=[{"name": "c", "create": True}]), "spec.pvcs[0].create", "unsupported_field"),
        (
            alpha(services={"E": service(scalingAdapter={"enabled": True})}),
            "spec.services[E].scalingAdapter",
            "unsupported_field",
        ),
    ],
)
def test_part_that_is_not_run_must_be_refused_by_name(manifest: Raw, path: str, reason: str) -> None:
    graph = normalise(read(manifest))
    assert [(each.path, each.reason) for each in graph.refusals] == [(path, reason)]
    assert not graph.problems


@pytest.mark.covers("GD-23")
def test_what_has_no_effect_must_be_a_warning() -> None:
    odd = alpha(services={"E": service(dynamoNamespace="old", ingress={"enabled": True})})
    assert {each.path for each in normalise(read(odd)).warnings} == {
        "spec.services[E].dynamoNamespace",
        "spec.services[E].ingress",
    }
    right = alpha(services={"E": service(dynamoNamespace="serving-chat", scalingAdapter={"enabled": False})})
    graph = normalise(read(right))
    assert (graph.warnings, graph.refusals) == ((), ())
