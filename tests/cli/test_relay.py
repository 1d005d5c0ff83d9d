"""`isthmus relay` as a process: it answers on both ports, and ends on SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.support.eventually import eventually
from tests.support.operator import ROOT
from tests.support.ports import free_port

COMMAND = [sys.executable, "-m", "isthmus.cli.main", "relay"]


def fetch(port: int, path: str) -> bytes:
    """The body at a path of a port of ours."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        body: bytes = answer.read()
        return body


def start(arguments: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """The command, running."""
    return subprocess.Popen([*COMMAND, *arguments], env=environ, cwd=ROOT)


@pytest.mark.covers("PR-21")
async def test_relay_must_answer_identity_and_health_as_its_deployment_starts_it() -> None:
    bind, system = free_port(), free_port()
    environ = {
        **os.environ,
        "ISTHMUS_POOL_NAME": "east",
        "ISTHMUS_POOL_NAMESPACE": "serving",
        "ISTHMUS_POOL_KIND": "ModelServing",
        "DYN_SYSTEM_PORT": str(system),
    }
    arguments = ["--cluster-id", "one", "--bind", f"0.0.0.0:{bind}"]
    with start(arguments, environ) as process:
        try:

            async def up() -> bytes:
                try:
                    return fetch(system, "/health")
                except OSError as error:
                    raise AssertionError(error) from error

            assert await eventually(up, within_s=20) == b"ok\n"
            assert fetch(system, "/live") == b"ok\n"
            found = json.loads(fetch(bind, "/v1/relay"))
            assert (found["cluster_id"], found["namespace"], found["name"]) == ("one", "serving", "east")
            assert found["kind"] == "ModelServing"
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_relay_without_a_cluster_id_must_be_refused() -> None:
    ended = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "--cluster-id" in ended.stderr
