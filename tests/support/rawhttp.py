"""A scripted HTTP server on raw sockets, for what a wire can do: cut, reset, stall, answer in odd shapes.

Not an imitation of an API server: a handler writes the very bytes of each answer. `RawServer(handler)` is an
async context manager on a free port of 127.0.0.1, with TLS where a context is given; every request is parsed
just enough to know where it ends, and kept in `requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Request:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters."""
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


@dataclass
class Wire:
    """The handler's end of the connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    open: bool = True

    async def send(self, data: bytes) -> None:
        """Raw bytes, out at once."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(
        self, body: bytes | object, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """A whole answer with a length; anything but bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(data)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    async def start_chunked(self) -> None:
        """Status line and headers of a chunked 200."""
        await self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        """One chunk."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end_chunked(self) -> None:
        """The proper end of a chunked body."""
        await self.send(b"0\r\n\r\n")

    def close(self) -> None:
        """FIN."""
        self.open = False
        self.writer.close()

    def reset(self) -> None:
        """RST."""
        self.open = False
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Request, Wire], Awaitable[None]]


@dataclass
class RawServer:
    """See the module."""

    handler: Handler
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        number = self.connections
        wire = Wire(reader, writer)
        try:
            while wire.open:
                request = await _read_request(reader, number)
                self.requests.append(request)
                await self.handler(request, wire)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    headers = {}
    for line in head[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body, connection)
