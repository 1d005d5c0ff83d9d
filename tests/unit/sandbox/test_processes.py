"""Processes end with their parent, and only the recorded process is ever ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from isthmus.sandbox import processes
from isthmus.sandbox.processes import Identity

SLEEP = "/bin/sleep"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = processes.spawn([SLEEP, "600"], log=tmp_path / "log", cwd=tmp_path, env={})
    line = Path(f"/proc/{process.pid}/cmdline")
    while not line.read_bytes().startswith(SLEEP.encode()):  # the wrapper has become the program
        time.sleep(0.005)
    yield process
    process.kill()
    process.wait()


def identity_of(process: subprocess.Popen[bytes]) -> Identity:
    identity = processes.identify(process.pid, SLEEP)
    assert identity is not None
    return identity


def gone_within(identity: Identity, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while processes.is_alive(identity):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_recorded_process_must_be_ended(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.end(identity_of(sleeper), grace_s=5)
    assert sleeper.wait(5) == -signal.SIGTERM


def test_process_without_grace_must_be_killed(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.end(identity_of(sleeper), grace_s=0)
    assert sleeper.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize("change", [{"start": 1}, {"boot": "another"}, {"program": "/bin/another"}])
def test_stranger_with_the_same_pid_never_is_ended(
    sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    stranger = msgspec.structs.replace(identity_of(sleeper), **change)
    assert processes.end(stranger, grace_s=0)
    assert sleeper.poll() is None


def test_corpse_must_count_as_gone(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper)
    os.kill(sleeper.pid, signal.SIGKILL)
    # Not collected by its parent, this test, until the fixture does.
    assert gone_within(identity, 5)
    assert processes.identify(sleeper.pid, SLEEP) is None


def test_spawned_process_must_die_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from isthmus.sandbox import processes;"
        f"p = processes.spawn(['{SLEEP}', '600'], log=Path('log'), cwd=Path('.'), env={{}});"
        "print(p.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        deadline = time.monotonic() + 5
        # The wrapper has become the program once the program's name comes first.
        while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(SLEEP.encode()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child = processes.identify(pid, SLEEP)
        assert child is not None
        parent.kill()
        parent.wait()
    assert gone_within(child, 5)


def test_usage_of_a_process_must_be_read(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.resident_bytes(os.getpid()) > 1 << 20
    assert processes.cpu_seconds(os.getpid()) > 0
    assert processes.resident_bytes(2**22 + 1) == 0
