"""The process of a real pod's container, kept as a kubelet keeps it: started, probed, restarted, ended.

machine.py makes one per pod; node.py writes what `state` says into the pod's status whenever `changed` is
set. A process that ends is started again as the restart policy says, after a back-off that doubles from
`REST_S` up to `MAX_REST_S` and begins anew once it has run for `HEALTHY_S`. While `power` is not set, nothing
runs: the whole cluster is away. It must run on the main thread (processes.spawn).
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from isthmus import logs
from isthmus.clock import Clock
from isthmus.runtime.tasks import wait_event, wait_first
from isthmus.sandbox import probes, processes
from isthmus.sandbox.manifest import Start

log = logs.get(__name__)

REST_S: Final = 0.3
MAX_REST_S: Final = 20.0
HEALTHY_S: Final = 30.0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the process does. `exit_code`: of its last end, None before the first; `ended_at`: when that was,
    wall time; `over`: it will not be started again."""

    running: bool = False
    ready: bool = False
    restarts: int = 0
    exit_code: int | None = None
    ended_at: float = 0.0
    over: bool = False


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How to start it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    log: Path


class Workload:
    """See the module. `ports`: the pod's to loopback's."""

    def __init__(
        self, start: Start, command: Command, ports: Mapping[int, int], *, power: asyncio.Event, clock: Clock
    ) -> None:
        self.state = State()
        self.changed = asyncio.Event()
        self._start = start
        self._command = command
        self._ports = ports
        self._power = power
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = asyncio.Event()
        self._gone = asyncio.Event()

    async def run(self) -> None:
        """Keep it running until it is over. Cancelling kills it."""
        rest_s = 0.0
        try:
            while True:
                await wait_first(self._power.wait(), self._stop.wait())
                if self._stop.is_set():
                    return
                began = self._clock.monotonic()
                await self._run_once()
                if not self._goes_on():
                    return
                rest_s = REST_S if self._clock.monotonic() - began > HEALTHY_S else max(REST_S, rest_s * 2)
                rest_s = min(rest_s, MAX_REST_S)
                if self._power.is_set():
                    await wait_event(self._stop, rest_s, self._clock)
        finally:
            self.kill()
            self._gone.set()
            self._set(running=False, ready=False, over=True)

    async def stop(self, grace_s: float) -> None:
        """End it for good: SIGTERM, and SIGKILL after `grace_s` seconds."""
        self._stop.set()
        self._signal(signal.SIGTERM)
        await wait_event(self._gone, grace_s, self._clock)
        self.kill()

    def kill(self) -> None:
        """SIGKILL. It is started again where its policy says so."""
        self._signal(signal.SIGKILL)

    def give_up(self) -> None:
        """SIGKILL, and never again."""
        self._stop.set()
        self.kill()

    async def _run_once(self) -> None:
        command, start = self._command, self._start
        process = processes.spawn(command.argv, log=command.log, cwd=command.cwd, env=command.env)
        self._process = process
        try:
            self._set(running=True, ready=False)
            await wait_first(processes.ended(process), self._watch(start))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            self._process = None
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        log.info("a pod's process ended", log=command.log.stem, exit_code=code)
        self._set(running=False, ready=False, exit_code=code, ended_at=self._clock.now())

    async def _watch(self, start: Start) -> None:
        """The probes; without a readiness probe it is ready as soon as it runs."""
        async with asyncio.TaskGroup() as group:
            if start.readiness is None:
                self._set(ready=True)
            else:
                watch = probes.watch(start.readiness, self._ports, self._clock, self._hear_ready, eager=True)
                group.create_task(watch)
            if start.liveness is not None:
                group.create_task(self._watch_liveness(start))
            await asyncio.Event().wait()

    async def _watch_liveness(self, start: Start) -> None:
        assert start.liveness is not None
        await self._clock.sleep(start.liveness.delay_s)
        if start.startup is not None:
            patience_s = start.startup.failures * start.startup.period_s
            deadline = self._clock.monotonic() + start.startup.delay_s + patience_s
            while not await probes.succeeds(start.startup, self._ports):
                if self._clock.monotonic() > deadline:
                    log.warning("a pod's startup probe failed", log=self._command.log.stem)
                    self.kill()
                await self._clock.sleep(probes.EAGER_S)
        await probes.watch(start.liveness, self._ports, self._clock, self._hear_live)

    def _hear_ready(self, verdict: bool) -> None:
        self._set(ready=verdict)

    def _hear_live(self, verdict: bool) -> None:
        if not verdict:
            log.warning("a pod's liveness probe failed", log=self._command.log.stem)
            self.kill()

    def _goes_on(self) -> bool:
        if self._stop.is_set():
            return False
        policy, failed = self._start.restart, self.state.exit_code != 0
        if policy == "Never" or (policy == "OnFailure" and not failed):
            return False
        self._set(restarts=self.state.restarts + 1)
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _set(self, **changes: object) -> None:
        state = msgspec.structs.replace(self.state, **changes)
        if state != self.state:
            self.state = state
            self.changed.set()
