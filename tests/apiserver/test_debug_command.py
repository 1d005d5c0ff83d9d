"""`isthmus debug` against a real operator and API server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.cli.compare import fetch_view
from isthmus.cli.dumps import Unreadable
from tests.support.operator import OperatorProcess, proxied
from tests.support.ports import free_port
from tests.support.world import World, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]


async def debug(operator: OperatorProcess, *args: str) -> subprocess.CompletedProcess[str]:
    name, *rest = args
    command = [
        sys.executable,
        "-m",
        "isthmus.cli.main",
        "debug",
        name,
        f"--port={operator.debug_port}",
        *rest,
    ]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)


@pytest.mark.covers("MS-47")
async def test_debug_must_show_what_the_api_server_has(
    world: World, operator: OperatorProcess, admin_kubeconfig: Path
) -> None:
    world.create(serving("a", 2, team("prefill", 2, 1), team("decode", 1, 0)))
    world.create(serving("b", 0))
    await world.settled()
    here = ("-n", world.namespace)
    shown = await debug(operator, "cache", *here)
    assert shown.returncode == 0, shown.stderr
    assert "!" not in shown.stdout
    assert all(name in shown.stdout for name in world.pods())
    assert f"{world.namespace}/b  0 groups" in shown.stdout
    dump = json.loads((await debug(operator, "cache", "-o", "json", *here, "--name", "a")).stdout)
    assert list(dump) == [f"{world.namespace}/a"]
    decided = await debug(operator, "decisions", *here, "--name", "a")
    assert decided.returncode == 0, decided.stderr
    assert f"{world.namespace}/a" in decided.stdout
    for narrow in ([*here], [*here, "--name", "a"], []):
        same = await debug(operator, "diff", f"--kubeconfig={admin_kubeconfig}", *narrow)
        assert (same.returncode, same.stdout) == (0, ""), same.stdout + same.stderr


async def test_fetch_view_must_have_every_running_pod_of_the_modelserving_asked_for(
    world: World, admin_kubeconfig: Path
) -> None:
    world.create(serving("a"))
    await world.settled()
    api = await fetch_view(str(admin_kubeconfig), world.namespace, "a")
    groups = api[f"{world.namespace}/a"]
    running = {pod for group in groups.values() for instance in group.values() for pod in instance.running}
    assert running == set(world.pods())
    assert await fetch_view(str(admin_kubeconfig), world.namespace, "other") == {}


async def test_fetch_view_must_say_that_the_api_server_does_not_answer(
    admin_kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.cli.compare.TIMEOUT_S", 0.5)
    nowhere = proxied(admin_kubeconfig, free_port(), tmp_path)
    with pytest.raises(Unreadable, match="cannot list what the API server has"):
        await fetch_view(str(nowhere), "default", None)
