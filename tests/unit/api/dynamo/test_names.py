from __future__ import annotations

import msgspec
import pytest

from isthmus.api.dynamo import names
from isthmus.api.dynamo.analysis import analyse
from isthmus.api.dynamo.normalise import normalise
from isthmus.api.poolgraph import PoolGraph
from isthmus.graph.plan.model import GraphSettings
from isthmus.poolrelay.plan.pool import graph_pool
from tests.support.graphs import BACKEND, MODE, alpha, beta, component, example, look, read, steps


@pytest.mark.covers("GD-11", "GD-13")
@pytest.mark.parametrize(
    ("graph", "component", "deployment", "service"),
    [
        ("chat", "Frontend", "chat-frontend", "chat-frontend"),
        ("llm.v1", "Frontend", "llm.v1-frontend", "llm-v1-frontend"),
        ("a", "B-c", "a-b-c", "a-b-c"),
    ],
)
def test_names_must_be_those_of_upstream(graph: str, component: str, deployment: str, service: str) -> None:
    assert names.component_base_name(graph, component) == deployment
    assert names.component_service_name(graph, component) == service


@pytest.mark.covers("GD-15")
def test_rights_must_have_the_names_of_upstream() -> None:
    assert names.discovery_account("chat") == "chat-k8s-service-discovery"
    assert names.discovery_role("chat") == "chat-k8s-service-discovery-role"
    assert names.discovery_binding("chat") == "chat-k8s-service-discovery-binding"


@pytest.mark.covers("GD-19", "GD-20", "G-11")
def test_dynamo_namespaces_of_two_graphs_must_differ() -> None:
    assert names.dynamo_namespace("n", "a") == "n-a"
    assert names.dynamo_namespace("n", "a-b") == "n-a-b"
    assert names.dynamo_namespace("n", "llm.v1") == "n-llm-v1"
    assert names.component_namespace("n", "a", shared=True) == "dynamo"


@pytest.mark.covers("GD-7", "GD-8", "GD-10", "GD-22", "GD-24", "G-6", "G-8")
def test_analysis_must_say_who_is_what() -> None:
    manifest = beta(
        "llm.v1",
        component("Frontend", "frontend"),
        component("Idle", "prefill", replicas=0),
        component("Shout", "Worker"),
        annotations={MODE: "container"},
    )
    graph = read(manifest, deletionTimestamp="2026-01-01T00:00:00Z")
    found = analyse(graph.metadata, normalise(graph).components, "etcd")
    assert (found.terminating, found.backend, found.mode) == (True, "etcd", "container")
    assert (found.frontends, found.workers) == (("Frontend",), ("Idle",))
    assert (found.global_namespace, found.base_namespace) == (False, "serving-llm-v1")
    assert found.service_names["Frontend"] == "llm-v1-frontend"
    own = read(beta("chat", annotations={BACKEND: "kubernetes"}))
    assert analyse(own.metadata, (), "etcd").backend == "kubernetes"
    shared = read(example("etcd"))
    assert analyse(shared.metadata, normalise(shared).components, "kubernetes").global_namespace


@pytest.mark.covers("GD-14", "PR-38", "PR-114")
@pytest.mark.parametrize("manifest", [beta("llm.v1"), alpha("llm.v1")], ids=["v1beta1", "v1alpha1"])
def test_relays_must_name_the_services_that_graphs_make(manifest: dict[str, object]) -> None:
    graph = read(manifest)
    raw = msgspec.json.encode(
        manifest
        | {"metadata": {"name": "llm.v1", "namespace": "serving", "uid": "u", "resourceVersion": "1"}}
    )
    pool = graph_pool(msgspec.json.decode(raw, type=PoolGraph), "kubernetes")
    made = steps(look(manifest))
    assert [f"Create Service {each.service}" in made for each in pool.frontends] == [True]
    found = analyse(graph.metadata, normalise(graph).components, GraphSettings().discovery_backend)
    assert pool.namespaces == (found.base_namespace,)
