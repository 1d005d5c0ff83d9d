"""A real operator process for tests: started with a kubeconfig, asked over its ports, ended or killed.

`OperatorProcess` is a context manager and belongs to no event loop, so that one process can serve all tests
of a module. Its log is kept, and shown when it does not become ready. `proxied` makes a kubeconfig that leads
through a FaultProxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from tests.support.eventually import eventually
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
START_S = 40.0
TIMEOUT_S = 10.0
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Reply(NamedTuple):
    """An HTTP answer; status 0 where nothing answered."""

    status: int
    body: bytes


class OperatorProcess:
    """See the module. `arguments` are added to the command line; later ones win."""

    def __init__(self, kubeconfig: Path, log: Path, *arguments: str) -> None:
        self.debug_port = free_port()
        self.health_port = free_port()
        self.metrics_port = free_port()
        self.log = log
        self._command = [
            sys.executable,
            "-m",
            "isthmus.cli.main",
            "operator",
            f"--kubeconfig={kubeconfig}",
            f"--debug-port={self.debug_port}",
            f"--health-probe-bind-address=127.0.0.1:{self.health_port}",
            f"--metrics-bind-address=127.0.0.1:{self.metrics_port}",
            *arguments,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, cwd=ROOT)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    @property
    def output(self) -> str:
        """What it has written so far, to stdout and stderr."""
        return self.log.read_text()

    # Waiting

    async def ready(self) -> None:
        """Return once readiness is green. Fails with the log where the process ends instead."""

        async def green() -> None:
            if not self.running:
                raise RuntimeError(f"the operator has ended:\n{self.output[-4000:]}")
            reply = await self.get(self.health_port, "/readyz")
            assert reply.status == 200, f"{reply.body!r}\n{self.output[-4000:]}"

        await eventually(green, within_s=START_S)

    async def wait(self, within_s: float = START_S) -> int:
        """Its exit code, once it has ended. Fails where it does not in time."""
        try:
            return await asyncio.to_thread(self._popen.wait, within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within_s} s:\n{self.output[-4000:]}") from None

    async def stop(self) -> int:
        """Ask it to end (SIGTERM); return its exit code."""
        self.send_signal(signal.SIGTERM)
        return await self.wait()

    def kill(self) -> None:
        """End it at once (SIGKILL), if it still runs."""
        self.send_signal(signal.SIGKILL)
        self._popen.wait()

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._popen.send_signal(number)

    # Its ports

    async def get(self, port: int, path: str, *, method: str = "GET") -> Reply:
        """Ask one of its ports; status 0 where nothing answers."""
        return await asyncio.to_thread(_request, port, path, method)

    async def get_health(self, path: str) -> int:
        """The status of a health endpoint; 0 where nothing answers."""
        return (await self.get(self.health_port, path)).status

    async def dump(self, query: str = "") -> dict[str, dict[str, Any]]:
        """The cache as the debug port shows it. Raises AssertionError where it is not complete yet."""
        return await self._debug(f"cache{query}")

    async def decisions(self, key: str) -> list[dict[str, Any]]:
        """The last decisions about `namespace/name`."""
        namespace, _, name = key.partition("/")
        found = await self._debug(f"decisions?namespace={namespace}&name={name}")
        return list(found.get(key, []))

    async def metrics(self, name: str) -> dict[str, float]:
        """The samples of one metric, by their labels as text."""
        reply = await self.get(self.metrics_port, "/metrics")
        assert reply.status == 200, reply
        return {
            labels: float(value)
            for found, labels, value in _SAMPLE.findall(reply.body.decode())
            if found == name
        }

    async def _debug(self, what: str) -> dict[str, Any]:
        reply = await self.get(self.debug_port, f"/debug/modelserving/{what}")
        assert reply.status == 200, reply
        decoded: dict[str, Any] = json.loads(reply.body)
        return decoded

    @property
    def _popen(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process


def proxied(kubeconfig: Path, port: int, folder: Path) -> Path:
    """A copy of the kubeconfig, with another name, that leads to `port` of 127.0.0.1."""
    config = json.loads(kubeconfig.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = folder / f"{kubeconfig.stem}-{port}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def address_of(kubeconfig: Path) -> tuple[str, int]:
    """Host and port of the API server that the kubeconfig leads to: what a FaultProxy is given."""
    address = urlsplit(json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"])
    assert address.hostname is not None
    assert address.port is not None
    return address.hostname, address.port


def _request(port: int, path: str, method: str) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    except (OSError, http.client.HTTPException):
        return Reply(0, b"")
    finally:
        connection.close()
