"""A sandbox's clusters behave as real ones: admission, RBAC, tokens, certificates, garbage collection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.api.meta import Raw
from isthmus.kube import config
from isthmus.kube.client import Client
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.sandbox import Cluster
from isthmus.sandbox.resources import PODS
from tests.support.controlplane import StartSandbox, make_user, requests_of
from tests.support.eventually import eventually


def pod(name: str, **metadata: Any) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c", "image": "example.test/c"}]},
    }


def thing_crd(plural: str) -> Raw:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.test"},
        "spec": {
            "group": "example.test",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural[:-1], "kind": plural.title()},
            "versions": [version],
        },
    }


def test_cluster_must_report_the_version_it_is_built_from(cluster: Cluster) -> None:
    assert cluster.request("/version")["gitVersion"].startswith("v1.36")


def test_cluster_must_give_pods_their_service_account(cluster: Cluster, namespace: str) -> None:
    created = cluster.request(f"/api/v1/namespaces/{namespace}/pods", method="POST", body=pod("p"))
    assert created["spec"]["serviceAccountName"] == "default"
    assert created["spec"]["volumes"][0]["name"].startswith("kube-api-access-")


async def test_operator_user_must_be_refused_what_the_operator_does_not_need(cluster: Cluster) -> None:
    _, kubeconfig = await asyncio.to_thread(make_user, cluster)
    async with Client(config.load(kubeconfig, environ={})) as client:
        await client.list_page(PODS)
        with pytest.raises(Forbidden, match="secrets"):
            await client.get_raw("/api/v1/secrets")


async def test_audit_log_must_tell_the_requests_of_one_user(cluster: Cluster, namespace: str) -> None:
    user, kubeconfig = await asyncio.to_thread(make_user, cluster)
    async with Client(config.load(kubeconfig, environ={})) as client:
        await client.create(PODS, namespace, pod("p"))
        with pytest.raises(NotFound):
            await client.get(PODS, namespace, "other")
    assert requests_of(cluster, user) == [("create", "pods", 201), ("get", "pods", 404)]
    assert requests_of(cluster, "sandbox-node") == []


async def test_garbage_collector_must_know_the_children_of_a_kind_that_was_just_installed(
    private_controlplane: StartSandbox,
) -> None:
    sandbox = await asyncio.to_thread(private_controlplane)
    cluster = sandbox.cluster()
    await asyncio.to_thread(sandbox.install_crds, [thing_crd("gadgets")])
    path = "/apis/example.test/v1/namespaces/default/gadgets"
    owner = {"apiVersion": "example.test/v1", "kind": "Gadgets", "metadata": {"name": "owner"}}
    uid = (await asyncio.to_thread(cluster.request, path, method="POST", body=owner))["metadata"]["uid"]
    reference = {"apiVersion": "example.test/v1", "kind": "Gadgets", "name": "owner", "uid": uid}
    async with Client(config.load(cluster.kubeconfig(), environ={})) as client:
        await client.create(PODS, "default", pod("child", ownerReferences=[reference]))
        await asyncio.to_thread(cluster.request, f"{path}/owner", method="DELETE")

        async def gone() -> None:
            try:
                await client.get(PODS, "default", "child")
            except NotFound:
                return
            raise AssertionError("the child is still there")

        # By its own discovery it would take up to 30 s.
        await eventually(gone, within_s=8)
