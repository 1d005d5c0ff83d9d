"""The demo of exports tells each step with what came of it, and takes everything back."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.sandbox import Sandbox, leftovers

pytestmark = pytest.mark.apiserver

DEMO = [sys.executable, "-m", "isthmus.cli.main", "sandbox", "demo-export"]


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test's own, so that nothing else is in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "isthmus" / "sandbox"


def steps(told: str) -> dict[str, list[str]]:
    """What is told of each step, by its title."""
    found: dict[str, list[str]] = {}
    for block in told.split("\n\n"):
        first, *lines = block.strip().splitlines()
        found[first.partition("] ")[2].partition(":")[0]] = [line.strip() for line in lines]
    return found


@pytest.mark.timeout(120)
def test_demo_must_show_each_step_with_its_exports_and_events(state_home: Path) -> None:
    done = subprocess.run(DEMO, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    told = steps(done.stdout)

    def events(title: str) -> list[str]:
        return [line.partition(" (")[0] for line in told[title] if line.startswith(("Normal", "Warning"))]

    def exports(title: str) -> list[str]:
        return [line.partition(" ")[2] for line in told[title] if line.startswith("ServiceExport")]

    both = ["chat-pool-relay, controlled by chat", "chat-frontend, controlled by chat"]
    title = "a relay is put beside it"
    assert (exports(title), events(title)) == (both, ["Normal ExportCreated"] * 2)
    title = "the frontend is renamed to Gateway"
    assert exports(title) == [both[0], "chat-gateway, controlled by chat"]
    assert sorted(events(title)) == ["Normal ExportCreated", "Normal ExportDeleted"]
    title = "the graph is deleted"
    assert (exports(title), events(title)) == ([], ["Normal ExportDeleted"] * 2)
    title = "the graph is made again; nobody touches the relay"
    assert (exports(title), events(title)) == (both, ["Normal ExportCreated"] * 2)
    title = "somebody exports chat-api by hand, and then the graph gets a frontend Api"
    assert (exports(title), events(title)) == ([*both, "chat-api, controlled by nobody"], [])
    title = "the export that was made by hand is deleted"
    assert exports(title) == [*both, "chat-api, controlled by chat"]
    assert events(title) == ["Normal ExportCreated"]
    title = "the cluster is given another ID than the relay has"
    assert events(title) == ["Warning ClusterIDMismatch"]
    assert "everything is gone again" in done.stdout
    assert list(state_home.iterdir()) == []


@pytest.mark.timeout(120)
def test_kept_demo_must_go_on_running(state_home: Path) -> None:
    done = subprocess.run([*DEMO, "--keep"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    sandbox = Sandbox.attach("demo-export")
    try:
        assert sandbox.record.components["operator"].state == "running"
        assert "isthmus sandbox down --name demo-export" in done.stdout
    finally:
        sandbox.stop()
    assert leftovers.running() == []


@pytest.mark.timeout(60)
def test_interrupted_demo_must_take_everything_back(state_home: Path) -> None:
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "the operator is ready" in line:
                break
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=40)
    assert process.returncode == 130, rest + errors
    assert "interrupted" in rest
    assert leftovers.running() == []
    assert list(state_home.iterdir()) == []
