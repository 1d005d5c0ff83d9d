"""Sandboxes come up side by side, survive what servers do, and leave nothing behind, however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from isthmus.errors import UserError
from isthmus.sandbox import Sandbox, SandboxFailed, build, leftovers, processes
from isthmus.sandbox import sandbox as sandboxes
from isthmus.sandbox.processes import Identity
from tests.support.controlplane import StartSandbox, start_sandbox

CLI = [sys.executable, "-m", "isthmus.cli.main", "sandbox"]
START = (
    "import sys; from isthmus.sandbox import Sandbox;"
    "Sandbox.start(sys.argv[1]); print('up', flush=True); sys.stdin.read()"
)


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test's own, so that it sees no other leftovers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "isthmus" / "sandbox"


@pytest.fixture
def alone(private_controlplane: StartSandbox) -> Sandbox:
    return private_controlplane(crds=())


def identities(sandbox: Sandbox) -> list[Identity]:
    """Every process of a sandbox."""
    record = sandbox.record
    servers = (component.identity for component in record.components.values())
    return [record.supervisor, *(each for each in servers if each is not None)]


def wait_until(holds: Callable[[], bool], *, within_s: float = 15) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.02)


def wait_gone(every: list[Identity]) -> None:
    assert len(every) >= 4
    wait_until(lambda: not any(processes.is_alive(each) for each in every))


@pytest.fixture
def starter() -> Iterator[subprocess.Popen[str]]:
    """Another process that started a sandbox named `x` and waits."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", START, "x"], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


def test_two_sandboxes_must_not_share_anything(private_controlplane: StartSandbox) -> None:
    one, other = private_controlplane(crds=()), private_controlplane(crds=())
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}}
    one.cluster().request("/api/v1/namespaces", method="POST", body=body)
    names = {item["metadata"]["name"] for item in other.cluster().request("/api/v1/namespaces")["items"]}
    assert "only-here" not in names
    assert one.cluster().token() != other.cluster().token()
    other.stop()
    assert one.cluster().request("/readyz") == "ok"


def test_clusters_of_a_sandbox_must_not_share_objects(private_controlplane: StartSandbox) -> None:
    sandbox = private_controlplane(crds=(), clusters=2, nodes=3)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "only-here"}}
    sandbox.cluster(0).request("/api/v1/namespaces", method="POST", body=body)
    names = {item["metadata"]["name"] for item in sandbox.cluster(1).request("/api/v1/namespaces")["items"]}
    assert "only-here" not in names
    assert len(sandbox.cluster(1).request("/api/v1/nodes")["items"]) == 3
    with pytest.raises(UserError, match="--cluster 2"):
        sandbox.cluster(2)


def test_stop_must_leave_no_process_and_no_folder(alone: Sandbox, state_home: Path) -> None:
    every = identities(alone)
    alone.stop()
    wait_gone(every)
    assert list(state_home.iterdir()) == []


def test_killed_supervisor_must_leave_no_process(alone: Sandbox) -> None:
    every = identities(alone)
    os.kill(alone.record.supervisor.pid, signal.SIGKILL)
    wait_gone(every)


def test_killed_starter_must_leave_no_process_and_no_folder(
    starter: subprocess.Popen[str], state_home: Path
) -> None:
    every = identities(Sandbox.attach("x"))
    starter.kill()
    wait_gone(every)
    wait_until(lambda: list(state_home.iterdir()) == [])


def test_starter_and_supervisor_killed_at_once_must_be_cleared_by_the_next_start(
    starter: subprocess.Popen[str], state_home: Path
) -> None:
    sandbox = Sandbox.attach("x")
    every = identities(sandbox)
    os.kill(every[0].pid, signal.SIGKILL)
    starter.kill()
    wait_gone(every)
    assert [path.name for path in state_home.iterdir()] == ["x"]
    with start_sandbox(name="y", crds=()):
        assert [path.name for path in state_home.iterdir()] == ["y"]


def test_name_of_a_crashed_sandbox_must_be_usable_again(private_controlplane: StartSandbox) -> None:
    crashed = private_controlplane(name="again", crds=(), ephemeral=False)
    every = identities(crashed)
    os.kill(every[0].pid, signal.SIGKILL)
    wait_gone(every)
    leftovers.clear_crashed()
    assert crashed.folder.log("etcd").exists(), "a named one keeps its logs"
    sandbox = private_controlplane(name="again", crds=())
    assert sandbox.cluster().request("/readyz") == "ok"


def test_process_that_a_crash_left_must_be_ended_by_the_next_start(
    private_controlplane: StartSandbox, tmp_path: Path
) -> None:
    crashed = private_controlplane(name="again", crds=(), ephemeral=False)
    every = identities(crashed)
    record = crashed.record
    os.kill(every[0].pid, signal.SIGKILL)
    wait_gone(every)
    # Stands in for a server that the kernel did not end: its record is what counts.
    left = processes.spawn(["/bin/sleep", "600"], log=tmp_path / "left", cwd=tmp_path, env={})
    identity = processes.identify(left.pid, "/bin/sleep")
    component = record.components["etcd"]
    record.components["etcd"] = type(component)(identity, component.log, component.state)
    crashed.folder.record.write_bytes(msgspec.json.encode(record))
    private_controlplane(name="again", crds=())
    assert left.wait(5) == -signal.SIGKILL


def test_server_that_cannot_start_must_fail_the_start_with_its_log(tmp_path: Path, state_home: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho this is why\nexit 1\n")
    broken.chmod(0o755)
    programs = build.single(broken)
    with pytest.raises(SandboxFailed, match=r"etcd died 4 times(.|\n)*this is why"):
        Sandbox.start(programs=programs)
    assert list(state_home.iterdir()) == []


def test_start_that_is_interrupted_at_once_must_leave_no_folder(
    state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor is ended before it has come to the point where it could clean up by itself."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sandboxes, "_wait_ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Sandbox.start()
    assert list(state_home.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_command_that_is_ended_must_leave_nothing(number: signal.Signals, state_home: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*CLI, "up", "--no-crds"], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("export KUBECONFIG=/")
        every = identities(Sandbox.attach("default"))
        # It waits for the sandbox's end once it has said how to end it.
        wait_until(lambda: "Ctrl-C" in process.stderr.readline() if process.stderr else False)
        process.send_signal(number)
        process.communicate(timeout=15)
        assert process.returncode == (0 if number is not signal.SIGKILL else -number)
    wait_gone(every)
    wait_until(lambda: list(state_home.iterdir()) == [])


def run(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([*CLI, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_detached_sandbox_must_outlive_its_command_until_down(state_home: Path) -> None:
    run("up", "--name", "far", "--detach", "--clusters", "2")
    try:
        every = identities(Sandbox.attach("far"))
        path = Path(run("kubeconfig", "--name", "far", "--cluster", "1").strip())
        assert path.is_file()
        assert "apiserver-1" in run("status")
        assert "supervisor" in run("logs", "--name", "far")
        assert "ready" in run("logs", "supervisor", "--name", "far")
        assert "no log 'x'" in run("logs", "x", "--name", "far", code=2)
    finally:
        run("down", "--name", "far")
    wait_gone(every)
    assert list(state_home.iterdir()) == []
    assert "no sandbox named 'far' runs" in run("down", "--name", "far", code=2)


def test_crashed_sandbox_must_be_shown_and_cleared(state_home: Path) -> None:
    run("up", "--name", "far", "--detach", "--no-crds")
    every = identities(Sandbox.attach("far"))
    os.kill(every[0].pid, signal.SIGKILL)
    wait_gone(every)
    assert "far: crashed" in run("status")
    run("down", "--name", "far")
    assert list(state_home.iterdir()) == []
