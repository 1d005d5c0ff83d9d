"""Raw requests that a server might read in two ways, and what must come of each (R54).

Every case is sent as it stands, followed by nothing. `statuses` are those of all responses until the server
ends the connection, and `reached` how many requests may reach a handler. Where a case hides a second request,
that is `SMUGGLED`, which no handler must ever see.
"""

from __future__ import annotations

from typing import NamedTuple

H = b"Host: localhost\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Case(NamedTuple):
    """One thing to send and what must come of it."""

    name: str
    raw: bytes
    statuses: list[int]
    reached: int = 0


def post(headers: bytes, body: bytes = b"") -> bytes:
    """A POST with these headers and body."""
    return b"POST /post HTTP/1.1\r\n" + H + headers + b"\r\n" + body


def chunked(body: bytes) -> bytes:
    """A chunked POST with this raw body."""
    return post(b"Transfer-Encoding: chunked\r\n", body)


def refused(name: str, raw: bytes, status: int = 400) -> Case:
    """A case that is refused before any handler."""
    return Case(name, raw, [status])


CASES = [
    # Two lengths.
    refused("two-lengths", post(b"Content-Length: 5\r\nContent-Length: 6\r\n", b"hello!") + SMUGGLED),
    refused("two-equal-lengths", post(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello") + SMUGGLED),
    refused("list-of-lengths", post(b"Content-Length: 5, 5\r\n", b"hello") + SMUGGLED),
    refused("signed-length", post(b"Content-Length: +5\r\n", b"hello")),
    refused("negative-length", post(b"Content-Length: -1\r\n", SMUGGLED)),
    refused("hex-length", post(b"Content-Length: 0x5\r\n", b"hello")),
    refused("underscored-length", post(b"Content-Length: 1_0\r\n", b"helloworld")),
    refused("empty-length", post(b"Content-Length:\r\n", b"")),
    refused("spaced-length", post(b"Content-Length: 5 5\r\n", b"hello")),
    refused("arabic-length", post("Content-Length: \u0665\r\n".encode(), b"hello")),
    refused("endless-length", post(b"Content-Length: 99999999999999999999\r\n", b"")),
    refused(
        "length-and-coding",
        post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    ),
    refused(
        "coding-and-length",
        post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + SMUGGLED),
    ),
    # Codings.
    refused("chunked-identity", post(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n")),
    refused("gzip-chunked", post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n")),
    refused("chunked-chunked", post(b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n")),
    refused(
        "two-codings", post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n")
    ),
    refused("identity", post(b"Transfer-Encoding: identity\r\nContent-Length: 3\r\n", b"abc")),
    refused("xchunked", post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n")),
    refused("empty-coding", post(b"Transfer-Encoding:\r\n", b"0\r\n\r\n")),
    refused("vertical-tab-coding", post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n")),
    refused("quoted-coding", post(b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n")),
    refused("space-before-colon", post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n")),
    refused("space-before-name", post(b" Transfer-Encoding: chunked\r\n", b"0\r\n\r\n")),
    refused("folded-coding", post(b"Transfer-Encoding:\r\n chunked\r\n", b"0\r\n\r\n")),
    refused(
        "http10-chunked", b"POST /post HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    Case(
        "tab-before-chunked",
        post(b"Transfer-Encoding:\tchunked \r\n", b"1\r\na\r\n0\r\n\r\n") + LAST,
        [200, 200],
        2,
    ),
    Case(
        "chunked-in-capitals",
        post(b"TRANSFER-ENCODING: CHUNKED\r\n", b"1\r\na\r\n0\r\n\r\n") + LAST,
        [200, 200],
        2,
    ),
    # Lines.
    refused("bare-lf", b"GET / HTTP/1.1\nHost: localhost\n\n"),
    refused("bare-lf-in-one-line", b"GET / HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n"),
    refused("bare-cr", b"GET / HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n"),
    refused("nul-in-header", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n"),
    refused("no-colon", b"GET / HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n"),
    refused("empty-name", b"GET / HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n"),
    refused("odd-name", b"GET / HTTP/1.1\r\nHost: localhost\r\nX(y): z\r\n\r\n"),
    refused("two-hosts", b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n"),
    refused("no-host", b"GET / HTTP/1.1\r\n\r\n"),
    refused("host-with-path", b"GET / HTTP/1.1\r\nHost: localhost/x\r\n\r\n"),
    refused("two-spaces", b"GET  / HTTP/1.1\r\n" + H + b"\r\n"),
    refused("tab-in-request-line", b"GET\t/ HTTP/1.1\r\n" + H + b"\r\n"),
    refused("no-version", b"GET /\r\n\r\n"),
    refused("small-letters-version", b"GET / http/1.1\r\n" + H + b"\r\n"),
    refused("http2-preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    refused("http09", b"GET / HTTP/0.9\r\n\r\n", 505),
    refused("http12", b"GET / HTTP/1.2\r\n" + H + b"\r\n", 505),
    refused("tls-hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    refused("fragment", b"GET /#x HTTP/1.1\r\n" + H + b"\r\n"),
    refused("no-slash", b"GET x HTTP/1.1\r\n" + H + b"\r\n"),
    refused("raw-umlaut", "GET /ü HTTP/1.1\r\n".encode() + H + b"\r\n"),
    refused("userinfo-host", b"GET / HTTP/1.1\r\nHost: a@localhost\r\n\r\n"),
    refused("five-empty-lines", b"\r\n" * 5 + LAST),
    Case("two-empty-lines", b"\r\n\r\n" + LAST, [200], 1),
    # Bodies where there are none.
    refused(
        "get-chunked", b"GET / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED
    ),
    refused(
        "get-length", b"GET / HTTP/1.1\r\n" + H + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED
    ),
    refused(
        "delete-chunked",
        b"DELETE / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    ),
    refused("head-length", b"HEAD / HTTP/1.1\r\n" + H + b"Content-Length: 1\r\n\r\nx"),
    Case("get-length-0", b"GET / HTTP/1.1\r\n" + H + b"Content-Length: 0\r\n\r\n" + LAST, [200, 200], 2),
    # Chunks.
    refused("chunk-size-sign", chunked(b"+1\r\na\r\n0\r\n\r\n")),
    refused("chunk-size-0x", chunked(b"0x1\r\na\r\n0\r\n\r\n")),
    refused("chunk-size-space", chunked(b"1 \r\na\r\n0\r\n\r\n")),
    refused("chunk-size-underscore", chunked(b"1_0\r\na\r\n0\r\n\r\n")),
    refused("chunk-size-empty", chunked(b"\r\na\r\n0\r\n\r\n")),
    refused("chunk-size-17-digits", chunked(b"00000000000000001\r\na\r\n0\r\n\r\n")),
    refused("chunk-size-overflow", chunked(b"ffffffffffffffff1\r\na\r\n0\r\n\r\n")),
    refused("chunk-bare-lf", chunked(b"1\na\n0\n\n")),
    refused("chunk-lf-in-extension", chunked(b"1;a\nb\r\na\r\n0\r\n\r\n")),
    refused("chunk-too-short", chunked(b"2\r\na\r\n0\r\n\r\n")),
    refused("chunk-too-long", chunked(b"1\r\nab\r\n0\r\n\r\n")),
    refused("chunk-end-wrong", chunked(b"1\r\naX\r0\r\n\r\n")),
    refused("chunk-end-bare-cr", chunked(b"1\r\na\rX0\r\n\r\n")),
    refused("trailer-no-colon", chunked(b"0\r\nX\r\n\r\n")),
    refused("trailer-length", chunked(b"0\r\nContent-Length: 5\r\n\r\n")),
    refused("trailer-bare-lf", chunked(b"0\r\nX: y\n\r\n")),
    refused("trailer-nul", chunked(b"0\r\nX: \x00\r\n\r\n")),
    Case("chunk-extension", chunked(b'1;a="b"\r\na\r\n0;x\r\n\r\n') + LAST, [200, 200], 2),
    Case("trailer", chunked(b"1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n") + LAST, [200, 200], 2),
    # Pipelining.
    Case("two-pipelined", LAST.replace(b"Connection: close\r\n", b"") + LAST, [200, 200], 2),
    Case("twenty-pipelined", LAST.replace(b"Connection: close\r\n", b"") * 19 + LAST, [200] * 20, 20),
    Case("after-close", LAST + SMUGGLED, [200], 1),
    Case(
        "good-then-ambiguous",
        chunked(b"0\r\n\r\n") + post(b"Content-Length: 1\r\nContent-Length: 2\r\n"),
        [200, 400],
        1,
    ),
    # What is odd and yet has one reading.
    Case(
        "absolute-target", b"GET http://localhost/ HTTP/1.1\r\n" + H + b"Connection: close\r\n\r\n", [200], 1
    ),
    Case(
        "upgrade",
        b"GET / HTTP/1.1\r\n" + H + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n" + LAST,
        [200, 200],
        2,
    ),
    Case("connect", b"CONNECT localhost:1 HTTP/1.1\r\n" + H + b"\r\n" + LAST, [404, 200], 1),
    Case("options-star", b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n" + LAST, [404, 200], 1),
    Case("unknown-method", b"BREW / HTTP/1.1\r\n" + H + b"\r\n" + LAST, [405, 200], 1),
    Case("http10", b"GET / HTTP/1.0\r\n\r\n", [200], 1),
    Case("http10-keep-alive", b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + LAST, [200, 200], 2),
    refused("expectation", b"POST /post HTTP/1.1\r\n" + H + b"Expect: coffee\r\n\r\n", 417),
]
