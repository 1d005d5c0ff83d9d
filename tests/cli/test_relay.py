"""`isthmus relay` as a process: it answers on both ports without an API server, and ends on SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.eventually import eventually
from tests.support.operator import ROOT
from tests.support.ports import free_port
from tests.support.relaygrpc import MARKER, contract, method

COMMAND = [sys.executable, "-m", "isthmus.cli.main", "relay"]
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{{name: nowhere, context: {{cluster: nowhere, user: nobody}}}}]
clusters: [{{name: nowhere, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: nobody, user: {{token: t}}}}]
"""


def fetch(port: int, path: str) -> tuple[int, bytes]:
    """(status, body) at a path of a port of ours."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def start(arguments: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """The command, running."""
    return subprocess.Popen([*COMMAND, *arguments], env=environ, cwd=ROOT)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """What the operator's Deployment sets, and a cluster that is not there."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG.format(port=free_port()))
    return {
        **os.environ,
        "KUBECONFIG": str(kubeconfig),
        "ISTHMUS_POOL_NAME": "east",
        "ISTHMUS_POOL_NAMESPACE": "serving",
        "ISTHMUS_POOL_KIND": "ModelServing",
        "POD_IP": "127.0.0.1",
    }


@pytest.mark.covers("PR-21", "RL-1", "PW-14")
async def test_relay_must_answer_identity_and_health_as_its_deployment_starts_it(
    environ: dict[str, str],
) -> None:
    bind, system = free_port(), free_port()
    arguments = ["--cluster-id", "one", "--bind", f"0.0.0.0:{bind}"]
    environ["DYN_SYSTEM_PORT"] = str(system)
    with start(arguments, environ) as process:
        try:

            async def up() -> None:
                try:
                    assert fetch(system, "/live") == (200, b"ok\n")
                except OSError as error:
                    raise AssertionError(error) from error

            await eventually(up, within_s=20)
            status, body = fetch(system, "/health")
            assert (status, b"the pool has not been listed yet" in body) == (503, True)
            assert b"isthmus_relay_frontends" in fetch(system, "/metrics")[1]
            found = json.loads(fetch(bind, "/v1/relay")[1])
            assert (found["cluster_id"], found["namespace"], found["name"]) == ("one", "serving", "east")
            assert (found["kind"], found["models"]) == ("ModelServing", [])
            assert fetch(bind, "/v1/catalog")[0] == 503
            with grpc.insecure_channel(f"127.0.0.1:{bind}") as channel:
                request = contract().RelayInfoRequest(contract_marker=MARKER)
                info = method(channel, "GetRelayInfo", "RelayInfoRequest", "RelayInfo")(request, timeout=5)
            assert f"{info.relay.relay_incarnation:016x}" == found["incarnation"]
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def run(*arguments: str, **environ: Any) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=15
    )


@pytest.mark.covers("RL-2")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "--cluster-id"),
        (("--cluster-id", " one"), "whitespace"),
        (("--dc-id", ""), "--cluster-id"),
        (("--dc-id", "one", "--watch-all", "--namespaces", "a"), "--watch-all excludes"),
        (("--cluster-id", "one", "--bind", "east:1"), "--bind"),
        (("--cluster-id", "one", "--bind", "0.0.0.0:1", "--discovery", "http://d"), "--advertise"),
        (("--cluster-id", "one", "--discovery", "nonsense"), "--discovery"),
        (("--cluster-id", "one", "--alias", "nonsense"), "--alias"),
        (("--cluster-id", "one", "--sources-file", "/nowhere"), "/nowhere"),
    ],
)
def test_flag_that_cannot_be_must_be_refused(
    environ: dict[str, str], arguments: tuple[str, ...], problem: str
) -> None:
    environ.pop("POD_IP")
    ended = run(*arguments, **environ)
    assert (ended.returncode, problem in ended.stderr) == (2, True), ended.stderr


@pytest.mark.covers("RL-2")
def test_old_names_and_environment_must_be_taken(environ: dict[str, str]) -> None:
    busy = free_port()
    named = {"DYN_DC_ID": "one", "DYN_RELAY_BIND": f"127.0.0.1:{busy}", "DYN_RELAY_NAMESPACES": "a,b"}
    ended = run("--system-bind", f"127.0.0.1:{busy}", "--expected-unique-blocks", "7", **environ, **named)
    assert f"both want port {busy}" in ended.stderr
