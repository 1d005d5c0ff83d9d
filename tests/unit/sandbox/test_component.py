"""A server process is kept running, and stopped only on request."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.clock import SystemClock
from isthmus.sandbox import component as components
from isthmus.sandbox import processes
from isthmus.sandbox.component import Component, ComponentFailed
from tests.support.eventually import until

SHELL = "/bin/sh"


def component(tmp_path: Path, script: str) -> Component:
    return Component(
        "server",
        [SHELL, "-c", script],
        log_path=tmp_path / "log",
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        clock=SystemClock(),
        changed=lambda: None,
    )


def pid_of(server: Component) -> int:
    identity = server.record.identity
    return 0 if identity is None else identity.pid


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Component]:
    """Runs until the test ends; notes each start, and says so when it is asked to end."""
    made = component(
        tmp_path, "trap 'echo asked >> starts; exit 0' TERM; echo up >> starts; sleep 600 & wait"
    )
    async with asyncio.TaskGroup() as group:
        keeper = group.create_task(made.keep())
        made.start()
        (tmp_path / "starts").touch()
        await until(lambda: "up" in (tmp_path / "starts").read_text())
        yield made
        keeper.cancel()


async def test_server_that_dies_unasked_must_be_started_again(server: Component) -> None:
    first = pid_of(server)
    os.kill(first, signal.SIGKILL)
    await until(lambda: server.record.restarts == 1 and pid_of(server) not in (0, first))
    assert server.record.state == "running"


async def test_stopped_server_must_stay_stopped_until_it_is_started(server: Component) -> None:
    await server.stop(grace_s=0)
    await asyncio.sleep(components.REST_S + 0.1)
    assert (server.record.state, pid_of(server), server.record.restarts) == ("stopped", 0, 0)
    server.start()
    await until(lambda: pid_of(server) != 0)


async def test_server_must_be_asked_before_it_is_killed(server: Component, tmp_path: Path) -> None:
    await server.stop(grace_s=5)
    assert (tmp_path / "starts").read_text().split() == ["up", "asked"]


async def test_paused_server_must_be_frozen_and_go_on(server: Component) -> None:
    stat = Path(f"/proc/{pid_of(server)}/stat")
    server.pause()
    await until(lambda: ") T " in stat.read_text())
    assert server.record.state == "paused"
    server.resume()
    await until(lambda: ") T " not in stat.read_text())


async def test_paused_server_must_be_stoppable(server: Component) -> None:
    server.pause()
    await server.stop(grace_s=0)
    assert server.record.state == "stopped"


async def test_cancelled_keeper_must_leave_no_process(tmp_path: Path) -> None:
    server = component(tmp_path, "echo > up; sleep 600")
    async with asyncio.TaskGroup() as group:
        keeper = group.create_task(server.keep())
        server.start()
        await until((tmp_path / "up").exists)
        identity = server.record.identity
        assert identity is not None
        keeper.cancel()
    assert not processes.is_alive(identity)


async def test_server_that_keeps_dying_must_fail_with_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(components, "REST_S", 0.0)
    server = component(tmp_path, "echo the port is taken; exit 3")
    server.start()
    with pytest.raises(ComponentFailed, match=r"server died 4 times(.|\n)*the port is taken"):
        await server.keep()
