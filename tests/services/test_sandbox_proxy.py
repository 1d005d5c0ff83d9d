"""The sandbox's proxy passes bytes on as they come, and ends both sides when one ends."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from isthmus.sandbox import ports
from isthmus.sandbox.proxy import Proxy
from tests.support.eventually import until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[bytes], Awaitable[Streams]]
POD = ("198.18.1.7", 8000)
GET = b"GET http://198.18.1.7:8000/x HTTP/1.1\r\nHost: a\r\n\r\n"
SENT = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


class Server:
    """What the test plays at the pod's end: the connections that came."""

    def __init__(self) -> None:
        self.met: asyncio.Queue[Streams] = asyncio.Queue()
        self.port = 0

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(lambda r, w: self.met.put_nowait((r, w)), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with await made.start():
        yield made


@pytest.fixture
async def connect(server: Server) -> AsyncIterator[Connect]:
    """Connects to a proxy that finds the server at the pod's address."""

    async def find(host: str, port: int) -> int:
        assert (host, port) == POD
        return server.port

    opened: list[asyncio.StreamWriter] = []
    with ports.reserve() as held:
        port = ports.port_of(held)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(Proxy(find, port=port).run())

            async def open_one(first: bytes) -> Streams:
                while True:
                    try:
                        reader, writer = await asyncio.open_connection("127.0.0.1", port)
                        break
                    except ConnectionRefusedError:
                        await asyncio.sleep(0.01)
                opened.append(writer)
                writer.write(first)
                return reader, writer

            yield open_one
            for writer in opened:
                writer.close()
            running.cancel()


async def test_bytes_must_go_both_ways_as_they_come(server: Server, connect: Connect) -> None:
    reader, writer = await connect(GET)
    at_pod, from_pod = await server.met.get()
    assert await at_pod.readexactly(len(SENT)) == SENT
    for piece in (b"a", b"bc", b"\x00\xff"):
        from_pod.write(piece)
        assert await reader.readexactly(len(piece)) == piece
        writer.write(piece)
        assert await at_pod.readexactly(len(piece)) == piece
    from_pod.close()
    assert await reader.read() == b""


async def test_tunnel_must_be_told_of_before_anything_else(server: Server, connect: Connect) -> None:
    reader, writer = await connect(b"CONNECT 198.18.1.7:8000 HTTP/1.1\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    at_pod, from_pod = await server.met.get()
    writer.write(b"hello")
    assert await at_pod.readexactly(5) == b"hello"
    from_pod.close()


async def test_client_that_leaves_must_end_the_servers_side(server: Server, connect: Connect) -> None:
    _, writer = await connect(GET)
    at_pod, from_pod = await server.met.get()
    writer.close()
    assert await at_pod.read() == SENT
    from_pod.close()


async def test_reset_of_the_server_must_reset_the_client(server: Server, connect: Connect) -> None:
    reader, _ = await connect(GET)
    at_pod, from_pod = await server.met.get()
    await at_pod.readexactly(len(SENT))
    from_pod.write(b"HTTP/1.0 200 OK\r\n\r\nhalf")
    assert await reader.readexactly(23)
    sock: socket.socket = from_pod.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    from_pod.transport.abort()
    with pytest.raises(ConnectionResetError):
        await reader.read()


async def test_reset_of_the_client_must_reset_the_server(server: Server, connect: Connect) -> None:
    _, writer = await connect(GET)
    at_pod, from_pod = await server.met.get()
    await at_pod.readexactly(len(SENT))
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    with pytest.raises(ConnectionResetError):
        await at_pod.read()
    from_pod.close()


async def test_slow_reader_must_hold_the_sender(server: Server, connect: Connect) -> None:
    """A client that does not read stops the server once the buffers between are full, and loses nothing."""
    reader, _ = await connect(GET)
    at_pod, from_pod = await server.met.get()
    await at_pod.readexactly(len(SENT))
    total = 64 << 20
    from_pod.write(b"x" * total)
    from_pod.transport.set_write_buffer_limits(high=1 << 16)
    left = from_pod.transport.get_write_buffer_size
    seen = -1
    while seen != left():
        seen = left()
        await asyncio.sleep(0.2)
    assert seen > total // 2
    from_pod.close()
    size = 0
    while piece := await reader.read(1 << 20):
        size += len(piece)
    assert size == total
    await until(lambda: left() == 0)
