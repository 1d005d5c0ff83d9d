"""The servers of a sandbox can be ended, frozen and restarted, and its commands reach them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from isthmus.errors import UserError
from isthmus.kube.errors import Unreachable
from isthmus.sandbox import Sandbox
from tests.support.controlplane import start_sandbox


@pytest.fixture(scope="module")
def alone() -> Iterator[Sandbox]:
    """A sandbox for these tests; each leaves it as it was."""
    with start_sandbox(crds=()) as sandbox:
        yield sandbox


def wait_until(holds: Callable[[], bool], *, within_s: float = 15) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.02)


def kubectl(*arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "isthmus.cli.main", "sandbox", "kubectl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_name_in_use_must_be_refused(alone: Sandbox) -> None:
    with pytest.raises(UserError, match="runs already"):
        Sandbox.start(alone.name)
    assert alone.cluster().request("/readyz") == "ok"


def test_apiserver_must_come_back_at_its_address_with_its_objects(alone: Sandbox) -> None:
    cluster = alone.cluster()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}
    cluster.request("/api/v1/namespaces/default/configmaps", method="POST", body=body)
    before = alone.record.components["apiserver-0"].identity
    alone.restart_apiserver()
    assert alone.record.components["apiserver-0"].identity != before
    assert cluster.request("/api/v1/namespaces/default/configmaps/kept")["metadata"]["name"] == "kept"


def test_server_that_dies_must_be_started_again(alone: Sandbox) -> None:
    manager = alone.record.components["controller-manager-0"].identity
    assert manager is not None
    os.kill(manager.pid, signal.SIGKILL)
    wait_until(lambda: alone.record.components["controller-manager-0"].restarts == 1)
    wait_until(lambda: alone.record.components["controller-manager-0"].state == "running")


def test_stopped_apiserver_must_refuse_until_it_is_started(alone: Sandbox) -> None:
    alone.steer("apiserver-0", "stop")
    with pytest.raises(Unreachable, match="refused"):
        alone.cluster().request("/readyz")
    alone.steer("apiserver-0", "start")
    assert alone.cluster().request("/readyz") == "ok"


def test_paused_apiserver_must_hang_and_go_on(alone: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    alone.steer("apiserver-0", "pause")
    monkeypatch.setattr("isthmus.sandbox.wire.TIMEOUT_S", 0.5)
    with pytest.raises(Unreachable, match="timed out"):
        alone.cluster().request("/readyz")
    alone.steer("apiserver-0", "resume")
    monkeypatch.undo()
    assert alone.cluster().request("/readyz") == "ok"


def test_unknown_component_must_be_named(alone: Sandbox) -> None:
    with pytest.raises(UserError, match="no component 'scheduler'; there are etcd, apiserver-0"):
        alone.steer("scheduler", "stop")


def test_kubectl_must_get_every_argument(alone: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_SANDBOX", alone.name)
    assert kubectl("get", "nodes", "-o", "name") == "node/sandbox-0\n"
    assert "--client" in kubectl("version", "--help")
    assert "not found" in kubectl("get", "pod", "none", code=1)
