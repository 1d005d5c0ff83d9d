"""The sandbox's forwarding proxy: connections of pods to addresses that lead nowhere reach their processes.

One listener per cluster on loopback, in the supervisor; the processes of pods have it as HTTP_PROXY and
HTTPS_PROXY. It takes CONNECT, and requests in absolute form, which it sends on in origin form with
`Connection: close`: one connection carries one request, so nothing but the head is ever looked at. From then
on bytes go both ways as they come, each side waiting for the other where it is slow. When either side ends,
so does the other; where one is reset, the other is too, so that half an answer never looks like a whole one.
Where there is no way, the answer is 502 with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from isthmus import logs
from isthmus.runtime.tasks import wait_first
from isthmus.sandbox.network import NoRoute
from isthmus.sandbox.ports import LOOPBACK

log = logs.get(__name__)

HEAD_BYTES: Final = 64 * 1024
HEAD_S: Final = 30.0
CONNECT_S: Final = 5.0
PIECE_BYTES: Final = 64 * 1024
BACKLOG: Final = 1024
DROPPED: Final = (b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive")
"""Headers that speak to the proxy alone."""

Find = Callable[[str, int], Awaitable[int]]
"""Host and port to a loopback port; raises NoRoute."""


class BadRequest(Exception):
    """What a client sent cannot be carried. The text says why."""


class Order(NamedTuple):
    """Where to, and the first bytes to send there; None for a tunnel, which the client is told of first."""

    host: str
    port: int
    head: bytes | None


def read_order(head: bytes) -> Order:
    """What a request's head asks for. Raises BadRequest."""
    line, _, rest = head.partition(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        raise BadRequest("this is no HTTP/1.1 request")
    method, target, version = words
    try:
        url = urlsplit(("//" if method == b"CONNECT" else "") + target.decode("ascii"))
        host, port = url.hostname or "", url.port
    except ValueError:
        raise BadRequest("the target is no URL") from None
    if method == b"CONNECT":
        if not host or not port:
            raise BadRequest("CONNECT wants HOST:PORT")
        return Order(host, port, None)
    if url.scheme != "http" or not host:
        raise BadRequest("this is a proxy: give a whole http:// URL, or CONNECT")
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [each for each in rest.split(b"\r\n") if each and each.partition(b":")[0].lower() not in DROPPED]
    first = b" ".join((method, path.encode(), version))
    return Order(host, port or 80, b"\r\n".join((first, *kept, b"Connection: close", b"", b"")))


class Proxy:
    """See the module. `held` is a bound socket that reserves the port; `run` listens beside it."""

    def __init__(self, find: Find, *, port: int) -> None:
        self._find = find
        self._port = port
        self.url = f"http://{LOOPBACK}:{port}"

    async def run(self) -> None:
        """Carry connections until cancelled, and end those under way then."""
        async with asyncio.TaskGroup() as group:

            def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                group.create_task(self._carry(reader, writer))

            server = await asyncio.start_server(
                meet, LOOPBACK, self._port, limit=HEAD_BYTES, backlog=BACKLOG, reuse_port=True
            )
            try:
                await asyncio.Event().wait()
            finally:
                server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, TimeoutError):
            _reset(writer)
        except Exception:
            log.exception("the proxy failed on a connection")
            _reset(writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            order = read_order(head)
            port = await self._find(order.host, order.port)
            async with asyncio.timeout(CONNECT_S):
                upstream = await asyncio.open_connection(LOOPBACK, port, limit=PIECE_BYTES)
        except BadRequest as error:
            await _refuse(writer, "400 Bad Request", str(error))
            return
        except NoRoute as error:
            await _refuse(writer, "502 Bad Gateway", str(error))
            return
        except (OSError, TimeoutError):
            await _refuse(writer, "502 Bad Gateway", f"nothing answers at {order.host} port {order.port}")
            return
        to_client, to_server = writer, upstream[1]
        try:
            if order.head is None:
                to_client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                to_server.write(order.head)
            await wait_first(_pump(reader, to_server), _pump(upstream[0], to_client))
        except OSError:
            _reset(to_server)
            raise
        finally:
            to_server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()


async def _refuse(writer: asyncio.StreamWriter, status: str, reason: str) -> None:
    body = f"{reason}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset rather than an end."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
