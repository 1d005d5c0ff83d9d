"""`isthmus pool check` on a real API server: what it says of pools that no operator has seen yet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from isthmus.sandbox import Cluster, multicluster
from isthmus.sandbox.pools import EXPORTS, GRAPHS, PROPERTIES, PROPERTY, RELAYS, Pools, definitions, example
from tests.support.controlplane import start_sandbox

pytestmark = pytest.mark.apiserver

HERE = "default"


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A cluster that does not export yet."""
    groups = (multicluster.MCS_GROUP, multicluster.ABOUT_GROUP)
    crds = [each for each in definitions() if each["spec"]["group"] not in groups]
    with start_sandbox(nodes=1, audit=True, crds=crds) as sandbox:
        yield sandbox.cluster()


@pytest.fixture
def pools(own_cluster: Cluster) -> Pools:
    return Pools(own_cluster, HERE)


def check(cluster: Cluster, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "isthmus.cli.main", "pool", "check", *arguments]
    done = subprocess.run(
        [*command, f"--kubeconfig={cluster.kubeconfig()}"], capture_output=True, text=True, timeout=20
    )
    return done.returncode, done.stdout + done.stderr


def found(cluster: Cluster, *arguments: str) -> tuple[int, dict[str, str], list[str]]:
    """Exit code, exports and their states, reasons of findings."""
    code, text = check(cluster, "chat", "-o", "json", *arguments)
    told: dict[str, Any] = json.loads(text)
    states = {each["name"]: each["state"] for each in told["exports"]}
    return code, states, [each["reason"] for each in told["findings"]]


def test_check_must_see_what_is_there_and_write_nothing(own_cluster: Cluster, pools: Pools) -> None:
    graph, relay = example()
    assert found(own_cluster) == (1, {}, ["ExportApiMissing", "RelayNotFound", "GraphNotFound"])
    pools.apply(GRAPHS, graph)
    pools.apply(RELAYS, relay)
    code, states, reasons = found(own_cluster)
    assert (code, set(states.values()), reasons) == (1, {"withheld"}, ["ExportApiMissing"])
    own_cluster.install_crds(multicluster.definitions())
    assert found(own_cluster) == (0, {"chat-pool-relay": "create", "chat-frontend": "create"}, [])
    foreign = {"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceExport"}
    pools.apply(EXPORTS, foreign | {"metadata": {"name": "chat-frontend"}})
    wrong = {"apiVersion": "about.k8s.io/v1beta1", "kind": "ClusterProperty"}
    pools.apply(PROPERTIES, wrong | {"metadata": {"name": PROPERTY}, "spec": {"value": "west"}})
    assert found(own_cluster) == (
        1,
        {"chat-pool-relay": "create", "chat-frontend": "foreign"},
        ["ClusterIDMismatch", "ForeignExport"],
    )
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "chat-pool-relay"}}
    pools.apply("/api/v1/namespaces/{}/services", service | {"spec": {"ports": [{"port": 80}]}})
    assert "OwnershipConflict" in found(own_cluster)[2]
    verbs = {
        event["verb"]
        for event in own_cluster.audit_events()
        if event.get("userAgent", "") == "isthmus-pool-check"
    }
    assert verbs == {"get", "list"}


def test_check_that_is_not_allowed_must_be_an_error(own_cluster: Cluster) -> None:
    kubeconfig = own_cluster.add_user("nobody")
    command = [sys.executable, "-m", "isthmus.cli.main", "pool", "check", "chat"]
    done = subprocess.run(
        [*command, f"--kubeconfig={kubeconfig}"], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 2
    assert "cannot read what the check needs" in done.stderr
