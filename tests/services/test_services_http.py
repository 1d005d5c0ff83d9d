"""What listeners of services have beyond the debug port's: path parameters, forms of errors, half-closed
clients, a bound on bodies, TLS with certificates that change."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest

from isthmus.errors import UserError
from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, Request, Route, Routes, coded_error, get, json_body, openai_error
from isthmus.web.server import Listener
from isthmus.web.tls import ServerTls
from tests.support.certs import Authority
from tests.support.http import HOST, ask, listening, parse_answers, port_of, request_bytes, talk, until


async def _params(request: Request) -> Answer:
    return Answer(body=json_body(dict(request.params)))


async def test_segments_in_braces_must_stand_for_any_text_without_a_slash() -> None:
    async with listening(get("/pools/watch", _params), get("/pools/{cluster}/{name}", _params)) as listener:
        port = port_of(listener)
        assert (await ask(port, target="/pools/ea%20st/chat")).json == {"cluster": "ea st", "name": "chat"}
        assert (await ask(port, target="/pools/watch")).json == {}
        assert (await ask(port, target="/pools/{cluster}/{name}")).json["name"] == "{name}"
        assert (await ask(port, target="/pools/a%2Fb/chat")).status == 404
        assert (await ask(port, target="/pools/a/b/c")).status == 404
        assert (await ask(port, "DELETE", "/pools/a/b")).status == 405


async def test_headers_given_as_pairs_must_be_sent_as_often_as_they_are_there() -> None:
    async def handler(_: Request) -> Answer:
        return Answer(body=b"{}", headers=(("X-A", "1"), ("x-a", "2"), ("cache-control", "private")))

    async with listening(get("/", handler)) as listener:
        raw = await talk(port_of(listener), request_bytes())
    head = raw.partition(b"\r\n\r\n")[0].lower().split(b"\r\n")
    assert head.count(b"x-a: 1") == head.count(b"x-a: 2") == 1
    assert [line for line in head if line.startswith(b"cache-control")] == [b"cache-control: private"]


@pytest.mark.parametrize(
    ("page", "keys"), [(coded_error, "code message"), (openai_error, "code message param type")]
)
async def test_refusals_must_have_the_form_that_the_listener_speaks(page: object, keys: str) -> None:
    listener = Listener(
        "--test",
        Routes([], page=page),  # type: ignore[arg-type] # both are pages
        hosts=("127.0.0.1",),
        port=0,
        limits=Limits(linger_s=0.2, drain_s=0.2),
    )
    await listener.serve()
    try:
        port = port_of(listener)
        for raw in (request_bytes(), b"nonsense\r\n\r\n"):
            (answer,) = parse_answers(await talk(port, raw))
            assert keys.split() == [key for key in sorted(answer.json["error"]) if key != "routes"]
    finally:
        await listener.stop()


class _Mute:
    """A handler that answers when it is told to, and counts who has gone."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = self.gone = 0

    async def answer(self, _: Request) -> Answer:
        self.asked += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.gone += 1
            raise
        return Answer(body=b'"late"')


@pytest.mark.covers("R45")
async def test_client_that_closed_its_sending_side_must_still_get_its_answer_where_that_is_allowed() -> None:
    mute = _Mute()
    async with listening(get("/", mute.answer), limits=Limits(half_close=True, drain_s=1.0)) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: mute.asked == 1)
        writer.write_eof()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 102 ")
        mute.go.set()
        rest = await reader.read()
        writer.close()
    assert b"HTTP/1.1 200 OK" in rest
    assert rest.endswith(b'"late"')
    assert mute.gone == 0


@pytest.mark.covers("R45")
@pytest.mark.parametrize("half_close", [True, False])
async def test_client_that_has_gone_must_end_its_handler_while_that_is_silent(half_close: bool) -> None:
    mute = _Mute()
    async with listening(
        get("/", mute.answer), limits=Limits(half_close=half_close, drain_s=1.0)
    ) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
        writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: mute.asked == 1)
        writer.close()
        await until(lambda: mute.gone == 1 and listener.connections == 0)


async def test_bodies_must_not_hold_more_memory_than_the_listener_may() -> None:
    mute = _Mute()
    limits = Limits(held_bytes=1500, body_bytes=1000, drain_s=0.2, linger_s=0.2)
    async with listening(Route("/", {"POST": mute.answer}), limits=limits) as listener:
        port = port_of(listener)
        whole = request_bytes("POST", headers=b"Content-Length: 1000\r\n", body=b"x" * 1000)
        first = asyncio.create_task(talk(port, whole))  # noqa: TID251 - awaited below
        await until(lambda: mute.asked == 1)
        (refused,) = parse_answers(await talk(port, whole))
        assert refused.status == 503
        mute.go.set()
        assert b"200 OK" in await first
        await until(lambda: listener.held_bytes == 0)
        assert b"200 OK" in await talk(port, whole)


async def test_changed_certificate_must_be_used_and_a_bad_one_never(tmp_path: Path) -> None:
    authority = Authority()
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    for path, data in zip(files, authority.issue("first"), strict=True):
        path.write_bytes(data)
    tls = ServerTls(*files, flags="--tls-cert-path, --tls-key-path")

    async def handler(_: Request) -> Answer:
        return Answer(body=b"1")

    listener = Listener("--test", Routes([get("/", handler)]), hosts=("127.0.0.1",), port=0, tls=tls)
    await listener.serve()
    try:
        port = port_of(listener)
        assert await _subject(port, authority) == "first"
        files[0].write_bytes(b"nonsense")
        tls.reload()
        assert (tls.failed, await _subject(port, authority)) == (1, "first")
        for path, data in zip(files, authority.issue("second"), strict=True):
            path.write_bytes(data)
        tls.reload()
        assert (tls.reloaded, await _subject(port, authority)) == (1, "second")
    finally:
        await listener.stop()


def test_pair_that_cannot_be_used_must_end_the_start_with_the_flags(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--cert, --key"):
        ServerTls(tmp_path / "no.crt", tmp_path / "no.key", flags="--cert, --key")


async def _subject(port: int, authority: Authority) -> str:
    context = ssl.create_default_context(cadata=authority.pem.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    assert json.loads((await reader.read()).rpartition(b"\r\n\r\n")[2]) == 1
    subject = writer.get_extra_info("peercert")["subject"]
    writer.close()
    return str(dict(pair[0] for pair in subject)["commonName"])
