"""A real operator process for tests: started with a kubeconfig, asked over its debug and health ports, ended
or killed.

`OperatorProcess` is an async context manager. With `kill_at=K` the process sends itself SIGKILL as its K-th
write is about to leave, which is as abrupt as a crash can be (see killed_operator.py). Its log is kept and
shown when it does not become ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.support.eventually import eventually
from tests.support.ports import free_port

START_S = 20.0


class OperatorProcess:
    """See the module. `arguments` are added to the command line."""

    def __init__(self, kubeconfig: Path, log: Path, *arguments: str, kill_at: int | None = None) -> None:
        self.debug_port = free_port()
        self.health_port = free_port()
        self.log = log
        self._kill_at = kill_at
        self._arguments = [
            "operator",
            f"--kubeconfig={kubeconfig}",
            f"--debug-port={self.debug_port}",
            f"--health-probe-bind-address=127.0.0.1:{self.health_port}",
            "--metrics-bind-address=0",
            *arguments,
        ]
        self._process: asyncio.subprocess.Process | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        module = "isthmus.cli.main" if self._kill_at is None else "tests.support.killed_operator"
        first = [] if self._kill_at is None else [str(self._kill_at)]
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *first, *self._arguments, stdout=output, stderr=output
            )
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()
        await self.kill()

    @property
    def pid(self) -> int:
        """Its process ID."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.returncode is None

    async def ready(self) -> None:
        """Return once readiness is green. Fails with the log where the process ends instead."""

        async def green() -> None:
            assert self.running, f"the operator has ended:\n{self.log.read_text()[-4000:]}"
            assert await self.get_health("/readyz") == 200

        await eventually(green, within_s=START_S)

    async def get_health(self, path: str) -> int:
        """The status of a health endpoint; 0 where nothing answers."""
        assert self._session is not None
        try:
            async with self._session.get(f"http://127.0.0.1:{self.health_port}{path}") as answer:
                return answer.status
        except (aiohttp.ClientError, TimeoutError):
            return 0

    async def dump(self) -> dict[str, dict[str, Any]]:
        """The cache as the debug port shows it. Raises AssertionError where it is not complete yet."""
        return dict(await self._debug("cache"))

    async def decisions(self, key: str) -> list[dict[str, Any]]:
        """The last decisions about `namespace/name`."""
        return list((await self._debug("decisions")).get(key, []))

    async def wait(self) -> int:
        """Its exit code, once it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> int:
        """Ask it to end (SIGTERM); return its exit code."""
        self.send_signal(signal.SIGTERM)
        return await self.wait()

    async def kill(self) -> None:
        """End it at once (SIGKILL), if it still runs."""
        self.send_signal(signal.SIGKILL)
        await self.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _debug(self, what: str) -> dict[str, Any]:
        assert self._session is not None
        url = f"http://127.0.0.1:{self.debug_port}/debug/modelserving/{what}"
        async with self._session.get(url) as answer:
            body = await answer.read()
        assert answer.status == 200, body
        decoded: dict[str, Any] = json.loads(body)
        return decoded
