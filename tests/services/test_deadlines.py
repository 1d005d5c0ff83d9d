"""Slow senders and slow readers (R53). Deadlines are a fraction of a second; the clients never stop by
themselves, so a test that ends has seen the server end the connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, Request, get
from tests.support.http import (
    HOST,
    Backend,
    ask,
    listening,
    parse_answers,
    port_of,
    read_to_end,
    request_bytes,
    until,
)

SHORT = Limits(head_s=0.3, body_s=0.3, idle_s=0.3, write_s=0.3, linger_s=0.1, drain_s=1.0)


async def drip(port: int, first: bytes, one: bytes = b"x") -> tuple[bytes, float]:
    """Send `first`, then `one` every 30 ms for ever; what came back, and after how many seconds it ended."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send() -> None:
        writer.write(first)
        while not writer.is_closing():
            writer.write(one)
            await asyncio.sleep(0.03)

    async with asyncio.TaskGroup() as group:
        sender = group.create_task(send())
        received = await read_to_end(reader)
        took = loop.time() - begun
        sender.cancel()
    writer.close()
    return received, took


def on_both_loops(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[str], None]:
    """Run an async test on asyncio's own loop and on uvloop, whose transports are not the same."""

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def run(loop: str) -> None:
        (uvloop.run if loop == "uvloop" else asyncio.run)(test())

    return run


@pytest.mark.covers("R53")
@pytest.mark.parametrize(
    "first", [b"G", b"GET / HTTP/1.1\r\n" + HOST + b"X-Slow: ", b"POST /post HTTP/1.1\r\n" + HOST]
)
async def test_headers_that_drip_must_end_at_the_deadline(first: bytes) -> None:
    backend = Backend()
    async with listening(*backend.routes(), limits=SHORT) as listener:
        received, took = await drip(port_of(listener), first)
        assert [answer.status for answer in parse_answers(received)] == [408]
        assert 0.25 < took < 3
        assert not backend.seen


@pytest.mark.covers("R53")
@pytest.mark.parametrize(
    ("headers", "one"),
    [(b"Content-Length: 1000\r\n\r\n", b"x"), (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")],
)
async def test_a_body_that_drips_must_end_at_the_deadline(headers: bytes, one: bytes) -> None:
    backend = Backend()
    limits = Limits(head_s=30.0, body_s=0.3, linger_s=0.1, drain_s=1.0)
    async with listening(*backend.routes(), limits=limits) as listener:
        received, took = await drip(port_of(listener), b"POST /post HTTP/1.1\r\n" + HOST + headers, one)
        assert [answer.status for answer in parse_answers(received)] == [408]
        assert 0.25 < took < 3
        assert not backend.seen


@pytest.mark.covers("R53")
async def test_a_body_must_have_its_own_time_after_the_headers() -> None:
    limits = Limits(head_s=0.1, body_s=30.0, drain_s=1.0)
    async with listening(*Backend().routes(), limits=limits) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(request_bytes("POST", "/post", headers=b"Content-Length: 2\r\n"))
        await asyncio.sleep(0.3)
        writer.write(b"hi")
        assert [answer.status for answer in parse_answers(await reader.read())] == [200]
        writer.close()


@pytest.mark.covers("R53")
async def test_a_silent_connection_must_be_closed_without_a_word() -> None:
    async with listening(limits=SHORT) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        assert await reader.read() == b""
        writer.close()
        await until(lambda: listener.connections == 0)


@pytest.mark.covers("R53")
async def test_an_idle_connection_must_be_closed_after_its_answer() -> None:
    backend = Backend()
    async with listening(*backend.routes(), limits=SHORT) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(request_bytes(last=False))
        answers = parse_answers(await reader.read())
        writer.close()
        assert [answer.status for answer in answers] == [200]


@pytest.mark.covers("R53")
async def test_the_second_requests_headers_must_have_a_deadline_too() -> None:
    limits = Limits(head_s=0.2, idle_s=30.0, linger_s=0.1, drain_s=1.0)
    async with listening(*Backend().routes(), limits=limits) as listener:
        received, took = await drip(port_of(listener), request_bytes(last=False) + b"GET / HTTP/1.1\r\nX: ")
        assert [answer.status for answer in parse_answers(received)] == [200, 408]
        assert took < 5


@pytest.mark.covers("R53")
async def test_an_idle_client_never_gains_time_by_its_first_byte() -> None:
    limits = Limits(head_s=30.0, idle_s=0.3, linger_s=0.1, drain_s=1.0)
    async with listening(*Backend().routes(), limits=limits) as listener:
        received, took = await drip(port_of(listener), request_bytes(last=False) + b"GET / HTTP/1.1\r\nX: ")
        assert [answer.status for answer in parse_answers(received)] == [200, 408]
        assert took < 5


async def endless(ended: asyncio.Event) -> AsyncGenerator[bytes, None]:
    try:
        while True:
            yield b"x" * 65536
    finally:
        ended.set()


@pytest.mark.covers("R53")
@on_both_loops
async def test_a_reader_that_does_not_read_must_be_cut() -> None:
    ended = asyncio.Event()

    async def big(request: Request) -> Answer:
        return Answer(body=endless(ended))

    async with listening(get("/", big), *Backend().routes()[1:], limits=SHORT) as listener:
        with small_socket(port_of(listener)) as client:
            client.sendall(request_bytes())
            await ended.wait()
            await until(lambda: listener.connections == 0)


@pytest.mark.covers("R53")
@on_both_loops
async def test_a_reader_that_trickles_must_be_cut() -> None:
    ended = asyncio.Event()

    async def big(request: Request) -> Answer:
        return Answer(body=endless(ended))

    async with listening(get("/", big), limits=SHORT) as listener:
        with small_socket(port_of(listener)) as client:
            client.sendall(request_bytes())
            client.setblocking(False)
            while not ended.is_set():
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    client.recv(10)
                await asyncio.sleep(0.01)


@pytest.mark.covers("R53")
@on_both_loops
async def test_a_large_answer_that_nobody_reads_never_outlives_the_write_deadline() -> None:
    """Nothing more is written once the handler is done, yet what is buffered must not wait for ever."""

    async def big(request: Request) -> Answer:
        return Answer(body=b"x" * (32 * 1024 * 1024))

    async with listening(get("/", big), limits=SHORT) as listener:
        with small_socket(port_of(listener)) as client:
            client.sendall(request_bytes())
            await until(lambda: listener.connections == 1)
            await until(lambda: listener.connections == 0)


@pytest.mark.covers("R53")
@on_both_loops
async def test_an_answer_that_is_all_in_the_buffer_never_keeps_a_closing_connection() -> None:
    async def big(request: Request) -> Answer:
        return Answer(body=b"x" * (16 * 1024 * 1024))

    limits = Limits(write_s=0.3, idle_s=30.0, write_buffer_bytes=1 << 27, drain_s=1.0)
    async with listening(get("/", big), limits=limits) as listener:
        with small_socket(port_of(listener)) as client:
            client.sendall(request_bytes())
            await until(lambda: listener.connections == 1)
            await until(lambda: listener.connections == 0)


@pytest.mark.covers("R53")
async def test_a_long_legal_stream_must_outlive_every_deadline() -> None:
    async def events(request: Request) -> Answer:
        async def pieces() -> AsyncGenerator[bytes, None]:
            for number in range(10):
                await asyncio.sleep(0.1)
                yield b"%d\n" % number

        return Answer(body=pieces())

    async with listening(get("/", events), limits=SHORT) as listener:
        answer = await ask(port_of(listener))
        assert answer.whole
        assert answer.body.split() == [b"%d" % number for number in range(10)]


@pytest.mark.covers("R53")
async def test_slow_clients_never_keep_others_from_being_answered() -> None:
    """100 that drip headers and 100 that drip bodies, while honest requests go on being answered."""
    backend = Backend()
    limits = Limits(head_s=0.5, body_s=0.5, linger_s=5.0, drain_s=1.0, connections=500)
    async with listening(*backend.routes(), limits=limits) as listener:
        port = port_of(listener)
        post = b"POST /post HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n"
        async with asyncio.TaskGroup() as group:
            slow = [group.create_task(drip(port, first)) for first in [b"GET / HTTP/1.1\r\nX: ", post] * 100]
            for _ in range(20):
                assert (await ask(port)).status == 200
        told = [answer.status for task in slow for answer in parse_answers(task.result()[0])]
        assert set(told) == {408}
        assert len(told) > 100  # one whose first byte the busy loop had not seen yet is closed without a word
        assert len(backend.seen) == 20


def small_socket(port: int) -> socket.socket:
    """A connection whose receive buffer is as small as the kernel lets it be."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    return client
