"""A pool that one cluster exports is one of the discovery service, for as long as it is exported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest

from tests.support.clusterset import (
    CILIUM,
    EAST,
    KARMADA,
    LEASE_S,
    WEST,
    ClusterSet,
    delete,
    eventually,
    find,
    get,
)


def only(listed: Iterable[str], *names: str) -> None:
    assert sorted(listed) == sorted(names)


@pytest.mark.covers("DS-10", "DS-12", "DS-13", "R37")
def test_exported_pool_must_be_listed_with_its_endpoints_until_it_is_withdrawn(
    clusters: ClusterSet, namespace: str
) -> None:
    relay, frontend = clusters.pool(EAST, namespace, "chat")

    def listed() -> None:
        assert clusters.listed(namespace) == {"east/chat": ((relay,), (frontend,))}

    def told(reasons: dict[str, str]) -> None:
        assert clusters.unmatched(namespace) == reasons

    eventually(listed)
    eventually(lambda: told({}))
    clusters.unexport(EAST, namespace, "chat-pool-relay", "chat-frontend")
    eventually(lambda: only(clusters.listed(namespace)))
    eventually(lambda: told({"east/chat": "no_relay_import"}))
    clusters.export(EAST, namespace, "chat-pool-relay", "chat-frontend")
    eventually(listed)


@pytest.mark.covers("DS-14", "R37")
def test_two_clusters_that_export_one_name_must_be_two_pools(clusters: ClusterSet, namespace: str) -> None:
    east = clusters.pool(EAST, namespace, "chat")
    west = clusters.pool(WEST, namespace, "chat")

    def both() -> None:
        assert clusters.listed(namespace) == {
            "east/chat": ((east[0],), (east[1],)),
            "west/chat": ((west[0],), (west[1],)),
        }

    eventually(both)
    clusters.unexport(EAST, namespace, "chat-pool-relay", "chat-frontend")

    def one() -> None:
        assert clusters.listed(namespace) == {"west/chat": ((west[0],), (west[1],))}

    eventually(one)


@pytest.mark.covers("DS-10", "PW-12")
def test_relay_of_another_cluster_id_must_be_told_and_not_be_listed(
    clusters: ClusterSet, namespace: str
) -> None:
    clusters.service(EAST, namespace, "chat-pool-relay", port="grpc")
    clusters.export(EAST, namespace, "chat-pool-relay")
    clusters.register("elsewhere", namespace, "chat")

    def told() -> None:
        assert clusters.unmatched(namespace) == {"elsewhere/chat": "cluster_id_differs"}

    eventually(told)
    assert clusters.listed(namespace) == {}


@pytest.mark.covers("R40", "D-14")
def test_names_must_arrive_up_to_the_implementations_limit(clusters: ClusterSet, namespace: str) -> None:
    names = {length: "n" * (length - len("-pool-relay")) for length in (55, 56, 63)}
    relays = {}
    for length, name in names.items():
        relays[length] = clusters.service(EAST, namespace, f"{name}-pool-relay", port="grpc")
        clusters.export(EAST, namespace, f"{name}-pool-relay")
        clusters.register(EAST, namespace, name)
    limit = 55 if clusters.implementation == KARMADA else 63

    def arrived() -> None:
        assert clusters.listed(namespace) == {
            f"east/{name}": ((f"http://{relays[length]}:5561",), ())
            for length, name in names.items()
            if length <= limit
        }

    def told() -> None:
        assert clusters.unmatched(namespace) == {
            f"east/{name}": "name_too_long" for length, name in names.items() if length > limit
        }

    eventually(arrived)
    eventually(told)


@pytest.mark.covers("R40")
def test_operator_must_export_what_the_implementation_takes_and_say_what_it_does_not(
    clusters: ClusterSet, namespace: str
) -> None:
    fits, longer = "f" * 44, "g" * 45
    for name in (fits, longer):
        clusters.apply_real_pool(EAST, namespace, name)
    expected = {f"{fits}-pool-relay", f"{fits}-frontend"}
    if clusters.implementation == KARMADA:
        # Of the longer one the frontend's name has 54 characters, and the relay's 56.
        expected |= {f"{longer}-frontend"}
    else:
        expected |= {f"{longer}-pool-relay", f"{longer}-frontend"}

    def exported() -> None:
        assert {
            each["metadata"]["name"] for each in find(clusters[EAST], "ServiceExport", namespace)
        } == expected
        events = find(clusters[EAST], "Event", namespace)
        told = {each["involvedObject"]["name"] for each in events if each["reason"] == "ServiceNameTooLong"}
        assert told == ({longer} if clusters.implementation == KARMADA else set())

    eventually(exported)
    for name in (fits, longer):
        for kind in ("DynamoPoolRelay", "DynamoGraphDeployment"):
            delete(clusters[EAST], kind, namespace, name)


@pytest.mark.covers("R42", "DS-14")
def test_relay_without_a_ready_endpoint_must_be_told_and_come_back_by_itself(
    clusters: ClusterSet, namespace: str
) -> None:
    clusters.pool(EAST, namespace, "chat")
    eventually(lambda: only(clusters.listed(namespace), "east/chat"))
    path = f"/api/v1/namespaces/{namespace}/pods/chat-pool-relay"

    def fault(value: str | None) -> None:
        body = {"metadata": {"annotations": {"sandbox.isthmus.dev/fault": value}}}
        clusters[EAST].request(path, method="PATCH", body=body, content_type="application/merge-patch+json")

    fault("unready")

    def told() -> None:
        assert clusters.unmatched(namespace) == {"east/chat": "relay_not_ready"}

    eventually(told)
    assert clusters.listed(namespace) == {}
    fault(None)
    eventually(lambda: only(clusters.listed(namespace), "east/chat"))


@pytest.mark.covers("R38")
def test_service_made_again_under_its_export_must_be_followed(clusters: ClusterSet, namespace: str) -> None:
    clusters.pool(EAST, namespace, "chat")
    eventually(lambda: only(clusters.listed(namespace), "east/chat"))
    before = get(clusters[EAST], "ServiceExport", namespace, "chat-pool-relay")["metadata"]["uid"]
    for kind in ("Pod", "Service"):
        delete(clusters[EAST], kind, namespace, "chat-pool-relay")
    eventually(lambda: only(clusters.listed(namespace)))
    address = clusters.service(EAST, namespace, "chat-pool-relay", port="grpc", number=5999)

    def followed() -> None:
        assert clusters.listed(namespace)["east/chat"][0] == (f"http://{address}:5999",)

    eventually(followed)
    assert get(clusters[EAST], "ServiceExport", namespace, "chat-pool-relay")["metadata"]["uid"] == before


@pytest.mark.covers("DS-14", "R37", "R41")
@pytest.mark.parametrize("at", [EAST, WEST])
def test_real_pool_must_arrive_be_lost_with_its_cluster_and_come_back(
    clusters: ClusterSet, namespace: str, at: str
) -> None:
    """Operator, relay and frontend are processes; the two clusters serve different versions of the API."""
    clusters.apply_real_pool(at, namespace, "chat")

    def served() -> None:
        listed = clusters.listed(namespace)
        only(listed, f"{at}/chat")
        assert [len(urls) for urls in listed[f"{at}/chat"]] == [1, 1]

    eventually(served, within_s=60)
    assert check(clusters, at, namespace)["findings"] == []
    clusters[at].take_away()
    eventually(lambda: only(clusters.listed(namespace)), within_s=LEASE_S + 10)
    # What the cluster has told the others is still there: the import alone never makes a pool.
    assert any(
        "chat-pool-relay" in json.dumps(each) for each in find(clusters.home, "EndpointSlice", namespace)
    )
    clusters[at].bring_back()
    eventually(served, within_s=60)
    delete(clusters[at], "DynamoPoolRelay", namespace, "chat")
    eventually(lambda: only(clusters.listed(namespace)))
    eventually(
        lambda: only({each["metadata"]["name"] for each in find(clusters[at], "ServiceExport", namespace)})
    )


def check(clusters: ClusterSet, at: str, namespace: str) -> dict[str, list[object]]:
    """What `isthmus pool check` says of the pool `chat`."""
    mode = "mcs" if clusters.implementation == CILIUM else "karmada"
    words = [
        *(sys.executable, "-m", "isthmus.cli.main", "pool", "check", "chat", "-n", namespace, "-o", "json"),
        *("--kubeconfig", str(clusters[at].kubeconfig()), "--discovery", clusters.url),
        *("--implementation", mode),
    ]

    def ask() -> dict[str, list[object]]:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, list[object]] = json.loads(done.stdout)
        return found

    return eventually(ask)
