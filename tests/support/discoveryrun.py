"""A discovery service in this process, on a free port of loopback, and a client that asks it.

`discovering(...)` builds the parts that app.py builds, without an API server: mode registrations unless a
test gives sources of its own. Time is the system's, or a FakeClock's that the test advances.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from isthmus.api.pools import PoolList, Registration, read_pool_list
from isthmus.clock import Clock, SystemClock
from isthmus.discovery.app import Discovery, DiscoveryOptions
from isthmus.discovery.routes import Granting
from isthmus.kube.client import Client
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import Supervisor

LEASE_S = 15.0


@dataclass
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error's code."""
        code: str = self.json["error"]["code"]
        return code

    @property
    def pools(self) -> PoolList:
        """The body as routers read it."""
        return read_pool_list(self.body)


class Asking:
    """A client of the discovery service at `base`."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base
        self.headers: dict[str, str] = {}

    async def ask(self, method: str, path: str, **more: Any) -> Reply:
        """One request."""
        headers = {**self.headers, **more.pop("headers", {})}
        async with self.session.request(method, self.base + path, headers=headers, **more) as answer:
            names = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, names, await answer.read())

    async def get(self, path: str, **more: Any) -> Reply:
        """GET."""
        return await self.ask("GET", path, **more)

    async def register(self, registration: Registration, **more: Any) -> Reply:
        """POST /pools."""
        return await self.post(msgspec.json.encode(registration), **more)

    async def post(self, body: bytes, *, kind: str = "application/json", **more: Any) -> Reply:
        """POST /pools with any body."""
        headers = {"Content-Type": kind, **more.pop("headers", {})}
        return await self.ask("POST", "/pools", data=io.BytesIO(body), headers=headers, **more)

    async def names(self) -> list[str]:
        """The keys of the pools that are listed."""
        return [str(pool.key) for pool in (await self.get("/pools")).pools.pools]

    async def metric(self, line: str) -> float:
        """The value of a series, written as /metrics writes it."""
        for each in (await self.get("/metrics")).body.decode().splitlines():
            if each.startswith(f"{line} "):
                return float(each.rpartition(" ")[2])
        return 0.0

    @asynccontextmanager
    async def watching(self, version: str = "") -> AsyncIterator[Events]:
        """A watch, from a version or from nothing."""
        path = "/pools/watch" + (f"?from={version}" if version else "")
        async with self.session.get(self.base + path, headers=self.headers) as answer:
            yield Events(answer)


class Events:
    """The events of a watch, as (name, data); a comment is ("", its text)."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer

    async def next(self) -> tuple[str, Any]:
        """The next one. Raises EOFError where the watch has ended."""
        lines: list[str] = []
        while line := (await self.answer.content.readline()).decode():
            if line == "\n":
                break
            lines.append(line.rstrip("\n"))
        if not lines:
            raise EOFError
        if lines[0].startswith(":"):
            return "", lines[0]
        fields = dict(line.split(": ", 1) for line in lines)
        return fields["event"], json.loads(fields["data"])

    async def until_synced(self) -> tuple[list[tuple[str, str]], Any]:
        """The events up to `synced` as (name, cluster), and what `synced` says."""
        found: list[tuple[str, str]] = []
        while True:
            name, data = await self.next()
            if name == "synced":
                return found, data
            if name:
                found.append((name, data["cluster_id"]))


@dataclass
class Running:
    """See the module."""

    discovery: Discovery
    asking: Asking
    clock: Clock

    @property
    def port(self) -> int:
        """Where it answers."""
        return self.discovery.listener.addresses[0][1]


@asynccontextmanager
async def discovering(
    clock: Clock | None = None, *, client: Client | None = None, **changes: Any
) -> AsyncIterator[Running]:
    """See the module. `changes` are DiscoveryOptions'."""
    clock = SystemClock() if clock is None else clock
    given: dict[str, Any] = {"listen": (("127.0.0.1",), 0), "granting": Granting()}
    options = DiscoveryOptions(**(given | changes))
    metrics = Metrics()
    discovery = Discovery(options, client, clock, metrics)
    discovery.listener.bind()
    scheme = "http" if options.tls is None else "https"
    base = f"{scheme}://127.0.0.1:{discovery.listener.addresses[0][1]}"
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
        Supervisor(clock, metrics) as tasks,
    ):
        discovery.start(tasks)
        await discovery.listener.serve()
        try:
            await asyncio.sleep(0)
            yield Running(discovery, Asking(session, base), clock)
        finally:
            discovery.close()
            await discovery.listener.stop()
