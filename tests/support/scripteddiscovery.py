"""A discovery service that says what a test wants, over real sockets: wrong, late or half things too.

Use `async with ScriptedDiscovery(*pools) as service`. `set` makes the list another; `tell` sends events to
whoever watches.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import msgspec

from isthmus.api.pools import Pool, PoolList
from tests.support.rawhttp import RawServer, Request, Wire


class ScriptedDiscovery:
    """See the module. `instead` may answer a request in its own way: it says whether it did."""

    def __init__(self, *pools: Pool, tls: ssl.SSLContext | None = None) -> None:
        self.pools = pools
        self.complete = True
        self.number = 1
        self.watchable = True
        self.instead: Callable[[Request, Wire], Any] | None = None
        self.server = RawServer(self._answer, tls=tls)
        self._wires: list[Wire] = []
        self._cut = asyncio.Event()

    @property
    def url(self) -> str:
        """Where it is."""
        return self.server.url

    @property
    def version(self) -> str:
        """Of the list."""
        return f"v{self.number}"

    async def __aenter__(self) -> ScriptedDiscovery:
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.__aexit__(*error)

    def asked(self, path: str) -> list[Request]:
        """Requests for a path, in order."""
        return [each for each in self.server.requests if each.path == path]

    @property
    def watchers(self) -> int:
        """Who watches now."""
        return len(self._wires)

    def set(self, *pools: Pool, complete: bool = True) -> None:
        """The list is another, without a word to those who watch."""
        self.pools, self.complete = pools, complete
        self.number += 1

    async def tell(self, name: str, data: object) -> None:
        """An event to all who watch."""
        await self.send(b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data)))

    async def synced(self, *, resumed: bool = True) -> None:
        """The event that ends a batch."""
        await self.tell("synced", {"version": self.version, "complete": self.complete, "resumed": resumed})

    async def send(self, data: bytes) -> None:
        """Bytes to all who watch."""
        for wire in self._wires:
            await wire.chunk(data)

    def cut(self) -> None:
        """End all watches."""
        self._cut.set()
        self._cut = asyncio.Event()

    async def _answer(self, request: Request, wire: Wire) -> None:
        if self.instead is not None and await self.instead(request, wire):
            return
        if request.path == "/pools":
            await self._list(request, wire)
        elif request.path == "/pools/watch" and self.watchable:
            await self._watch(request, wire)
        else:
            await wire.answer({"error": {"code": "too_many_watchers"}}, 503)

    async def _list(self, request: Request, wire: Wire) -> None:
        tag = f'"{self.version}"'
        if request.headers.get("if-none-match") == tag:
            await wire.send(b"HTTP/1.1 304 X\r\nETag: " + tag.encode() + b"\r\n\r\n")
            return
        found = PoolList(version=self.version, complete=self.complete, mode="mcs", pools=self.pools)
        await wire.answer(msgspec.json.encode(found), headers={"ETag": tag})

    async def _watch(self, request: Request, wire: Wire) -> None:
        cut = self._cut
        await wire.start_chunked()
        resumed = request.query.get("from") == self.version
        events = b""
        for pool in () if resumed else self.pools:
            events += b"event: added\ndata: %b\n\n" % msgspec.json.encode(pool)
        body = {"version": self.version, "complete": self.complete, "resumed": resumed}
        await wire.chunk(events + b"event: synced\ndata: %b\n\n" % msgspec.json.encode(body))
        self._wires.append(wire)
        try:
            await cut.wait()
        finally:
            self._wires.remove(wire)
        wire.close()
