"""One server process of a sandbox, kept running: restarted when it dies unasked, stopped on request.

The supervisor has one per etcd, API server and controller manager. A server that dies unasked is started
again after a moment, as a kubelet would; one that dies `MAX_DEATHS` times within `WINDOW_S` raises
ComponentFailed with the end of its log, which takes the sandbox down with a text that says why. Everything
here must run on the main thread (see processes.spawn).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from isthmus import logs
from isthmus.clock import Clock
from isthmus.errors import WorldError
from isthmus.sandbox import processes
from isthmus.sandbox.settings import ComponentRecord

log = logs.get(__name__)

MAX_DEATHS: Final = 4
WINDOW_S: Final = 30.0
REST_S: Final = 0.3
TAIL_BYTES: Final = 2000


class ComponentFailed(WorldError):
    """A server that keeps dying. The text names it and has the end of its log."""


class Component:
    """See the module. `changed` is called after each change of what `record` returns."""

    def __init__(  # noqa: PLR0913 - a process and what surrounds it
        self,
        name: str,
        argv: Sequence[str],
        *,
        log_path: Path,
        cwd: Path,
        env: Mapping[str, str],
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        self.argv = tuple(argv)
        self._log_path = log_path
        self._cwd = cwd
        self._env = env
        self._clock = clock
        self._changed = changed
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: processes.Identity | None = None
        self._state = "stopped"
        self._restarts = 0
        self._deaths: deque[float] = deque(maxlen=MAX_DEATHS)
        self._wanted = asyncio.Event()
        self._gone = asyncio.Event()
        self._gone.set()

    @property
    def record(self) -> ComponentRecord:
        """What it is doing: running, paused, stopped, restarting or failed."""
        return ComponentRecord(self._identity, str(self._log_path), self._state, self._restarts)

    async def keep(self) -> None:
        """Run it whenever it is wanted, until cancelled. Raises ComponentFailed."""
        try:
            while True:
                await self._wanted.wait()
                await self._run_once()
                if self._wanted.is_set():
                    await self._mourn()
        finally:
            self._signal(signal.SIGKILL)
            if self._process is not None:
                self._process.wait()

    def start(self) -> None:
        """Want it running."""
        self._wanted.set()

    async def stop(self, *, grace_s: float) -> None:
        """Want it stopped, and wait: SIGTERM, then SIGKILL after `grace_s` seconds (at once where 0)."""
        self._wanted.clear()
        if grace_s > 0:
            self._signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_s):
                    await self._gone.wait()
            except TimeoutError:
                log.warning("server did not stop in time", component=self.name, grace_s=grace_s)
        self._signal(signal.SIGKILL)
        await self._gone.wait()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing answers, as in a partition."""
        self._signal(signal.SIGSTOP)
        self._set_state("paused")

    def resume(self) -> None:
        """Let a frozen one go on."""
        self._signal(signal.SIGCONT)
        self._set_state("running")

    def tail(self) -> str:
        """The end of its log, for an error text."""
        try:
            with self._log_path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    async def _run_once(self) -> None:
        process = processes.spawn(self.argv, log=self._log_path, cwd=self._cwd, env=self._env)
        self._process = process
        self._identity = processes.identify(process.pid, self.argv[0])
        self._gone.clear()
        self._set_state("running")
        try:
            await processes.ended(process)
        finally:
            if process.poll() is not None:
                self._process = None
                self._identity = None
                self._gone.set()
        self._set_state("restarting" if self._wanted.is_set() else "stopped")
        log.info("server ended", component=self.name, exit_code=process.returncode)

    async def _mourn(self) -> None:
        now = self._clock.monotonic()
        self._deaths.append(now)
        if len(self._deaths) == MAX_DEATHS and now - self._deaths[0] < WINDOW_S:
            self._wanted.clear()
            self._set_state("failed")
            raise ComponentFailed(
                f"{self.name} died {MAX_DEATHS} times within {WINDOW_S:.0f} s; its log ends:\n{self.tail()}"
            )
        self._restarts += 1
        log.warning("server died; starting it again", component=self.name, restarts=self._restarts)
        await self._clock.sleep(REST_S)

    def _signal(self, number: signal.Signals) -> None:
        # A Popen whose end was not collected yet still owns its pid.
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _set_state(self, state: str) -> None:
        self._state = state
        self._changed()
