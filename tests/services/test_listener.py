from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator

import pytest
import uvloop

from isthmus.errors import UserError
from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, Problem, Request, Route, Routes, error, get
from isthmus.web.server import Listener
from tests.support.http import (
    HOST,
    Backend,
    ask,
    listening,
    parse_answers,
    port_of,
    read_to_end,
    request_bytes,
    talk,
    until,
)

SECRET = "secret-detail"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request_bytes(target="/" + "x" * 9000), 414),
        (request_bytes(headers=b"X: %b\r\n" % (b"x" * 17_000)), 431),
        (request_bytes(headers=b"X: y\r\n" * 65), 431),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 17_000, 431),
        (request_bytes("POST", "/post", headers=b"Content-Length: 65537\r\n"), 413),
        (
            request_bytes(
                "POST", "/post", headers=b"Transfer-Encoding: chunked\r\n", body=b"10001\r\n" + b"x" * 65537
            ),
            413,
        ),
        (
            request_bytes(
                "POST",
                "/post",
                headers=b"Transfer-Encoding: chunked\r\n",
                body=b"8000\r\n%b\r\n8001\r\n" % (b"x" * 0x8000),
            ),
            413,
        ),
        (
            request_bytes("POST", "/post", headers=b"Transfer-Encoding: chunked\r\n", body=b"1" * 2000),
            400,
        ),
        (
            request_bytes(
                "POST",
                "/post",
                headers=b"Transfer-Encoding: chunked\r\n",
                body=b"1;%b\r\nx\r\n" % (b"e" * 1000) * 20,
            ),
            431,
        ),
        (
            request_bytes(
                "POST",
                "/post",
                headers=b"Transfer-Encoding: chunked\r\n",
                body=b"0\r\n" + b"T: %b\r\n" % (b"t" * 1000) * 20,
            ),
            431,
        ),
        (request_bytes(target="/?" + "&".join(f"a{n}=1" for n in range(33))), 400),
    ],
    ids=[
        "target",
        "header",
        "header-lines",
        "endless-header",
        "length",
        "chunk",
        "chunks",
        "chunk-line",
        "extensions",
        "trailers",
        "query",
    ],
)
@pytest.mark.covers("R53")
async def test_a_listener_must_bound_what_a_request_may_be(raw: bytes, status: int) -> None:
    backend = Backend()
    async with listening(*backend.routes()) as listener:
        answers = parse_answers(await talk(port_of(listener), raw))
        assert [answer.status for answer in answers] == [status]
        assert answers[0].headers["connection"] == "close"
        assert not backend.seen


@pytest.mark.covers("R53")
async def test_a_listener_must_accept_what_is_just_within_its_limits() -> None:
    backend = Backend()
    async with listening(*backend.routes()) as listener:
        body = b"x" * 65536
        headers = b"Content-Length: 65536\r\n" + b"X: y\r\n" * 61
        raw = await talk(port_of(listener), request_bytes("POST", "/post", headers=headers, body=body))
        assert parse_answers(raw)[0].status == 200
        assert backend.seen[0].body == body


async def test_a_refusal_must_be_readable_while_the_client_still_sends() -> None:
    """A close with input unread would be a reset, which fails the sending and may take the answer with it."""
    limits = Limits(linger_s=10.0, drain_s=0.1)
    raw = request_bytes("POST", "/post", headers=b"Content-Length: 99999999\r\n", body=b"x" * 10_000_000)

    def send_all_then_read(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(raw)
            return client.recv(1 << 16)

    async with listening(*Backend().routes(), limits=limits) as listener:
        received = await asyncio.to_thread(send_all_then_read, port_of(listener))
        assert parse_answers(received)[0].status == 413


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_comes_after_a_refusal_must_be_thrown_away(loop: str) -> None:
    backend = Backend()

    async def run() -> None:
        async with listening(*backend.routes(), limits=Limits(linger_s=5.0, drain_s=0.1)) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
            writer.write(b"nonsense\r\n\r\n")
            received = await reader.read()
            for _ in range(3):
                writer.write(request_bytes() + b"nonsense\r\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.close()
            await until(lambda: listener.connections == 0)
        assert [answer.status for answer in parse_answers(received)] == [400]
        assert not backend.seen

    (uvloop.run if loop == "uvloop" else asyncio.run)(run())


@pytest.mark.covers("R53")
async def test_connections_beyond_the_limit_must_be_turned_away() -> None:
    limits = Limits(connections=3, drain_s=0.1)
    async with listening(*Backend().routes(), limits=limits) as listener:
        port = port_of(listener)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        await until(lambda: listener.connections == 3)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        (answer,) = parse_answers(await reader.read())
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert listener.excess == 1
        writer.close()
        held[0][1].close()
        await until(lambda: listener.connections == 2)
        assert (await ask(port)).status == 200
        for _, writer in held:
            writer.close()


async def test_an_unknown_path_must_list_the_routes() -> None:
    async with listening(*Backend().routes()) as listener:
        answer = await ask(port_of(listener), target="/nowhere")
        assert (answer.status, answer.json["routes"]) == (404, ["/", "/post"])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get"])
async def test_another_method_must_be_told_what_is_allowed(method: str) -> None:
    backend = Backend()
    async with listening(*backend.routes()) as listener:
        answer = await ask(port_of(listener), method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert (await ask(port_of(listener), "GET", "/post")).headers["allow"] == "POST"
        assert not backend.seen


async def test_head_must_have_the_headers_of_get_and_no_body() -> None:
    async with listening(*Backend().routes()) as listener:
        got, head = await ask(port_of(listener)), await ask(port_of(listener), "HEAD")
        assert head.body == b""
        assert {**got.headers, "date": ""} == {**head.headers, "date": ""}


async def test_every_answer_must_be_safe_for_browsers() -> None:
    backend = Backend()
    async with listening(*backend.routes()) as listener:
        origin = b"Origin: http://evil.example\r\nAccess-Control-Request-Method: GET\r\n"
        answers = [
            await ask(port_of(listener), headers=origin),
            await ask(port_of(listener), "OPTIONS", headers=origin),
            await ask(port_of(listener), target="/nowhere", headers=origin),
            parse_answers(await talk(port_of(listener), b"nonsense\r\n\r\n"))[0],
        ]
        for answer in answers:
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["content-type"] == "application/json"
            assert not [name for name in answer.headers if name.startswith("access-control")]
            assert "aiohttp" not in answer.headers["server"].lower()


@pytest.mark.covers("R30")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:1", 200),
        ("localhost", 200),
        ("LocalHost:65535", 200),
        ("[::1]", 200),
        ("[::1]:8070", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example:8070", 403),
        ("::1", 400),
        ("[::2]", 403),
        ("10.0.0.1:8070", 403),
        ("", 403),
    ],
)
async def test_a_loopback_listener_must_refuse_other_hosts(host: str, status: int) -> None:
    backend = Backend()
    async with listening(*backend.routes(), loopback_only=True) as listener:
        raw = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        (answer,) = parse_answers(await talk(port_of(listener), raw))
        assert answer.status == status
        assert len(backend.seen) == (status == 200)


@pytest.mark.covers("R30")
@pytest.mark.parametrize(
    "raw", [b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n", b"GET / HTTP/1.0\r\n\r\n"]
)
async def test_a_loopback_listener_must_refuse_a_target_elsewhere_and_no_host(raw: bytes) -> None:
    async with listening(*Backend().routes(), loopback_only=True) as listener:
        raw = raw.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert parse_answers(await talk(port_of(listener), raw))[0].status == 403


async def boom(request: Request) -> Answer:
    raise ValueError(SECRET)


async def test_a_handler_that_fails_must_be_a_500_and_the_next_request_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with listening(get("/boom", boom), *Backend().routes()) as listener:
        raw = request_bytes(target="/boom", last=False) + request_bytes()
        received = await talk(port_of(listener), raw)
        assert [answer.status for answer in parse_answers(received)] == [500, 200]
        assert parse_answers(received)[0].json["error"]
        assert SECRET.encode() not in received
        assert b"Traceback" not in received
    assert SECRET in "".join(capsys.readouterr()), "the log must say why"


async def test_a_problem_must_be_answered_and_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(request: Request) -> Answer:
        raise Problem(error(409, "not now", more=1))

    async with listening(get("/", refuse)) as listener:
        answer = await ask(port_of(listener))
        assert (answer.status, answer.json) == (409, {"error": "not now", "more": 1})
    assert "error" not in "".join(capsys.readouterr())


async def test_a_body_that_fails_before_its_first_piece_must_be_a_500() -> None:
    async def pieces(path: str) -> AsyncGenerator[bytes, None]:
        if path == "/":
            raise ValueError(SECRET)
        yield b""

    async def handler(request: Request) -> Answer:
        return Answer(body=pieces(request.path))

    async with listening(get("/", handler)) as listener:
        answer = await ask(port_of(listener))
        assert (answer.status, answer.whole) == (500, True)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_body_that_fails_midway_never_looks_complete(version: str, loop: str) -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        yield b'{"half": '
        raise ValueError(SECRET)

    async def handler(request: Request) -> Answer:
        return Answer(body=pieces())

    async def run() -> None:
        async with listening(get("/", handler), *Backend().routes()[1:]) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
            writer.write(f"GET / HTTP/{version}\r\nHost: localhost\r\n\r\n".encode())
            with pytest.raises(ConnectionResetError):
                await reader.read()
            writer.close()
            assert (await ask(port_of(listener), target="/nowhere")).status == 404

    (uvloop.run if loop == "uvloop" else asyncio.run)(run())


@pytest.mark.parametrize("reset", [False, True])
async def test_a_client_that_goes_must_end_its_answer(reset: bool) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            yield b"x"
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def handler(request: Request) -> Answer:
        return Answer(body=pieces())

    async with listening(get("/", handler)) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(request_bytes())
        await begun.wait()
        if reset:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        await ended.wait()
        await until(lambda: listener.connections == 0)


async def test_100_continue_must_be_sent_before_the_body_and_only_then() -> None:
    async with listening(*Backend().routes()) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(request_bytes("POST", "/post", headers=b"Expect: 100-continue\r\nContent-Length: 2\r\n"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi")
        assert parse_answers(await reader.read())[0].json["body"] == "hi"
        writer.close()


async def test_stop_must_let_a_running_answer_end_and_take_no_more() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Answer:
        begun.set()
        await go.wait()
        return Answer(body=b"{}")

    async with listening(get("/", handler), limits=Limits(drain_s=10)) as listener:
        port = port_of(listener)
        _, idle = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes(last=False))
        await begun.wait()
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(listener.stop())
            await until(lambda: listener.connections == 1)  # the idle one was closed at once
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            assert not stopping.done()
            go.set()
            (answer,) = parse_answers(await reader.read())
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert listener.connections == 0
        writer.close()
        idle.close()


async def test_stop_must_close_after_an_answer_whose_headers_are_gone() -> None:
    go = asyncio.Event()

    async def handler(request: Request) -> Answer:
        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"1"
            await go.wait()
            yield b"2"

        return Answer(body=pieces())

    async with listening(get("/", handler), limits=Limits(drain_s=60)) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(request_bytes(last=False))
        received = await reader.readuntil(b"1\r\n1\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(listener.stop())
            writer.write(request_bytes())  # comes too late, and is not answered
            await asyncio.sleep(0)
            go.set()
            received += await reader.read()
        assert [answer.body for answer in parse_answers(received)] == [b"12"]
        writer.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_stop_must_cut_what_does_not_end(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        ended = asyncio.Event()

        async def handler(request: Request) -> Answer:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return Answer()

        async with listening(get("/", handler), limits=Limits(drain_s=0.1)) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
            writer.write(request_bytes())
            await until(lambda: listener.connections == 1)
            await asyncio.sleep(0.02)
            await listener.stop()
            assert ended.is_set()
            assert listener.connections == 0
            assert await read_to_end(reader) == b""
            writer.close()
        assert len(asyncio.all_tasks()) == 1, "no task outlives its listener"
        assert "answers cut on stop" in capsys.readouterr().out

    (uvloop.run if loop == "uvloop" else asyncio.run)(run())


async def test_a_listener_must_be_the_only_one_on_its_port_from_bind_on() -> None:
    first = Listener("--a-port", Routes([]), hosts=("127.0.0.1", "::1"), port=0)
    first.bind()
    port = port_of(first)
    second = Listener("--b-port", Routes([]), hosts=("127.0.0.1", "::1"), port=port)
    try:
        with pytest.raises(UserError, match=rf"--b-port: port {port} .*in use"):
            second.bind()
        assert second.addresses == ()
    finally:
        await first.stop()
    await second.serve()  # binds by itself, now that the port is free
    assert port_of(second) == port
    assert (await ask(port)).status == 404
    await second.stop()


async def test_clients_that_come_between_bind_and_serve_must_be_answered() -> None:
    listener = Listener("--p", Routes(Backend().routes()), hosts=("127.0.0.1",), port=0)
    listener.bind()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
    writer.write(request_bytes())
    await listener.serve()
    assert parse_answers(await reader.read())[0].status == 200
    writer.close()
    await listener.stop()
    with contextlib.suppress(ConnectionError):
        await listener.stop()  # twice is harmless


async def test_ipv6_must_be_served_where_there_is_one() -> None:
    async with listening(*Backend().routes(), loopback_only=True) as listener:
        hosts = [host for host, _ in listener.addresses]
        if "::1" not in hosts:
            pytest.skip("this machine has no ::1")
        raw = b"GET / HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n"
        assert parse_answers(await talk(port_of(listener), raw, host="::1"))[0].status == 200
        assert len({port for _, port in listener.addresses}) == 1


async def test_an_answer_may_end_its_connection() -> None:
    async def last(request: Request) -> Answer:
        return Answer(body=b"{}", close=True)

    async with listening(Route("/", {"GET": last})) as listener:
        raw = await talk(port_of(listener), request_bytes(last=False) * 2)
        assert [answer.headers["connection"] for answer in parse_answers(raw)] == ["close"]
