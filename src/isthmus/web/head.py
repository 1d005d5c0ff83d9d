"""A request's head, from bytes to a checked `Head`, or a refusal that says what is wrong with it. Pure.

framing.py calls `parse_head` with everything up to the empty line. It is stricter than any HTTP library and
does not depend on which parser aiohttp was built with: whatever two servers could read in two ways is refused
here with 400 (R54): folded lines, space before a colon, repeated or odd Content-Length, Transfer-Encoding
that is anything but `chunked`, both of them, control characters, a second Host.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

import msgspec

from isthmus.errors import IsthmusError
from isthmus.web.limits import Limits

MAX_QUERY_FIELDS: Final = 32

_REQUEST_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([!-~]+) HTTP/([0-9])\.([0-9])")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]{0,5})?")
_ABSOLUTE: Final = re.compile(r"https?://([^/?#]+)([^#]*)", re.IGNORECASE)
_ONCE: Final = frozenset({"host", "content-length", "transfer-encoding", "content-type", "expect"})
NO_BODY_METHODS: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
"""Methods whose body has no meaning; one that comes with a body is refused, since it may be a hidden
request."""


class Refused(IsthmusError):
    """A request that is not read any further. `status` is what the client is told before the connection
    ends."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """A request line and headers that only one reading fits.

    `path` is percent-decoded; `query` has decoded pairs in order; `headers` have lower-case names; `hosts`
    holds the Host header's value and the authority of an absolute target, as far as there are any; `close`
    says that the client wants no further answer on this connection; `length` is Content-Length.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    minor: int = 1
    headers: tuple[tuple[str, str], ...] = ()
    hosts: tuple[str, ...] = ()
    close: bool = False
    length: int | None = None
    chunked: bool = False
    wants_continue: bool = False

    def header(self, name: str) -> str:
        """The first value of header `name` (lower case), or empty."""
        return next((value for key, value in self.headers if key == name), "")


def parse_head(raw: bytes, limits: Limits) -> Head:
    """Turn `raw`, without its final empty line, into a Head.

    Raises Refused: 400 malformed or ambiguous, 413 body too long, 414 target too long, 417 expectation
    unknown, 431 too many headers, 505 another HTTP version.
    """
    first, *lines = raw.split(b"\r\n")
    method, target, minor = _parse_request_line(first, limits)
    if len(lines) > limits.head_lines:
        raise Refused(431, f"more than {limits.head_lines} header lines")
    headers = tuple(parse_field(line) for line in lines)
    single = _single_values(headers)
    path, query, authority = _parse_target(method, target)
    hosts = tuple(host for host in (single.get("host"), authority) if host is not None)
    if minor == 1 and "host" not in single:
        raise Refused(400, "the Host header is missing")
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise Refused(400, "the Host header is malformed")
    length, chunked = _parse_body_framing(method, minor, single, limits)
    return Head(
        method=method,
        path=path,
        query=query,
        minor=minor,
        headers=headers,
        hosts=hosts,
        close=_wants_close(minor, headers),
        length=length,
        chunked=chunked,
        wants_continue=_wants_continue(minor, single),
    )


def parse_field(line: bytes) -> tuple[str, str]:
    """A header or trailer line as (lower-case name, value). Raises Refused(400)."""
    name, colon, value = line.partition(b":")
    if not colon or not _NAME.fullmatch(name):
        raise Refused(400, "a header line is malformed")
    if not _VALUE.fullmatch(value):
        raise Refused(400, "a header has a control character")
    return name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")


def _parse_request_line(line: bytes, limits: Limits) -> tuple[str, str, int]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise Refused(400, "the request line is malformed")
    method, target, major, minor = (part.decode("ascii") for part in match.groups())
    if major != "1" or minor not in "01":
        raise Refused(505, "HTTP/1.1 and HTTP/1.0 are spoken here")
    if len(target) > limits.target_bytes:
        raise Refused(414, f"the target is longer than {limits.target_bytes} bytes")
    return method, target, int(minor)


def _single_values(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    single: dict[str, str] = {}
    for name, value in headers:
        if name in _ONCE:
            if name in single:
                raise Refused(400, f"header {name} is repeated")
            single[name] = value
    return single


def _parse_target(method: str, target: str) -> tuple[str, tuple[tuple[str, str], ...], str | None]:
    """(decoded path, query pairs, authority of the absolute form or None)."""
    authority = None
    if method == "CONNECT" or (target == "*" and method == "OPTIONS"):
        return target, (), None
    if not target.startswith("/"):
        match = _ABSOLUTE.fullmatch(target)
        if match is None:
            raise Refused(400, "the target is malformed")
        authority, target = match.groups()
    if "#" in target:
        raise Refused(400, "the target has a fragment")
    path, _, query = target.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise Refused(400, f"the query has more than {MAX_QUERY_FIELDS} parameters") from None
    return unquote(path) or "/", tuple(pairs), authority


def _parse_body_framing(
    method: str, minor: int, single: dict[str, str], limits: Limits
) -> tuple[int | None, bool]:
    """(Content-Length or None, whether the body is chunked)."""
    length_text, coding = single.get("content-length"), single.get("transfer-encoding")
    if length_text is not None and coding is not None:
        raise Refused(400, "both Content-Length and Transfer-Encoding")
    if coding is not None:
        if minor == 0 or coding.lower() != "chunked":
            raise Refused(400, "the only Transfer-Encoding is chunked, in HTTP/1.1")
        if method in NO_BODY_METHODS:
            raise Refused(400, f"a {method} request has no body here")
        return None, True
    if length_text is None:
        return None, False
    if not _LENGTH.fullmatch(length_text):
        raise Refused(400, "Content-Length is malformed")
    length = int(length_text)
    if length and method in NO_BODY_METHODS:
        raise Refused(400, f"a {method} request has no body here")
    if length > limits.body_bytes:
        raise Refused(413, f"the body is longer than {limits.body_bytes} bytes")
    return length, False


def _wants_close(minor: int, headers: tuple[tuple[str, str], ...]) -> bool:
    tokens = {
        token.strip(" \t").lower()
        for name, value in headers
        if name == "connection"
        for token in value.split(",")
    }
    return "close" in tokens or (minor == 0 and "keep-alive" not in tokens)


def _wants_continue(minor: int, single: dict[str, str]) -> bool:
    expect = single.get("expect")
    if expect is None or minor == 0:
        return False
    if expect.lower() != "100-continue":
        raise Refused(417, "the only expectation is 100-continue")
    return True
