"""The process of a real pod is started, restarted as its policy says, and ended with grace."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from isthmus.clock import SystemClock
from isthmus.sandbox.manifest import Check, Start
from isthmus.sandbox.workload import Command, Workload
from tests.support.eventually import until

Make = Callable[..., Workload]
FOREVER = "sleep 1000"


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes workloads that run a shell script, and ends them."""
    (tmp_path / "log").touch()
    async with asyncio.TaskGroup() as group:
        tasks = []

        def run(script: str, *, power: asyncio.Event | None = None, **start: object) -> Workload:
            on = asyncio.Event()
            on.set()
            command = Command(
                argv=("/bin/sh", "-c", script),
                env={"PATH": os.environ["PATH"]},
                cwd=tmp_path,
                log=tmp_path / "log",
            )
            made = Workload(
                Start(module="", argv=(), env={}, ports=(), **start),  # type: ignore[arg-type]
                command,
                {},
                power=power or on,
                clock=SystemClock(),
            )
            tasks.append(group.create_task(made.run()))
            return made

        yield run
        for task in tasks:
            task.cancel()


async def test_process_without_probes_must_be_ready_at_once(make: Make) -> None:
    workload = make(FOREVER)
    await until(lambda: workload.state.running and workload.state.ready)


async def test_process_whose_probe_fails_never_is_ready_and_ends_by_its_liveness(make: Make) -> None:
    check = Check(port=1, path="/", delay_s=0, period_s=1, timeout_s=1, failures=1, successes=1)
    workload = make(FOREVER, readiness=check, liveness=check)
    await until(lambda: workload.state.restarts == 1)
    assert workload.state.exit_code == 137
    assert not workload.state.ready


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
async def test_end_must_be_followed_as_the_policy_says(
    make: Make, policy: str, code: int, again: bool
) -> None:
    workload = make(f"exit {code}", restart=policy)
    await until(lambda: workload.state.over or workload.state.restarts == 1)
    assert workload.state.exit_code == code
    assert workload.state.over is not again


async def test_stop_must_leave_time_to_end(make: Make, tmp_path: Path) -> None:
    workload = make("trap 'echo ended; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    await until(lambda: (tmp_path / "log").read_text() == "up\n")
    await workload.stop(10.0)
    assert (tmp_path / "log").read_text() == "up\nended\n"
    assert workload.state.over


async def test_stop_must_kill_what_does_not_end(make: Make, tmp_path: Path) -> None:
    workload = make("trap '' TERM; echo up; while :; do sleep 0.05; done")
    await until(lambda: (tmp_path / "log").read_text() == "up\n")
    await workload.stop(0.2)
    await until(lambda: workload.state.over)
    assert workload.state.exit_code == 137


async def test_nothing_must_run_without_power(make: Make) -> None:
    power = asyncio.Event()
    workload = make(FOREVER, power=power)
    assert not workload.state.running
    power.set()
    await until(lambda: workload.state.running)
    power.clear()
    workload.kill()
    await until(lambda: workload.state.restarts == 1)
    assert not workload.state.running
    await workload.stop(10.0)
    assert workload.state.over


async def test_workload_that_is_given_up_must_be_killed(make: Make, tmp_path: Path) -> None:
    workload = make("echo $$; exec sleep 1000")
    await until(lambda: (tmp_path / "log").read_text() != "")
    pid = int((tmp_path / "log").read_text())
    workload.give_up()
    await until(lambda: workload.state.over)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
