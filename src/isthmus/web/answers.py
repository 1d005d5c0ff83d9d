"""What every answer of every listener has: the headers, and refusals that are written without a handler.

connection.py asks for the headers of an Answer, and writes the bytes of a refusal where no request is left to
be answered: one that cannot be read, or a connection too many. Nothing of a client's ever gets into either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, cast

from multidict import CIMultiDict

from isthmus.web.routes import Answer, ErrorPage, error

SAFE_HEADERS: Final = {
    "Server": "isthmus",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""On every answer that does not say otherwise. There is no CORS header among them, nor does any handler set
one."""


class Excess(asyncio.Protocol):
    """A connection beyond the limit: told 503, and closed."""

    def __init__(self, page: ErrorPage = error) -> None:
        self._page = page

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say so and close, without reading anything."""
        stream = cast(asyncio.Transport, transport)
        stream.write(refusal_bytes(self._page(503, "too many connections", headers={"Retry-After": "1"})))
        stream.close()


def answer_headers(answer: Answer) -> CIMultiDict[str]:
    """The answer's own headers, and those that every answer has where it does not say otherwise."""
    own = answer.headers.items() if isinstance(answer.headers, Mapping) else answer.headers
    headers = CIMultiDict(own)
    headers.setdefault("Content-Type", answer.content_type)
    for name, value in SAFE_HEADERS.items():
        headers.setdefault(name, value)
    return headers


def refusal_bytes(answer: Answer) -> bytes:
    """A whole response that ends its connection, of an error page with headers that are ours alone."""
    assert isinstance(answer.body, bytes)
    headers = {**SAFE_HEADERS, **dict(answer.headers)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return (
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n"
        f"Connection: close\r\n{lines}\r\n"
    ).encode() + answer.body
