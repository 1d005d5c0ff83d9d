"""The operator process starts, or says in one line why it does not; what it listens on; what it may see."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.api import crd
from isthmus.api.meta import Raw
from isthmus.sandbox import Cluster, Sandbox
from isthmus.sandbox.rbac import operator_role
from tests.support.audit import requests_in
from tests.support.controlplane import delete_namespace, make_namespace, make_user, start_sandbox
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.operator import ROOT, OperatorProcess, address_of, proxied
from tests.support.ports import free_port
from tests.support.rawapi import RawApi
from tests.support.world import World, serving, team

pytestmark = pytest.mark.apiserver

NOWHERE = ("--metrics-bind-address=0", "--health-probe-bind-address=0")


async def refusal(*arguments: str | Path) -> str:
    """What the operator says on stderr when it refuses to start; fails where it does not."""

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "isthmus.cli.main", "operator", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)

    ended = await asyncio.to_thread(run)
    assert ended.returncode == 2, ended
    assert "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if not re.match(r"hint: |\d{4}-", line)]
    assert len(lines) == 1, ended.stderr  # beside what was logged before
    assert lines[0].startswith("error: ")
    return ended.stderr


@pytest.mark.covers("R30")
@pytest.mark.parametrize("port", ["-1", "65536", "x", "80.5", " ", "1e4"])
async def test_bad_debug_port_must_be_refused_by_name(operator_kubeconfig: Path, port: str) -> None:
    text = await refusal(f"--kubeconfig={operator_kubeconfig}", f"--debug-port={port}", *NOWHERE)
    assert "--debug-port" in text
    assert port.strip() in text


@pytest.mark.covers("R30")
@pytest.mark.parametrize(
    "flag", ["--debug-port={}", "--health-probe-bind-address=127.0.0.1:{}", "--metrics-bind-address=:{}"]
)
async def test_port_in_use_must_be_refused_by_name(operator_kubeconfig: Path, flag: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        text = await refusal(f"--kubeconfig={operator_kubeconfig}", *NOWHERE, flag.format(port))
    assert flag.partition("=")[0] in text
    assert str(port) in text


async def test_unreachable_cluster_must_be_said_in_time_with_its_address_and_what_to_do(
    operator_kubeconfig: Path, tmp_path: Path
) -> None:
    """One address refuses, the other swallows everything."""
    async with FaultProxy(*address_of(operator_kubeconfig)) as proxy:
        proxy.blackhole()
        ports = (free_port(), proxy.listen_port)
        texts = await asyncio.gather(
            *(
                refusal(f"--kubeconfig={proxied(operator_kubeconfig, port, tmp_path)}", *NOWHERE)
                for port in ports
            )
        )
    for port, text in zip(ports, texts, strict=True):
        assert "cannot reach the cluster" in text
        assert f"https://127.0.0.1:{port}" in text
        assert "hint: " in text
        assert "kubectl cluster-info" in text


async def test_missing_kubeconfig_must_be_said_with_its_path(tmp_path: Path) -> None:
    text = await refusal(f"--kubeconfig={tmp_path / 'none'}", *NOWHERE)
    assert str(tmp_path / "none") in text


async def test_refused_credentials_must_be_said(operator_kubeconfig: Path, tmp_path: Path) -> None:
    config = json.loads(await asyncio.to_thread(operator_kubeconfig.read_text))
    config["users"][0]["user"]["token"] = "wrong"
    path = tmp_path / "kubeconfig"
    await asyncio.to_thread(path.write_text, json.dumps(config))
    text = await refusal(f"--kubeconfig={path}", *NOWHERE)
    assert "does not accept our credentials" in text
    assert "wrong" not in text


@pytest.mark.covers("MS-118")
async def test_missing_permission_must_be_said_with_what_to_grant(cluster: Cluster) -> None:
    kubeconfig = await asyncio.to_thread(cluster.add_user, "nobody")
    text = await refusal(f"--kubeconfig={kubeconfig}", *NOWHERE)
    assert "not allowed to list" in text
    assert "in all namespaces" in text
    assert "--namespace" in text


@pytest.fixture(scope="module")
def bare() -> Iterator[Sandbox]:
    """A control plane without our CRDs."""
    with start_sandbox(crds=[]) as sandbox:
        yield sandbox


async def test_missing_crd_must_be_said_with_the_command_that_installs_it(
    bare: Sandbox, tmp_path: Path
) -> None:
    kubeconfig = bare.cluster().kubeconfig("operator")
    text = await refusal(f"--kubeconfig={kubeconfig}", *NOWHERE)
    assert "modelservings.workload.serving.volcano.sh" in text
    assert "isthmus crds | kubectl apply --server-side" in text
    await asyncio.to_thread(bare.install_crds, crd.definitions())
    with OperatorProcess(kubeconfig, tmp_path / "log") as operator:
        await operator.ready()
        assert await operator.stop() == 0


def listeners(pid: int) -> set[tuple[str, int]]:
    """Address and port of every TCP socket on which a process listens, as the kernel has them."""
    inodes = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                address, _, port = fields[1].partition(":")
                found.add((address, int(port, 16)))
    return found


LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


@pytest.mark.covers("R30", "MS-47")
async def test_debug_port_must_be_on_loopback_only_and_on_no_other_port(
    operator_kubeconfig: Path, tmp_path: Path
) -> None:
    ports = (free_port(), free_port())
    everywhere = [f"--metrics-bind-address=:{ports[0]}", f"--health-probe-bind-address=:{ports[1]}"]
    with OperatorProcess(operator_kubeconfig, tmp_path / "log", *everywhere) as operator:
        operator.metrics_port, operator.health_port = ports
        await operator.ready()
        sockets = await asyncio.to_thread(listeners, operator.pid)
        debug = {address for address, port in sockets if port == operator.debug_port}
        assert "0100007F" in debug
        assert debug <= LOOPBACK
        assert {port for _, port in sockets} == {operator.debug_port, *ports}
        assert {address for address, port in sockets if port == ports[0]}.isdisjoint(LOOPBACK)
        for path in ("/debug/modelserving/cache", "/debug/modelserving/decisions", "/debug/"):
            for port in ports:
                assert (await operator.get(port, path)).status == 404
        for path in ("/metrics", "/healthz", "/readyz"):
            assert (await operator.get(operator.debug_port, path)).status == 404
        assert (await operator.get(operator.debug_port, "/debug/modelserving/cache")).status == 200
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
            reply = await operator.get(operator.debug_port, "/debug/modelserving/cache", method=method)
            assert reply.status == 405, method


@pytest.mark.covers("R30")
async def test_debug_port_must_be_off_by_default(operator_kubeconfig: Path, tmp_path: Path) -> None:
    with OperatorProcess(operator_kubeconfig, tmp_path / "log", "--debug-port=0") as operator:
        await operator.ready()
        ports = {port for _, port in await asyncio.to_thread(listeners, operator.pid)}
        assert ports == {operator.health_port, operator.metrics_port}


@pytest.mark.covers("R30", "MS-45")
async def test_debug_port_must_say_what_is_missing_while_caches_fill(
    world: World, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    """The list of pods is cut off again and again, so that it never comes to an end, until it may."""
    with OperatorProcess(operator_kubeconfig, tmp_path / "first") as operator:
        world.create(serving("a", 20, team("p", 2, 1)))
        await world.settled()
        await operator.stop()
    async with FaultProxy(*address_of(operator_kubeconfig)) as proxy:
        proxy.cut_after(100_000)
        kubeconfig = proxied(operator_kubeconfig, proxy.listen_port, tmp_path)
        with OperatorProcess(kubeconfig, tmp_path / "log", f"--namespace={world.namespace}") as operator:

            async def waits() -> None:
                reply = await operator.get(operator.debug_port, "/debug/modelserving/cache")
                assert reply.status == 503, (reply, operator.output[-2000:])
                assert json.loads(reply.body)["incomplete"] == ["pods"]

            await eventually(waits)
            assert await operator.get_health("/readyz") == 503
            assert await operator.get_health("/healthz") == 200
            verbose = await operator.get(operator.health_port, "/readyz?verbose")
            assert b"pods" in verbose.body
            proxy.heal()
            await operator.ready()
            dump = await operator.dump()
            assert len(dump[f"{world.namespace}/a"]) == 20
            assert not [d for d in await operator.decisions(f"{world.namespace}/a") if d["planned"]]


def grant(api: RawApi, user: str, namespace: str) -> None:
    """The operator's rights in one namespace, and none beside."""
    rbac = "rbac.authorization.k8s.io"
    path = f"/apis/{rbac}/v1/namespaces/{namespace}"
    role: Raw = {**operator_role(), "kind": "Role", "metadata": {"name": "operator"}}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "operator"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": user}],
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "operator"},
    }
    for kind, body in (("roles", role), ("rolebindings", binding)):
        answer = api.call("POST", f"{path}/{kind}", body)
        assert answer.code == 201, answer.body


@pytest.mark.covers("MS-118")
async def test_operator_of_two_namespaces_must_need_no_rights_elsewhere_and_touch_nothing_there(
    world: World, cluster: Cluster, serving_api: RawApi, tmp_path: Path
) -> None:
    names = [await asyncio.to_thread(make_namespace, cluster) for _ in range(2)]
    second, foreign = (World(serving_api, name) for name in names)
    user = f"restricted-{world.namespace}"
    kubeconfig = await asyncio.to_thread(cluster.add_user, user, groups=["system:serviceaccounts"])
    for each in (world, second):
        grant(serving_api, user, each.namespace)
    text = await refusal(f"--kubeconfig={kubeconfig}", f"--namespace={foreign.namespace}", *NOWHERE)
    assert f"in namespace {foreign.namespace}" in text
    flags = [f"--namespace={each.namespace}" for each in (world, second)]
    with OperatorProcess(kubeconfig, tmp_path / "log", *flags) as operator:
        for each in (world, second, foreign):
            each.create(serving("a", 2))
        await world.settled()
        await second.settled()
        assert set(await operator.dump()) == {f"{each.namespace}/a" for each in (world, second)}
        assert not foreign.pods()
        assert not foreign.status()
        await operator.stop()
    rows = await asyncio.to_thread(cluster.audit_events, user)
    # Discovery, for which everybody may ask, is about no object.
    spaces = {event["objectRef"].get("namespace") for event in rows if "objectRef" in event}
    assert spaces <= {world.namespace, second.namespace, foreign.namespace}
    at_work = [row for each in (world, second) for row in requests_in(cluster, user, each.namespace)]
    strange = [row for row in at_work if row.code not in (200, 201)]
    assert {(row.verb, row.resource, row.code) for row in strange} <= {("get", "leases", 404)}  # unclaimed
    assert {row.verb for row in requests_in(cluster, user, foreign.namespace)} == {"list"}  # refused above
    for name in names:
        await asyncio.to_thread(delete_namespace, cluster, name)


@pytest.mark.covers("MS-283")
async def test_sigterm_must_end_the_process_in_good_order(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    _, kubeconfig = await asyncio.to_thread(make_user, cluster)
    with OperatorProcess(kubeconfig, tmp_path / "log", f"--namespace={world.namespace}") as operator:
        await operator.ready()
        world.create(serving("a", 30))

        async def under_way() -> None:
            assert len(world.pods()) > 4

        await eventually(under_way, every_s=0.001)
        assert await operator.stop() == 0
        assert "Traceback" not in operator.output
    with OperatorProcess(kubeconfig, tmp_path / "log", f"--namespace={world.namespace}"):
        await world.settled()
