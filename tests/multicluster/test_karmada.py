"""What Karmada alone does, and what has to be done for it."""

from __future__ import annotations

import pytest

from tests.support.clusterset import (
    EAST,
    KARMADA,
    WEST,
    ClusterSet,
    addresses,
    apply_example,
    conditions,
    eventually,
    find,
    get,
)

pytestmark = pytest.mark.parametrize("clusters", [KARMADA], indirect=True)


def test_exports_of_members_never_are_collected_before_one_was_brought_there(clusters: ClusterSet) -> None:
    """Why examples/multicluster/karmada.yaml has an export of nothing; seen when the fixture came up."""
    assert clusters.collected_before_the_example == set()


def test_exports_never_have_a_status(clusters: ClusterSet, namespace: str) -> None:
    clusters.pool(EAST, namespace, "chat")
    eventually(lambda: clusters.listed(namespace)["east/chat"])
    assert conditions(clusters[EAST], namespace, "chat-frontend") == {}


@pytest.mark.covers("DS-13")
def test_endpoints_must_be_on_the_control_plane_without_any_import(
    clusters: ClusterSet, namespace: str
) -> None:
    address = clusters.service(WEST, namespace, "chat-frontend")
    clusters.export(WEST, namespace, "chat-frontend")

    def collected() -> None:
        assert addresses(clusters.home, namespace, "derived-chat-frontend") == {address}

    eventually(collected)
    assert find(clusters.home, "ServiceImport", namespace) == []
    assert find(clusters.home, "Service", namespace) == []


def test_import_must_become_a_service_in_members(clusters: ClusterSet, namespace: str) -> None:
    address = clusters.service(EAST, namespace, "chat-frontend")
    clusters.export(EAST, namespace, "chat-frontend")
    apply_example(clusters.home, "karmada-import.yaml", namespace)
    eventually(lambda: get(clusters[WEST], "Service", namespace, "derived-chat-frontend"))

    def endpoints() -> None:
        assert addresses(clusters[WEST], namespace, "derived-chat-frontend") == {address}

    eventually(endpoints)


@pytest.mark.covers("R40")
def test_import_of_56_characters_must_fail_with_an_event_alone(clusters: ClusterSet, namespace: str) -> None:
    name = "s" * 56
    spec = {"type": "ClusterSetIP", "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}]}
    body = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceImport",
        "metadata": {"name": name},
        "spec": spec,
    }
    path = f"/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{namespace}/serviceimports"
    clusters.home.request(path, method="POST", body=body)

    def told() -> None:
        reasons = {each["reason"] for each in find(clusters.home, "Event", namespace)}
        assert "SyncDerivedServiceFailed" in reasons

    eventually(told)
    assert "status" not in get(clusters.home, "ServiceImport", namespace, name)
