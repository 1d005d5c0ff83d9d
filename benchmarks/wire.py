"""The two ends of a measured path: a backend that answers at once, and a client that counts and times.

Both are bare asyncio protocols, so that they cost little beside what is measured between them. The backend
reads nothing of a request but its end and whether it wants a stream; `python -m benchmarks.wire PORT` runs
it. The client sends one request after another on each of its connections and reads answers to their end. Only
for benchmarks.router, whose parties are well-behaved.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final, NamedTuple, cast

MODEL: Final = "example/tiny"
WORDS: Final = 20
"""Pieces of a streamed answer."""

_USAGE: Final = b'"usage":{"prompt_tokens":9,"completion_tokens":20,"total_tokens":29}'
_PLAIN: Final = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"example/tiny","choices":'
    b'[{"index":0,"message":{"role":"assistant","content":"'
    + b"word " * WORDS
    + b'"},"finish_reason":"stop"}],'
    + _USAGE
    + b"}"
)
_PIECE: Final = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"example/tiny",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"word "},"finish_reason":null}]}\n\n'
)
_LAST: Final = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"example/tiny",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)
_MODELS: Final = (
    b'{"object":"list","data":[{"id":"example/tiny","object":"model","created":1,"owned_by":"x"}]}'
)


def _whole(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


_STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_PLAIN_ANSWER: Final = _whole(_PLAIN)
_MODELS_ANSWER: Final = _whole(_MODELS)
_END: Final = _chunk(_LAST) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Backend(asyncio.Protocol):
    """One connection of the backend. A stream's pieces leave in turns of the loop of their own."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            chunked = b"transfer-encoding: chunked" in head
            at = head.find(b"content-length:")
            length = 0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0])
            if chunked:
                stop = self._buffer.find(b"0\r\n\r\n", end + 4)
                if stop < 0:
                    return
                length = stop + 5 - end - 4
            if len(self._buffer) < end + 4 + length:
                return
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        if head.startswith(b"get"):
            self._transport.write(_MODELS_ANSWER)
        elif b'"stream":true' in body or b'"stream": true' in body:
            self._transport.write(_STREAM_HEAD)
            self._pieces(WORDS)
        else:
            self._transport.write(_PLAIN_ANSWER)

    def _pieces(self, left: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if left:
            self._transport.write(_chunk(_PIECE))
            asyncio.get_running_loop().call_soon(self._pieces, left - 1)
        else:
            self._transport.write(_END)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop what streams."""
        self._transport = None


class Sample(NamedTuple):
    """One answer: seconds from the request's first byte to the answer's first and last byte, and whether it
    was a 200 that ended as it should."""

    first_s: float
    whole_s: float
    right: bool


class Caller(asyncio.Protocol):
    """One connection of the client."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._done: asyncio.Future[bool] | None = None
        self._began = self._first = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    async def call(self, request: bytes) -> Sample:
        """Send it and read the answer. Raises ConnectionError where the connection ends first."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("closed")
        self._buffer.clear()
        self._first = 0.0
        self._done = asyncio.get_running_loop().create_future()
        self._began = time.perf_counter()
        self._transport.write(request)
        right = await self._done
        return Sample(self._first - self._began, time.perf_counter() - self._began, right)

    def data_received(self, data: bytes) -> None:
        """Note when the first byte came, and see whether this is the end."""
        if not self._buffer:
            self._first = time.perf_counter()
        self._buffer += data
        if self._done is not None and not self._done.done() and self._is_whole():
            self._done.set_result(self._buffer.startswith(b"HTTP/1.1 200"))

    def _is_whole(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end]).lower()
        at = head.find(b"content-length:")
        if at < 0:
            return self._buffer.endswith(b"0\r\n\r\n")
        return len(self._buffer) >= end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits."""
        self._transport = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("closed in the middle of an answer"))

    def close(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.close()


def request(port: int, *, stream: bool) -> bytes:
    """A chat completion as a client sends it."""
    body = (
        f'{{"model":"{MODEL}","messages":[{{"role":"user","content":"{"hello " * 40}"}}],'
        f'"max_tokens":{WORDS},"stream":{"true" if stream else "false"}}}'
    ).encode()
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer sk-benchmark\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def load(
    port: int, *, stream: bool, connections: int, seconds: float = 0.0, count: int = 0
) -> list[Sample]:
    """Samples of a closed loop: each connection sends its next request when it has the answer, for `seconds`,
    or `count` requests in all. A connection that ends is a wrong answer, and is opened again."""
    samples: list[Sample] = []
    deadline = time.perf_counter() + seconds if seconds else float("inf")
    raw = request(port, stream=stream)

    async def one() -> None:
        caller: Caller | None = None
        while time.perf_counter() < deadline and (not count or len(samples) < count):
            try:
                if caller is None:
                    loop = asyncio.get_running_loop()
                    _, caller = await loop.create_connection(Caller, "127.0.0.1", port)
                samples.append(await caller.call(raw))
            except OSError:
                caller = None
                samples.append(Sample(0.0, 0.0, False))
                await asyncio.sleep(0.01)
        if caller is not None:
            caller.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(one())
    return samples


async def serve(port: int) -> None:
    """The backend, until it is killed."""
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
