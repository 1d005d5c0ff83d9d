"""The demo comes to its end on its own sandbox and on a cluster that exists, and takes back what it made."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.api import crd
from isthmus.sandbox import Cluster, NodeSettings, Sandbox, leftovers
from tests.support.controlplane import start_sandbox

DEMO = [sys.executable, "-m", "isthmus.cli.main", "sandbox", "demo"]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test's own, so that nothing else is in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "isthmus" / "sandbox"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that somebody has: nothing of ours is in it."""
    with start_sandbox(crds=()) as sandbox:
        yield sandbox.cluster()


@pytest.fixture
def stuck(bare: Cluster) -> Iterator[Cluster]:
    """The same, where no pod becomes ready before a test has interrupted the demo."""
    bare.sandbox.set_node(NodeSettings(ready_delay_s=600.0))
    yield bare
    bare.sandbox.set_node(NodeSettings())


def play(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([*DEMO, *arguments], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def names(cluster: Cluster, path: str) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.request(path)["items"]}


def demo_namespaces(cluster: Cluster) -> set[str]:
    return {name for name in names(cluster, "/api/v1/namespaces") if name.startswith("isthmus-demo-")}


def test_demo_must_show_groups_roles_pods_and_the_operators_cache(state_home: Path) -> None:
    told = play()
    for line in (
        "group prefill-decode-0  Creating",
        "role prefill-decode-0/decode-1  Running",
        "pod prefill-decode-1-prefill-0-0  ready",
        "group prefill-decode-1  Running",
        "$ isthmus debug cache --port",
        "default/prefill-decode  2 groups",
        "done: 6 pods",
    ):
        assert line in told
    assert list(state_home.iterdir()) == []


def test_kept_demo_must_go_on_running_with_its_operator(state_home: Path) -> None:
    told = play("--keep")
    sandbox = Sandbox.attach("demo")
    try:
        kubeconfig = re.search(r"export KUBECONFIG=(\S+)", told)
        assert kubeconfig is not None
        assert Path(kubeconfig[1]).is_file()
        assert sandbox.record.components["operator"].state == "running"
        assert len(names(sandbox.cluster(), "/api/v1/namespaces/default/pods")) == 6
        assert "a sandbox named 'demo' runs already" in play("--keep", code=2)
    finally:
        sandbox.stop()
    assert leftovers.running() == []


def test_demo_on_a_cluster_must_take_back_everything(bare: Cluster) -> None:
    told = play("--kubeconfig", str(bare.kubeconfig()))
    assert "group prefill-decode-1  Running" in told
    assert "everything is gone again" in told
    assert demo_namespaces(bare) == set()
    assert names(bare, CRDS) == set()


def test_demo_on_a_cluster_must_leave_a_crd_that_was_there(bare: Cluster) -> None:
    bare.install_crds(crd.definitions("workload.serving.volcano.sh"))
    try:
        assert "is there already and stays as it is" in play("--kubeconfig", str(bare.kubeconfig()))
        assert names(bare, CRDS) == {"modelservings.workload.serving.volcano.sh"}
        assert demo_namespaces(bare) == set()
    finally:
        for name in names(bare, CRDS):
            bare.request(f"{CRDS}/{name}", method="DELETE")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_must_take_back_what_it_made(stuck: Cluster, number: signal.Signals) -> None:
    command = [*DEMO, "--kubeconfig", str(stuck.kubeconfig())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Creating" in line:
                break
        assert demo_namespaces(stuck) != set()
        process.send_signal(number)
        for line in process.stdout:
            if "cleaning up" in line:
                break
        # Impatience changes nothing.
        process.send_signal(number)
        told, errors = process.communicate(timeout=100)
    assert "everything is gone again" in told, told + errors
    assert process.returncode == 130
    assert demo_namespaces(stuck) == set()
    assert names(stuck, CRDS) == set()


def test_demo_must_take_back_what_it_made_although_nobody_listens_any_more(bare: Cluster) -> None:
    command = [*DEMO, "--kubeconfig", str(bare.kubeconfig())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(100) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert demo_namespaces(bare) == set()
    assert names(bare, CRDS) == set()


def test_cluster_that_cannot_be_reached_must_be_told(tmp_path: Path, bare: Cluster) -> None:
    lost = tmp_path / "lost"
    lost.write_text(bare.kubeconfig().read_text().replace(bare.server, "https://127.0.0.1:1"))
    assert "error: " in play("--kubeconfig", str(lost), code=2)


def test_file_that_is_missing_must_be_told(tmp_path: Path) -> None:
    assert str(tmp_path / "none") in play("--kubeconfig", str(tmp_path / "none"), code=2)


def test_keep_and_a_cluster_never_go_together(bare: Cluster) -> None:
    assert "--keep and --kubeconfig" in play("--keep", "--kubeconfig", str(bare.kubeconfig()), code=2)
