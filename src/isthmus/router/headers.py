"""Which headers go on to a pool, which come back to the client, and which the router makes itself.

Both directions are lists of what may pass, so nothing that a hop speaks of itself (Connection, TE, Upgrade,
Proxy-*) and no credential gets through by being forgotten (R55, GR-23). Authorization passes only where the
setting says so. Forwarding headers are made here; a client's own are not believed. Pure.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import Final

from isthmus.web.routes import Pairs, Request

HOP: Final = "x-dynamo-global-router-hop"
REQUEST_ID: Final = "x-request-id"

_TO_POOL: Final = frozenset(
    {"accept", "accept-encoding", "content-type", "user-agent", "tracestate", "baggage"}
)
_TO_CLIENT: Final = frozenset(
    {"content-type", "content-encoding", "content-language", "cache-control", "retry-after"}
)
_TO_CLIENT_PREFIXES: Final = ("x-ratelimit-", "openai-")
_ID: Final = re.compile(r"[!-~]{1,128}")
_TRACE: Final = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def request_id(request: Request) -> str:
    """The client's, where it is printable and short, else a new one; one for all tries."""
    own = request.header(REQUEST_ID)
    return own if _ID.fullmatch(own) else secrets.token_hex(16)


def traceparent(request: Request) -> str:
    """The client's W3C trace context, or the start of a new trace that nobody has asked to sample."""
    own = request.header("traceparent")
    if _TRACE.fullmatch(own):
        return own
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00"


def to_pool(request: Request, *, identity: str, trace: str, authorization: bool) -> list[tuple[str, str]]:
    """The headers of a try. `authorization`: whether the client's credential goes on."""
    found = [(name, value) for name, value in request.headers if name in _TO_POOL]
    if authorization:
        found += [(name, value) for name, value in request.headers if name == "authorization"]
    if not any(name == "accept-encoding" for name, _ in found):
        found.append(("accept-encoding", "identity"))
    if request.peer:
        found.append(("x-forwarded-for", request.peer))
    found += [(REQUEST_ID, identity), ("traceparent", trace), (HOP, "1")]
    return found


def to_client(upstream: Iterable[tuple[str, str]], *, identity: str, more: Pairs) -> Pairs:
    """The headers of the answer: what passes of the pool's that answered, and ours."""
    found = [
        (name, value)
        for name, value in upstream
        if (lower := name.lower()) in _TO_CLIENT or lower.startswith(_TO_CLIENT_PREFIXES)
    ]
    return (*found, (REQUEST_ID, identity), *more)
