"""Graphs on a real API server, with an operator that has the rights of its role: a whole life, changes,
conflicts, and what it writes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from isthmus.api.dynamo.children import DEPLOYMENTS, GRAPH_CHILDREN, ROLE_BINDINGS, SERVICES
from isthmus.api.meta import Raw, Resource
from isthmus.sandbox import Cluster
from tests.support.audit import Row, requests_in, writes_in
from tests.support.eventually import eventually
from tests.support.graphs import ALPHA, BACKEND, BETA, EXAMPLES, alpha, beta, component, example
from tests.support.operator import OperatorProcess
from tests.support.world import World

QUIET_S = 1.0
RIGHTS = {f"chat-k8s-service-discovery{suffix}" for suffix in ("", "-role", "-binding")}


def put(world: World, manifest: Raw) -> Raw:
    """Create a graph in the world's namespace."""
    resource = ALPHA if manifest["apiVersion"] == ALPHA.api_version else BETA
    metadata = {**manifest["metadata"], "namespace": world.namespace}
    answer = world.api.create(resource, {**manifest, "metadata": metadata})
    assert answer.code == 201, answer.body
    created: Raw = answer.body
    return created


def ready(world: World, name: str = "chat") -> tuple[str, str]:
    """State and reason of a graph, once its status is about its present spec."""
    found = world.get(BETA, name)
    status = found.get("status", {})
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return "", ""
    return status["state"], next(c["reason"] for c in status["conditions"] if c["type"] == "Ready")


async def until(world: World, state: str, reason: str, name: str = "chat") -> Raw:
    """Return the status once it says so."""

    async def check() -> Raw:
        assert ready(world, name) == (state, reason), world.get(BETA, name).get("status")
        status: Raw = world.get(BETA, name)["status"]
        return status

    return await eventually(check)


def children(world: World, resource: Resource[Any], name: str = "chat") -> set[str]:
    """Names of the graph's objects of one kind."""
    return set(world.find(resource, f"nvidia.com/dynamo-graph-deployment-name={name}"))


def writes(cluster: Cluster, user: str, namespace: str) -> list[Row]:
    return [row for row in writes_in(cluster, user, namespace) if row.resource != "events"]


@pytest.mark.covers("GD-1", "GD-17", "GD-29", "GD-39", "GD-42", "GD-43", "GD-47", "GD-49")
@pytest.mark.covers("G-2", "G-3", "G-12", "G-14", "G-15")
async def test_graph_must_come_up_rest_change_and_go(
    world: World, operator: OperatorProcess, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    created = put(world, beta())
    status = await until(world, "successful", "all_resources_are_ready")
    assert status["components"]["Engine"] == {
        "componentKind": "Deployment",
        "componentNames": ["chat-engine"],
        "replicas": 1,
        "updatedReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
    }
    assert children(world, DEPLOYMENTS) == children(world, SERVICES) == {"chat-engine", "chat-frontend"}
    for resource in GRAPH_CHILDREN:
        for name in children(world, resource):
            (owner,) = world.get(resource, name)["metadata"]["ownerReferences"]
            assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)
    assert world.get(BETA, "chat")["metadata"]["generation"] == 1
    before = writes(cluster, operator_user[0], world.namespace)
    world.merge(BETA, "chat", {"metadata": {"labels": {"team": "a"}}})
    await asyncio.sleep(QUIET_S)
    assert writes(cluster, operator_user[0], world.namespace) == before

    renamed = beta("chat", component("Frontend", "frontend"), component("Motor", "worker"))
    world.merge(BETA, "chat", {"spec": renamed["spec"]})
    status = await until(world, "successful", "all_resources_are_ready")
    assert set(status["components"]) == {"Frontend", "Motor"}
    assert children(world, DEPLOYMENTS) == children(world, SERVICES) == {"chat-motor", "chat-frontend"}

    world.delete(BETA, "chat")

    async def gone() -> None:
        assert not any(children(world, resource) for resource in GRAPH_CHILDREN)

    await eventually(gone)
    refused = [
        row for row in requests_in(cluster, operator_user[0], world.namespace) if row.code in (401, 403)
    ]
    assert not refused


@pytest.mark.covers("GD-6", "G-1")
async def test_both_versions_must_run_alike_and_one_may_replace_the_other(
    world: World, operator: OperatorProcess
) -> None:
    put(world, alpha())
    status = await until(world, "successful", "all_resources_are_ready")
    assert status["services"] == status["components"]
    stored = world.get(DEPLOYMENTS, "chat-engine")
    world.merge(BETA, "chat", {"spec": {"services": None, **beta()["spec"]}})
    status = await until(world, "successful", "all_resources_are_ready")
    assert "services" not in status
    again = world.get(DEPLOYMENTS, "chat-engine")
    assert again["metadata"]["generation"] == stored["metadata"]["generation"]
    assert again["metadata"]["uid"] == stored["metadata"]["uid"]


@pytest.mark.covers("GD-17", "GD-46", "G-4")
async def test_object_of_somebody_else_must_be_left_alone_and_reported(
    world: World, operator: OperatorProcess, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat-engine", "namespace": world.namespace},
        "spec": {"ports": [{"port": 1}]},
    }
    assert world.api.create(SERVICES, foreign).code == 201
    stored = world.get(SERVICES, "chat-engine")
    put(world, beta())
    status = await until(world, "failed", "OwnershipConflict")
    assert "Service chat-engine" in status["conditions"][0]["message"]
    assert world.get(SERVICES, "chat-engine") == stored
    assert children(world, DEPLOYMENTS) == {"chat-engine", "chat-frontend"}
    assert world.events("chat", "OwnershipConflict")
    world.delete(SERVICES, "chat-engine")
    await until(world, "successful", "all_resources_are_ready")
    rows = [row for row in writes(cluster, operator_user[0], world.namespace) if row.name == "chat-engine"]
    assert [(row.verb, row.resource) for row in rows] == [("create", "deployments"), ("create", "services")]


@pytest.mark.covers("GD-24", "GD-28", "G-7")
async def test_services_must_follow_the_discovery_backend(world: World, operator: OperatorProcess) -> None:
    put(world, beta())

    async def settled(services: set[str]) -> None:
        async def check() -> None:
            assert children(world, SERVICES) == services
            assert ready(world) == ("successful", "all_resources_are_ready")

        await eventually(check)

    await settled({"chat-frontend", "chat-engine"})
    world.merge(BETA, "chat", {"metadata": {"annotations": {BACKEND: "etcd"}}})
    await settled({"chat-frontend"})
    world.merge(BETA, "chat", {"metadata": {"annotations": {BACKEND: None}}})
    await settled({"chat-frontend", "chat-engine"})
    assert children(world, ROLE_BINDINGS) == {"chat-k8s-service-discovery-binding"}


@pytest.mark.covers("GD-39", "GD-46", "G-12")
async def test_drift_must_be_repaired_and_a_refusal_told_until_it_is_mended(
    world: World, operator: OperatorProcess, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    put(world, beta("chat", component("Engine", "worker", pod={"nodeSelector": {"disk": "ssd"}})))

    async def at_work() -> None:
        assert children(world, DEPLOYMENTS) == {"chat-engine"}

    await eventually(at_work)
    world.merge(DEPLOYMENTS, "chat-engine", {"spec": {"replicas": 3}})

    async def repaired() -> None:
        assert world.get(DEPLOYMENTS, "chat-engine")["spec"]["replicas"] == 1

    await eventually(repaired)
    # A pod template that the CRD cannot see through: the API server refuses the Deployment.
    bad = component("Engine", "worker", template={"metadata": {"labels": {"a": "not a label!"}}})
    world.merge(BETA, "chat", {"spec": {"components": [bad]}})
    status = await until(world, "failed", "failed_to_reconcile_resources")
    assert "labels" in status["conditions"][0]["message"]
    world.merge(BETA, "chat", {"spec": beta("chat", component("Engine", "worker"))["spec"]})
    await until(world, "successful", "all_resources_are_ready")
    assert "nodeSelector" not in world.get(DEPLOYMENTS, "chat-engine")["spec"]["template"]["spec"]
    before = writes(cluster, operator_user[0], world.namespace)
    await asyncio.sleep(QUIET_S)
    assert writes(cluster, operator_user[0], world.namespace) == before


@pytest.mark.covers("G-2")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
async def test_example_must_come_up(world: World, operator: OperatorProcess, path: Path) -> None:
    manifest = example(path.stem)
    put(world, manifest)
    await until(world, "successful", "all_resources_are_ready", manifest["metadata"]["name"])
