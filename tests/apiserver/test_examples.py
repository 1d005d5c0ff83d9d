"""Every file of examples/ on the real API server: applied strictly, and brought up by an operator that has
exactly the rights of examples/operator."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.api.meta import Raw
from isthmus.sandbox import Cluster
from tests.support.controlplane import make_user
from tests.support.operator import OperatorProcess
from tests.support.rawapi import STRICT, RawApi
from tests.support.world import World

EXAMPLES = Path(__file__).parents[2] / "examples"
SYSTEM = "isthmus-system"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
COLLECTIONS = {
    "ModelServing": "/apis/workload.serving.volcano.sh/v1alpha1/namespaces/{namespace}/modelservings",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Role": RBAC + "/namespaces/{namespace}/roles",
    "RoleBinding": RBAC + "/namespaces/{namespace}/rolebindings",
    "ClusterRole": RBAC + "/clusterroles",
    "ClusterRoleBinding": RBAC + "/clusterrolebindings",
}


def documents(path: Path) -> list[Raw]:
    """The objects of a manifest, its comments aside."""
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


def apply(api: RawApi, document: Raw, namespace: str, **query: str) -> None:
    """What `kubectl apply --server-side` does, with unknown fields refused."""
    path = COLLECTIONS[document["kind"]].format(namespace=namespace) + "/" + document["metadata"]["name"]
    answer = api.call(
        "PATCH",
        path,
        {
            **document,
            "metadata": {**document["metadata"], **({"namespace": namespace} if namespace in path else {})},
        },
        content_type="application/apply-patch+yaml",
        fieldManager="isthmus-tests",
        force="true",
        **STRICT,
        **query,
    )
    assert answer.code in (200, 201), answer.body


def rules_of(manifest: str, kind: str) -> list[Raw]:
    """The rules of the operator's role in a manifest of examples/operator."""
    (role,) = (
        document
        for document in documents(EXAMPLES / "operator" / manifest)
        if document["kind"] == kind and document["metadata"]["name"] == "isthmus-operator"
    )
    rules: list[Raw] = role["rules"]
    return rules


def bind(api: RawApi, user: str, namespace: str, rules: list[Raw]) -> None:
    """Give a user a Role of these rules in one namespace."""
    meta = {"name": user}
    apply(api, _rbac("Role", meta, rules=rules), namespace)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    apply(api, _rbac("RoleBinding", meta, roleRef=reference, subjects=[subject]), namespace)


def _rbac(kind: str, metadata: Raw, **fields: Any) -> Raw:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, **fields}


def lease_rules() -> list[Raw]:
    (role,) = (
        document
        for document in documents(EXAMPLES / "operator" / "rbac.yaml")
        if document["kind"] == "Role" and document["metadata"]["name"] == "isthmus-operator-lease"
    )
    rules: list[Raw] = role["rules"]
    return rules


@pytest.fixture(scope="module")
def system(serving_api: RawApi) -> str:
    """The operator's own namespace."""
    apply(serving_api, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}, "")
    return SYSTEM


@pytest.fixture(scope="module")
def operator_user(cluster: Cluster, serving_api: RawApi, system: str) -> tuple[str, Path]:
    """A user who has the rights of rbac.yaml, under a role of another name than the sandbox's own."""
    role = f"shipped-{secrets.token_hex(3)}"
    apply(serving_api, _rbac("ClusterRole", {"name": role}, rules=rules_of("rbac.yaml", "ClusterRole")), "")
    user, kubeconfig = make_user(cluster, prefix="shipped", role=role)
    bind(serving_api, user, system, lease_rules())
    return user, kubeconfig


@pytest.fixture(scope="module")
def module_operator(
    operator_user: tuple[str, Path], system: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator for all namespaces, as deployment.yaml starts it."""
    log = tmp_path_factory.mktemp("operator") / "log"
    arguments = ("--leader-elect", f"--leader-elect-namespace={system}")
    with OperatorProcess(operator_user[1], log, *arguments) as process:
        yield process


@pytest.mark.covers("MS-118")
@pytest.mark.parametrize(
    "path",
    sorted((EXAMPLES / "modelserving").glob("*.yaml")),
    ids=lambda path: path.stem,
)
async def test_example_must_come_up_under_the_shipped_rights(
    world: World, operator: OperatorProcess, cluster: Cluster, operator_user: tuple[str, Path], path: Path
) -> None:
    for document in documents(path):
        apply(world.api, document, world.namespace)
    found = await world.settled(documents(path)[0]["metadata"]["name"])
    available = next(c for c in found["status"]["conditions"] if c["type"] == "Available")
    assert available["status"] == "True"
    assert not refused(cluster, operator_user[0])


def refused(cluster: Cluster, user: str) -> list[str]:
    """What a user was not allowed to do; that nothing can be made in a namespace on its way out, such as that
    of the test before, is no question of rights."""
    statuses = [(event, event.get("responseStatus", {})) for event in cluster.audit_events(user)]
    return [
        f"{event['verb']} {event['requestURI']}: {status.get('message')}"
        for event, status in statuses
        if status.get("code") in (401, 403) and "is being terminated" not in status.get("message", "")
    ]


@pytest.mark.parametrize("name", ["rbac.yaml", "rbac-namespaced.yaml", "deployment.yaml"])
def test_operator_manifest_must_be_accepted(serving_api: RawApi, system: str, name: str) -> None:
    for document in documents(EXAMPLES / "operator" / name):
        namespace = "default" if document["metadata"].get("namespace") == "team-a" else SYSTEM
        apply(serving_api, _moved(document, namespace), namespace, dryRun="All")


def _moved(document: Raw, namespace: str) -> Raw:
    metadata = document["metadata"]
    return (
        {**document, "metadata": {**metadata, "namespace": namespace}}
        if "namespace" in metadata
        else document
    )


@pytest.mark.covers("MS-118")
async def test_example_must_come_up_under_the_shipped_rights_of_one_namespace(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    user, kubeconfig = make_user(cluster, prefix="one-namespace", role="")
    bind(world.api, user, world.namespace, rules_of("rbac-namespaced.yaml", "Role"))
    (sample,) = documents(EXAMPLES / "modelserving" / "sample.yaml")
    apply(world.api, sample, world.namespace)
    with OperatorProcess(kubeconfig, tmp_path / "log", f"--namespace={world.namespace}") as process:
        await process.ready()
        await world.settled("sample")
    assert not refused(cluster, user)
