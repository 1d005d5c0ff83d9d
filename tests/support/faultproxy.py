"""A TCP proxy between a client and a server that misbehaves on request; TLS passes through it unread.

`FaultProxy(host, port)` is an async context manager on a free port of 127.0.0.1. Faults hold for the bytes
and connections that come after them: `freeze` (hold everything, lose nothing), `blackhole` (accept and
forward nothing, no FIN), `refuse` (RST new ones), `cut_after` (RST a connection once the server has sent so
many bytes), `reset_all` (RST what is open). `heal` ends them; what a freeze has held is then delivered, what
a blackhole has swallowed is not, and its connections stay dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field


@dataclass(eq=False)
class _Link:
    down: asyncio.StreamWriter
    up: asyncio.StreamWriter | None = None
    dead: bool = False
    from_server: int = 0


@dataclass
class FaultProxy:
    """See the module. `connections` counts those accepted, `bytes_up` and `bytes_down` what was forwarded."""

    host: str
    port: int
    connections: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    listen_port: int = 0
    _links: set[_Link] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _flowing: asyncio.Event = field(default_factory=asyncio.Event)
    _blackhole: bool = False
    _refuse: bool = False
    _cut_at: int | None = None

    async def __aenter__(self) -> FaultProxy:
        self._flowing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.listen_port)
        self.listen_port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def open_links(self) -> int:
        """Connections that are open now, those in a blackhole included."""
        return len(self._links)

    def freeze(self) -> None:
        """Hold every byte, both ways, until `heal`."""
        self._flowing.clear()

    def blackhole(self) -> None:
        """Swallow every byte of connections old and new, without a FIN."""
        self._blackhole = True
        for link in self._links:
            link.dead = True

    def refuse(self) -> None:
        """Reset new connections at once."""
        self._refuse = True

    def cut_after(self, count: int) -> None:
        """Reset each new connection once the server has sent `count` bytes on it; 0 is at its first byte."""
        self._cut_at = count

    def heal(self) -> None:
        """End every fault, for bytes and connections from now on."""
        self._blackhole = self._refuse = False
        self._cut_at = None
        self._flowing.set()

    def reset_all(self) -> None:
        """RST every open connection, on both sides."""
        for link in tuple(self._links):
            _reset(link.down)
            if link.up is not None:
                _reset(link.up)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        link = _Link(writer, dead=self._blackhole)
        self._links.add(link)
        try:
            if self._refuse:
                return
            if link.dead:
                while await reader.read(65536):
                    pass
                return
            await self._flowing.wait()
            up_reader, link.up = await asyncio.open_connection(self.host, self.port)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, link.up, link, upward=True))
                group.create_task(self._pump(up_reader, writer, link, upward=False))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass
        finally:
            self._links.discard(link)
            self._tasks.discard(task)
            _reset(writer)
            if link.up is not None:
                _reset(link.up)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link, *, upward: bool
    ) -> None:
        cut_at = self._cut_at
        while data := await reader.read(65536):
            await self._flowing.wait()
            if link.dead:
                continue
            if upward:
                self.bytes_up += len(data)
            else:
                if cut_at is not None and link.from_server + len(data) > cut_at:
                    writer.write(data[: cut_at - link.from_server])
                    with contextlib.suppress(OSError):
                        await writer.drain()
                    raise ConnectionResetError("cut, as asked")
                link.from_server += len(data)
                self.bytes_down += len(data)
            writer.write(data)
            await writer.drain()
        if link.dead:
            await asyncio.Event().wait()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError, ValueError):  # uvloop: closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
