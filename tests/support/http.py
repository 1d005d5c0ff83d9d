"""A client that sends any bytes and says what came back, and a listener for it to send them to.

For tests of web/ and debugport/ over real loopback sockets. `talk` sends and reads until the server ends the
connection (the test's own time limit is the bound); `Answered` is one response, taken apart by hand, since an
HTTP library would hide what these tests are about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, Request, Route, Routes, get, json_body
from isthmus.web.server import Listener

HOST = b"Host: 127.0.0.1\r\n"


@dataclass
class Answered:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True
    """Whether the body's framing says that all of it is here."""

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)


def parse_answers(raw: bytes, *, head: bool = False) -> list[Answered]:
    """All responses in `raw`, one after another; `head`: they have no bodies."""
    answers = []
    while raw:
        top, _, raw = raw.partition(b"\r\n\r\n")
        first, *lines = top.decode("latin-1").split("\r\n")
        status = int(first.split(" ")[1])
        pairs = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in pairs}
        assert len(headers) == len(pairs), "a repeated header"
        whole = True
        if head or status == 100:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body, raw, whole = _dechunk(raw)
        else:
            size = int(headers.get("content-length", len(raw)))
            body, raw, whole = raw[:size], raw[size:], len(raw) >= size
        answers.append(Answered(status, headers, body, whole))
    return answers


def _dechunk(raw: bytes) -> tuple[bytes, bytes, bool]:
    body = b""
    while raw:
        size_text, _, raw = raw.partition(b"\r\n")
        size = int(size_text, 16)
        body, raw = body + raw[:size], raw[size + 2 :]
        if size == 0:
            return body, raw, True
    return body, b"", False


async def talk(port: int, raw: bytes, *, host: str = "127.0.0.1") -> bytes:
    """Send `raw`, and everything that comes back until the server ends the connection, cleanly or not."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(raw)
        return await read_to_end(reader)
    finally:
        writer.close()


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """What comes until the connection ends."""
    received = b""
    try:
        while piece := await reader.read(1 << 16):
            received += piece
    except ConnectionError:
        pass
    return received


def request_bytes(
    method: str = "GET", target: str = "/", *, headers: bytes = b"", body: bytes = b"", last: bool = True
) -> bytes:
    """An honest request with a loopback Host; `last` asks for the connection to be closed after it."""
    close = b"Connection: close\r\n" if last else b""
    return f"{method} {target} HTTP/1.1\r\n".encode() + HOST + close + headers + b"\r\n" + body


async def ask(port: int, method: str = "GET", target: str = "/", *, headers: bytes = b"") -> Answered:
    """One honest request on a connection of its own."""
    raw = await talk(port, request_bytes(method, target, headers=headers))
    (answer,) = parse_answers(raw, head=method == "HEAD")
    return answer


@dataclass
class Backend:
    """Handlers that count: what reached a handler, in order."""

    seen: list[Request] = field(default_factory=list)

    async def echo(self, request: Request) -> Answer:
        """What arrived, as JSON."""
        self.seen.append(request)
        return Answer(body=json_body({"path": request.path, "body": request.body.decode("latin-1")}))

    def routes(self) -> list[Route]:
        """`/` for GET, `/post` for POST."""
        return [get("/", self.echo), Route("/post", {"POST": self.echo})]


@asynccontextmanager
async def listening(
    *routes: Route, limits: Limits | None = None, loopback_only: bool = False
) -> AsyncIterator[Listener]:
    """A listener on a free port of loopback, stopped at the end."""
    listener = Listener(
        "--test-port",
        Routes(routes, loopback_only=loopback_only),
        hosts=("127.0.0.1", "::1"),
        port=0,
        limits=limits or Limits(drain_s=1.0, linger_s=0.2),
    )
    listener.bind()
    try:
        await listener.serve()
        yield listener
    finally:
        await listener.stop()


def port_of(listener: Any) -> int:
    """The port of a listener or debug port."""
    port: int = listener.addresses[0][1]
    return port


async def until(condition: Callable[[], bool]) -> None:
    """Return once `condition` holds; the test's time limit is the bound."""
    while not condition():  # noqa: ASYNC110 - what is waited for is in another process or in the kernel
        await asyncio.sleep(0.005)


Handler = Callable[[Request], Awaitable[Answer]]
