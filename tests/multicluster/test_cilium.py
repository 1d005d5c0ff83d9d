"""What Cilium alone does, and what Isthmus makes of it."""

from __future__ import annotations

import pytest

from tests.support.clusterset import (
    CILIUM,
    EAST,
    WEST,
    ClusterSet,
    addresses,
    conditions,
    create,
    delete,
    eventually,
    find,
    get,
)

pytestmark = pytest.mark.parametrize("clusters", [CILIUM], indirect=True)


def test_accepted_export_must_say_so(clusters: ClusterSet, namespace: str) -> None:
    clusters.service(EAST, namespace, "chat-frontend")
    clusters.export(EAST, namespace, "chat-frontend")

    def accepted() -> None:
        assert conditions(clusters[EAST], namespace, "chat-frontend") == {"Valid": "True", "Ready": "True"}

    eventually(accepted)


def test_export_without_a_service_must_say_so_and_become_valid_with_it(
    clusters: ClusterSet, namespace: str
) -> None:
    clusters.export(WEST, namespace, "chat-frontend")

    def valid(status: str) -> None:
        assert conditions(clusters[WEST], namespace, "chat-frontend")["Valid"] == status

    eventually(lambda: valid("False"))
    clusters.service(WEST, namespace, "chat-frontend")
    eventually(lambda: valid("True"))


def test_conflict_must_be_on_both_exports_until_one_is_withdrawn(
    clusters: ClusterSet, namespace: str
) -> None:
    for at, number in ((EAST, 8000), (WEST, 9000)):
        clusters.service(at, namespace, "chat-frontend", number=number)
        clusters.export(at, namespace, "chat-frontend")

    def conflict(status: str | None, *at: str) -> None:
        assert [conditions(clusters[each], namespace, "chat-frontend").get("Conflict") for each in at] == [
            status
        ] * len(at)

    eventually(lambda: conflict("True", EAST, WEST))
    clusters.unexport(WEST, namespace, "chat-frontend")
    eventually(lambda: conflict(None, EAST))


@pytest.mark.covers("DS-12")
def test_import_without_endpoints_must_be_joined_by_its_address_where_one_cluster_exports_it(
    clusters: ClusterSet, namespace: str
) -> None:
    clusters.pool(EAST, namespace, "chat", annotations={})

    def by_address() -> None:
        ips = {
            name: get(clusters.home, "ServiceImport", namespace, name)["spec"]["ips"][0]
            for name in ("chat-pool-relay", "chat-frontend")
        }
        assert clusters.listed(namespace) == {
            "east/chat": (
                (f"http://{ips['chat-pool-relay']}:5561",),
                (f"http://{ips['chat-frontend']}:8000",),
            )
        }

    eventually(by_address)
    assert addresses(clusters.home, namespace, "chat-pool-relay") == set()
    clusters.pool(WEST, namespace, "chat", annotations={})

    def ambiguous() -> None:
        assert clusters.unmatched(namespace) == {"east/chat": "no_endpoints", "west/chat": "no_endpoints"}

    eventually(ambiguous)
    assert clusters.listed(namespace) == {}


def test_headless_service_must_be_imported_with_its_endpoints_unasked(
    clusters: ClusterSet, namespace: str
) -> None:
    address = clusters.service(EAST, namespace, "chat-pool-relay", port="grpc", headless=True)
    clusters.export(EAST, namespace, "chat-pool-relay", annotations={})
    clusters.register(EAST, namespace, "chat")

    def joined() -> None:
        assert clusters.listed(namespace) == {"east/chat": ((f"http://{address}:5561",), ())}

    eventually(joined)
    assert get(clusters.home, "ServiceImport", namespace, "chat-pool-relay")["spec"]["type"] == "Headless"


@pytest.mark.covers("R37")
def test_import_that_a_deleted_service_leaves_must_make_no_pool(clusters: ClusterSet, namespace: str) -> None:
    """Its own cluster keeps a stale import: only where the export comes from is it left."""
    clusters.pool(EAST, namespace, "chat")

    def arrived() -> None:
        assert addresses(clusters.home, namespace, "chat-pool-relay") != set()

    eventually(arrived)
    delete(clusters[EAST], "Service", namespace, "chat-pool-relay")

    def gone() -> None:
        assert clusters.listed(namespace) == {}
        assert [each["metadata"]["name"] for each in find(clusters.home, "ServiceImport", namespace)] == [
            "chat-frontend"
        ]

    eventually(gone)


@pytest.mark.covers("R41")
def test_clusters_that_serve_different_versions_must_import_of_each_other(
    clusters: ClusterSet, namespace: str
) -> None:
    for at, name in ((EAST, "one"), (WEST, "two")):
        clusters.service(at, namespace, name)
        clusters.export(at, namespace, name)

    def imported() -> None:
        for at in (EAST, WEST):
            names = {each["metadata"]["name"] for each in find(clusters[at], "ServiceImport", namespace)}
            assert names == {"one", "two"}

    eventually(imported)


def test_export_at_the_newer_version_must_be_seen_as_well(clusters: ClusterSet, namespace: str) -> None:
    clusters.service(EAST, namespace, "chat-frontend")
    body = {
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceExport",
        "metadata": {"name": "chat-frontend"},
    }
    path = f"/apis/multicluster.x-k8s.io/v1beta1/namespaces/{namespace}/serviceexports"
    clusters[EAST].request(path, method="POST", body=body)
    eventually(lambda: get(clusters.home, "ServiceImport", namespace, "chat-frontend"))


def test_namespace_that_comes_later_must_get_its_imports(clusters: ClusterSet) -> None:
    name = "comes-later"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    clusters[EAST].request("/api/v1/namespaces", method="POST", body=body)
    create(clusters[EAST], "Service", name, "one", spec={"ports": [{"name": "http", "port": 80}]})
    clusters.export(EAST, name, "one")
    eventually(lambda: get(clusters[EAST], "ServiceImport", name, "one"))
    clusters.home.request("/api/v1/namespaces", method="POST", body=body)
    eventually(lambda: get(clusters.home, "ServiceImport", name, "one"))


def test_cilium_that_starts_again_among_clusters_with_exports_never_dies(
    clusters: ClusterSet, namespace: str
) -> None:
    """At v1.18.4 it would, were it told of the others at once (controlplane/cilium)."""
    clusters.pool(EAST, namespace, "chat")
    eventually(lambda: clusters.listed(namespace)["east/chat"])
    for turn in range(3):
        clusters.sandbox.steer("cilium-2", "restart")
        name = f"after-{turn}"
        address = clusters.service(EAST, namespace, name)
        clusters.export(EAST, namespace, name)

        def followed(name: str = name, address: str = address) -> None:
            assert addresses(clusters.home, namespace, name) == {address}

        eventually(followed)
    assert clusters.sandbox.record.components["cilium-2"].restarts == 0
