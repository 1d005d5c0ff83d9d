from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.api.times import format_time
from isthmus.errors import UserError
from isthmus.kube import config
from isthmus.kube.credentials import Pem
from isthmus.kube.errors import Unreachable
from isthmus.kube.execplugin import ExecCommand, ExecCredentials
from tests.support.clock import FakeClock

V1 = "client.authentication.k8s.io/v1"
Make = Callable[..., ExecCredentials]


@pytest.fixture
def plugin(tmp_path: Path) -> Make:
    """A factory of credentials whose command is a Python text that prints; it counts its runs in `runs`."""

    def make(code: str, *, deadline_s: float = 10, **command: Any) -> ExecCredentials:
        script = tmp_path / "plugin.py"
        script.write_text(
            f"import json, os, sys, time\nopen({str(tmp_path / 'runs')!r}, 'a').write('x')\n{code}\n"
        )
        arguments = {"command": sys.executable, "args": ("-S", str(script)), "api_version": V1} | command
        return ExecCredentials(ExecCommand(**arguments), environ={"PATH": "/nowhere"}, deadline_s=deadline_s)

    return make


def printing(version: str = V1, **status: str) -> str:
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    return f"print({json.dumps(answer)!r})"


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text())


@pytest.mark.parametrize("version", [V1, "client.authentication.k8s.io/v1beta1"])
async def test_token_must_be_kept_until_it_is_refused(plugin: Make, tmp_path: Path, version: str) -> None:
    clock = FakeClock()
    credentials = plugin(printing(version, token="t"), api_version=version)
    assert credentials.cached(0) is None
    assert await credentials.refresh(clock) == "Bearer t"
    assert credentials.cached(1e12) == "Bearer t"
    credentials.renew()
    assert credentials.cached(0) is None
    await credentials.refresh(clock)
    assert runs(tmp_path) == 2


async def test_token_must_be_fetched_anew_before_it_expires(plugin: Make) -> None:
    clock = FakeClock()
    expiry = format_time(clock.now() + 60)
    credentials = plugin(printing(token="t", expirationTimestamp=expiry))
    await credentials.refresh(clock)
    assert credentials.cached(clock.monotonic() + 49) == "Bearer t"
    assert credentials.cached(clock.monotonic() + 51) is None


async def test_expired_token_never_causes_a_run_per_request(plugin: Make) -> None:
    clock = FakeClock()
    credentials = plugin(printing(token="t", expirationTimestamp=format_time(clock.now() - 9)))
    await credentials.refresh(clock)
    assert credentials.cached(clock.monotonic() + 0.5) == "Bearer t"
    assert credentials.cached(clock.monotonic() + 1.5) is None


async def test_many_waiters_must_share_one_run(plugin: Make, tmp_path: Path) -> None:
    credentials = plugin("time.sleep(0.2)\n" + printing(token="t"))
    clock = FakeClock()
    assert set(await asyncio.gather(*(credentials.refresh(clock) for _ in range(20)))) == {"Bearer t"}
    assert runs(tmp_path) == 1


async def test_slow_plugin_never_holds_the_loop(plugin: Make) -> None:
    credentials = plugin("time.sleep(0.5)\n" + printing(token="t"))
    loop = asyncio.get_running_loop()
    longest = 0.0

    async def measure() -> None:
        nonlocal longest
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            longest = max(longest, loop.time() - before)

    async with asyncio.TaskGroup() as group:
        meter = group.create_task(measure())
        await credentials.refresh(FakeClock())
        meter.cancel()
    assert longest < 0.3


async def test_plugin_must_get_its_environment_and_the_cluster(plugin: Make) -> None:
    code = (
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert info['spec'] == {'interactive': False, 'cluster': {'server': 's'}}, info\n"
        "assert sys.stdin.read() == ''\n"
        "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': info['kind'],"
        " 'status': {'token': os.environ['EXTRA'] + os.environ['PATH']}}))"
    )
    credentials = plugin(code, env={"EXTRA": "e"}, cluster={"server": "s"})
    assert await credentials.refresh(FakeClock()) == "Bearer e/nowhere"


async def test_client_certificate_must_be_handed_on(plugin: Make) -> None:
    credentials = plugin(printing(clientCertificateData="C", clientKeyData="K"))
    assert await credentials.refresh(FakeClock()) == ""
    assert credentials.cached(0) == ""
    assert credentials.certificate() == Pem(b"C", b"K")


async def test_plugin_that_hangs_must_be_killed_at_its_deadline(plugin: Make) -> None:
    with pytest.raises(Unreachable, match="no answer in") as caught:
        await plugin("time.sleep(60)", deadline_s=0.3).refresh(FakeClock())
    assert not caught.value.sent


async def test_plugin_that_fails_must_be_quoted(plugin: Make) -> None:
    with pytest.raises(Unreachable, match="ended with 3: log in first"):
        await plugin("sys.stderr.write('log in first')\nsys.exit(3)").refresh(FakeClock())


async def test_missing_plugin_must_give_its_install_hint() -> None:
    command = ExecCommand(command="/nowhere/plugin", api_version=V1, install_hint="get it")
    with pytest.raises(UserError, match="cannot be run") as caught:
        await ExecCredentials(command).refresh(FakeClock())
    assert caught.value.hint == "get it"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print('hello')", "no ExecCredential"),
        ("print('x' * (2 << 20))", "longer than"),
        (printing("client.authentication.k8s.io/v1beta1", token="t"), "v1beta1; the kubeconfig asks for"),
        (printing(), "neither a token nor"),
        (printing(clientCertificateData="C"), "neither a token nor"),
        (printing(token="t", expirationTimestamp="tomorrow"), "no RFC 3339 time"),
    ],
)
async def test_answer_that_breaks_the_contract_must_be_refused(plugin: Make, code: str, text: str) -> None:
    with pytest.raises(UserError, match=text):
        await plugin(code).refresh(FakeClock())


async def test_kubeconfig_must_tell_the_plugin_of_its_cluster_if_it_asks(tmp_path: Path) -> None:
    script = tmp_path / "plugin.sh"
    script.write_text(
        "#!/bin/sh\n"
        'token=$(printf %s "$KUBERNETES_EXEC_INFO" | base64 -w0)\n'
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        '"status":{"token":"%s"}}\' "$token"\n'
    )
    script.chmod(0o755)
    (tmp_path / "ca.crt").write_bytes(b"PEM")
    plugin = {
        "apiVersion": V1,
        "command": "./plugin.sh",
        "provideClusterInfo": True,
        "env": [{"name": "A", "value": "b"}],
    }
    cluster = {
        "server": "https://h:6443",
        "certificate-authority": "ca.crt",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    content = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (tmp_path / "config").write_text(json.dumps(content))
    loaded = await asyncio.to_thread(config.load, tmp_path / "config", environ={"PATH": os.defpath})
    header = await loaded.credentials.refresh(FakeClock())
    info = json.loads(base64.b64decode(header.removeprefix("Bearer ")))
    assert info["spec"]["cluster"] == {
        "server": "https://h:6443",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "config": {"audience": "x"},
    }
