"""A real control plane for tests: pytest fixtures over isthmus.sandbox.

One sandbox serves the whole run (`controlplane`), with our CRDs installed and every request audited; each
test takes a `namespace` of its own. A test that restarts or freezes servers starts its own with
`private_controlplane`. Nothing is built here: a missing binary fails with the command that builds it.
Everything in a Sandbox blocks; in a coroutine call it through `asyncio.to_thread`.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.api import crd
from isthmus.errors import IsthmusError, UserError
from isthmus.kube import config
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.sandbox import Cluster, Sandbox
from isthmus.sandbox.rbac import ROLE

StartSandbox = Callable[..., Sandbox]


def start_sandbox(**options: Any) -> Sandbox:
    """Sandbox.start, where what is wrong fails the test in one line. Installs our CRDs unless told others."""
    try:
        return Sandbox.start(**({"crds": crd.definitions()} | options))
    except UserError as error:
        reason = f"{error}\n{error.hint}"
    except IsthmusError as error:
        reason = str(error)
    pytest.fail(reason, pytrace=False)


@pytest.fixture(scope="session")
def controlplane() -> Iterator[Sandbox]:
    """The sandbox of the whole run: one cluster, two Nodes, audited. Never restart, pause or stop it."""
    with start_sandbox(nodes=2, audit=True) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def cluster(controlplane: Sandbox) -> Cluster:
    """Its one cluster."""
    return controlplane.cluster()


@pytest.fixture(scope="session")
def admin_kubeconfig(cluster: Cluster) -> Path:
    """A kubeconfig that may do everything."""
    return cluster.kubeconfig()


@pytest.fixture(scope="session")
def operator_kubeconfig(cluster: Cluster) -> Path:
    """A kubeconfig that may do what the operator may, and whose user the audit log knows as `operator`."""
    return cluster.kubeconfig("operator")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh namespace in which pods can be created; deleted afterwards, without waiting for its end."""
    name = make_namespace(cluster)
    yield name
    delete_namespace(cluster, name)


@pytest.fixture
async def admin(admin_kubeconfig: Path) -> AsyncIterator[Client]:
    """A client of the shared control plane on the test's own event loop, that may do everything."""
    async with Client(config.load(admin_kubeconfig, environ={})) as client:
        yield client


@pytest.fixture
def private_controlplane() -> Iterator[StartSandbox]:
    """Starts sandboxes of the test's own, to do anything with; takes the arguments of Sandbox.start."""
    started: list[Sandbox] = []

    def start(**options: Any) -> Sandbox:
        started.append(start_sandbox(**options))
        return started[-1]

    yield start
    for sandbox in started:
        sandbox.stop()


def make_namespace(cluster: Cluster, prefix: str = "test", *, name: str = "") -> str:
    """Create a namespace, and wait until its service account is there, without which no pod is admitted."""
    name = name or f"{prefix}-{secrets.token_hex(3)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    cluster.request("/api/v1/namespaces", method="POST", body=body)
    deadline = time.monotonic() + 15
    while True:
        try:
            cluster.request(f"/api/v1/namespaces/{name}/serviceaccounts/default")
        except NotFound:
            assert time.monotonic() < deadline, f"namespace {name} got no service account"
            time.sleep(0.02)
        else:
            return name


def delete_namespace(cluster: Cluster, name: str) -> None:
    """Ask for the end of a namespace and all in it."""
    with contextlib.suppress(NotFound):
        cluster.request(f"/api/v1/namespaces/{name}", method="DELETE")


def make_user(cluster: Cluster, *, role: str = ROLE, prefix: str = "user") -> tuple[str, Path]:
    """A user of the test's own, so that the audit log tells its requests from others': name and kubeconfig.

    In group system:serviceaccounts and with the operator's rights, unless told another ClusterRole.
    """
    name = f"{prefix}-{secrets.token_hex(3)}"
    return name, cluster.add_user(name, groups=["system:serviceaccounts"], role=role)


def requests_of(cluster: Cluster, user: str) -> list[tuple[str, str, int]]:
    """What a user has asked for, in order of completion: verb, resource (with subresource), status code."""
    rows = []
    for event in cluster.audit_events(user):
        target = event.get("objectRef", {})
        resource = "/".join(filter(None, (target.get("resource", ""), target.get("subresource", ""))))
        # A watch is logged when it begins and again when it ends.
        if event["verb"] == "watch" and event["stage"] == "ResponseComplete":
            continue
        rows.append((event["verb"], resource or event["requestURI"], event["responseStatus"]["code"]))
    return rows
