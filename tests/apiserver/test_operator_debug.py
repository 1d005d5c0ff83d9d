"""A person with the command line, an operator and a cluster: what is shown is what is there."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.operator import ROOT, OperatorProcess, address_of, proxied
from tests.support.ports import free_port
from tests.support.world import World, serving, team

pytestmark = pytest.mark.apiserver


class Ended(NamedTuple):
    code: int
    out: str
    err: str


async def debug(port: int, *arguments: str) -> Ended:
    """`isthmus debug ARGUMENTS --port PORT`."""

    def run() -> Ended:
        command = [sys.executable, "-m", "isthmus.cli.main", "debug", *arguments, f"--port={port}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
        return Ended(done.returncode, done.stdout, done.stderr)

    return await asyncio.to_thread(run)


@pytest.mark.covers("MS-47", "R04")
async def test_cache_decisions_and_diff_must_show_what_there_is(
    world: World, operator_kubeconfig: Path, admin_kubeconfig: Path, tmp_path: Path
) -> None:
    here = f"--namespace={world.namespace}"
    with OperatorProcess(operator_kubeconfig, tmp_path / "log", here) as operator:
        world.create(serving("a", 2, team("p", 1, 1), team("d", 2, 0)))
        await world.settled()
        world.fault("a-1-d-1-0", "unready")

        async def one_is_missing() -> None:
            assert world.status().get("availableReplicas") == 1

        await eventually(one_is_missing)
        tree = await debug(operator.debug_port, "cache", here)
        assert tree.code == 0, tree.err
        for word in (f"{world.namespace}/a", "a-0", "a-1", "p-0", "d-1", "a-0-p-0-1"):
            assert word in tree.out
        shown = await debug(operator.debug_port, "cache", here, "-o", "json")
        assert json.loads(shown.out) == await operator.dump(f"?namespace={world.namespace}")
        assert (
            json.loads(shown.out)[f"{world.namespace}/a"]["a-1"]["roles"]["d"]["d-1"]["status"] == "Creating"
        )
        decided = await debug(operator.debug_port, "decisions", here, "-o", "json")
        assert json.loads(decided.out)[f"{world.namespace}/a"]
        same = await debug(operator.debug_port, "diff", here, f"--kubeconfig={admin_kubeconfig}")
        assert (same.code, same.out) == (0, ""), same


async def test_diff_must_name_what_a_deaf_operator_has_missed(
    world: World, operator_kubeconfig: Path, admin_kubeconfig: Path, tmp_path: Path
) -> None:
    here = f"--namespace={world.namespace}"
    async with FaultProxy(*address_of(operator_kubeconfig)) as proxy:
        kubeconfig = proxied(operator_kubeconfig, proxy.listen_port, tmp_path)
        with OperatorProcess(kubeconfig, tmp_path / "log", here) as operator:
            world.create(serving("a", 2))
            await world.settled()
            proxy.freeze()
            world.delete(SERVING_PODS, "a-1-p-0-1", grace_s=0)
            differs = await debug(operator.debug_port, "diff", here, f"--kubeconfig={admin_kubeconfig}")
            assert differs.code == 1, differs
            assert "a-1-p-0-1" in differs.out
            assert "a-0-p-0" not in differs.out
            proxy.heal()
            await world.settled()
            same = await debug(operator.debug_port, "diff", here, f"--kubeconfig={admin_kubeconfig}")
            assert same.code == 0, same


async def test_commands_must_say_when_nothing_listens(operator_kubeconfig: Path) -> None:
    port = free_port()
    for arguments in (["cache"], ["decisions"], ["diff", f"--kubeconfig={operator_kubeconfig}"]):
        ended = await debug(port, *arguments)
        assert ended.code == (2 if arguments[0] == "diff" else 1)
        assert str(port) in ended.err
        assert "Traceback" not in ended.err


@pytest.fixture
def _heard() -> Iterator[None]:
    """Let processes that are started now hear Ctrl-C, also where the tests run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heard")
async def test_watching_must_follow_a_deletion_and_survive_the_operator(
    world: World, operator_kubeconfig: Path, tmp_path: Path
) -> None:
    here = f"--namespace={world.namespace}"
    with OperatorProcess(operator_kubeconfig, tmp_path / "log", here) as operator:
        world.create(serving("a", 1))
        await world.settled()
        flags = ["--watch", "--interval=0.2", "--output=json", f"--port={operator.debug_port}"]
        output = tmp_path / "watched"
        with output.open("wb") as sink:
            watching = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "isthmus.cli.main", "debug", "cache", *flags),
                stdout=sink,
                stderr=sink,
                cwd=ROOT,
            )

        async def shows(text: str) -> None:
            assert text in await asyncio.to_thread(output.read_text)

        try:
            await eventually(lambda: shows("a-0-p-0-0"))
            world.delete(MODEL_SERVINGS, "a")
            await eventually(lambda: shows("{}"))
            operator.kill()
            await eventually(lambda: shows(str(operator.debug_port)))
            assert watching.returncode is None
            watching.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(watching.wait(), 20) == 0
        finally:
            if watching.returncode is None:
                watching.kill()
                await watching.wait()
