"""`isthmus explain modelserving` against a real API server, with an operator and without."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from isthmus.sandbox import Cluster
from tests.support.controlplane import make_user
from tests.support.eventually import eventually
from tests.support.operator import OperatorProcess
from tests.support.ports import free_port
from tests.support.world import World, serving, team

pytestmark = pytest.mark.apiserver


@pytest.fixture
def operators_kubeconfig(cluster: Cluster) -> Path:
    """That of an operator of one test alone."""
    return make_user(cluster, prefix="explained")[1]


async def explain(
    world: World, kubeconfig: Path, *args: str, name: str = "a"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isthmus.cli.main", "explain", "modelserving", name]
    command += [f"--kubeconfig={kubeconfig}", f"--namespace={world.namespace}", *args]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)


async def test_explain_must_tell_the_truth_without_an_operator_with_one_and_of_a_fault(
    world: World, operators_kubeconfig: Path, admin_kubeconfig: Path, tmp_path: Path
) -> None:
    world.create(serving("a", 1, team("p", 1, 1), schedulerName="default-scheduler", recoveryPolicy="None"))
    before = await explain(world, admin_kubeconfig, f"--debug-address=127.0.0.1:{free_port()}")
    assert before.returncode == 1, before.stderr
    assert "is not ready: 0 of 1 group is available." in before.stdout
    assert "No operator has looked at it yet" in before.stdout
    assert "The operator cannot be asked: nothing listens" in before.stdout
    with OperatorProcess(
        operators_kubeconfig, tmp_path / "log", f"--namespace={world.namespace}"
    ) as operator:
        await operator.ready()
        await world.settled()
        address = f"--debug-address=127.0.0.1:{operator.debug_port}"
        after = await explain(world, admin_kubeconfig, address)
        assert after.returncode == 0, after.stdout + after.stderr
        assert "is ready: 1 of 1 group is available." in after.stdout
        assert "Nothing is left to do." in after.stdout
        assert "The operator decided last:" in after.stdout
        world.fault("a-0-p-0-1", "fail")

        async def is_told() -> None:
            found = await explain(world, admin_kubeconfig, address)
            assert found.returncode == 1
            assert "pod a-0-p-0-1 is left as it is, since recoveryPolicy is None" in found.stdout
            assert "The operator sees a-0 Creating." in found.stdout

        await eventually(is_told, within_s=30)


async def test_explain_must_say_what_is_absent(world: World, admin_kubeconfig: Path) -> None:
    none = await explain(world, admin_kubeconfig)
    assert none.returncode == 2
    assert f"error: no ModelServing {world.namespace}/a" in none.stderr
    assert "there is none in namespace" in none.stderr
    world.create(serving("b", 0))
    assert "hint: there are: b" in (await explain(world, admin_kubeconfig)).stderr
