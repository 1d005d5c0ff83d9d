from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import aiohttp.http_parser
import pytest
import uvloop

from isthmus.web.framing import Framing
from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, Request, get
from tests.services.raw_cases import CASES, LAST, Case
from tests.support.http import Backend, listening, parse_answers, port_of, request_bytes, talk

PARSERS = {"c": "HttpRequestParserC", "python": "HttpRequestParserPy"}
QUICK = Limits(linger_s=0.05, drain_s=1.0)


async def send_case(case: Case) -> None:
    backend = Backend()
    async with listening(*backend.routes(), limits=QUICK) as listener:
        raw = await talk(port_of(listener), case.raw)
        answers = parse_answers(raw)
        assert [answer.status for answer in answers] == case.statuses
        assert len(backend.seen) == case.reached
        assert all("/smuggled" not in request.path for request in backend.seen)
        for answer in answers:
            assert answer.whole
            assert answer.json
        if answers[-1].status in (400, 505, 417):
            assert answers[-1].headers["connection"] == "close"


@pytest.mark.covers("R54")
@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_framing_must_have_one_reading(
    case: Case, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With either of aiohttp's parsers: no byte of a client's reaches them."""
    kind = getattr(aiohttp.http_parser, PARSERS[parser])
    monkeypatch.setattr("aiohttp.web_protocol.HttpRequestParser", kind)
    await send_case(case)


@pytest.mark.covers("R54")
def test_framing_must_be_the_same_on_uvloop() -> None:
    async def every_case() -> None:
        for case in CASES:
            await send_case(case)

    uvloop.run(every_case())


@pytest.mark.covers("R54")
async def test_framing_must_not_depend_on_how_bytes_arrive() -> None:
    backend = Backend()
    async with listening(*backend.routes()) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        for byte in b"POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" + LAST:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        answers = parse_answers(await reader.read())
        writer.close()
        assert [answer.json["body"] for answer in answers] == ["hi", ""]


@pytest.mark.covers("R54")
async def test_pipelined_requests_must_wait_for_a_streaming_answer() -> None:
    go, order = asyncio.Event(), []

    async def slow(request: Request) -> Answer:
        async def pieces() -> AsyncGenerator[bytes, None]:
            order.append("slow begins")
            yield b"1"
            await go.wait()
            yield b"2"
            order.append("slow ends")

        return Answer(body=pieces())

    async def quick(request: Request) -> Answer:
        order.append("quick")
        return Answer(body=b"3")

    async with listening(get("/slow", slow), get("/quick", quick)) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(request_bytes(target="/slow", last=False) + request_bytes(target="/quick"))
        received = await reader.readuntil(b"1\r\n1\r\n")
        assert order == ["slow begins"]
        go.set()
        received += await reader.read()
        writer.close()
        assert [answer.body for answer in parse_answers(received)] == [b"12", b"3"]
        assert order == ["slow begins", "slow ends", "quick"]


@pytest.mark.covers("R54", "R53")
async def test_pipelining_must_be_bounded_while_an_answer_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that keeps on sending behind a slow answer is not read any further."""
    go, held = asyncio.Event(), list[Framing]()

    class Kept(Framing):
        def __init__(self, limits: Limits) -> None:
            super().__init__(limits)
            held.append(self)

    monkeypatch.setattr("isthmus.web.connection.Framing", Kept)

    async def slow(request: Request) -> Answer:
        await go.wait()
        return Answer(body=b"{}")

    limits = Limits(head_bytes=4096, drain_s=1.0)
    async with listening(get("/", slow), limits=limits) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(request_bytes(last=False, headers=b"X-Pad: %b\r\n" % (b"x" * 3000)) * 2000)
        writer.write(request_bytes())
        await asyncio.sleep(0.1)
        assert held[0].buffered_bytes < 512 * 1024
        go.set()
        total, most = 0, 0
        while piece := await reader.read(1 << 16):
            total += piece.count(b"HTTP/1.1 200")
            most = max(most, held[0].buffered_bytes)
        writer.close()
        assert total == 2001
        assert most < 512 * 1024
