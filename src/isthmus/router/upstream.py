"""One try at one frontend: a request out, the head of an answer back, with a deadline for each step.

proxy.py calls `send` and reads the Reply. Connecting, the first byte, the time between two pieces and the
whole have limits of their own (R48). A connection that was kept open and turns out to be dead before a byte
of the answer came is replaced by a fresh one, once (R51). Redirects are not followed, bodies not decoded.
Nothing is decided here: every failure is a Failed with its Outcome.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import aiohttp
import msgspec

from isthmus.errors import UserError, WorldError
from isthmus.kube.proxies import proxy_for
from isthmus.router.plan.model import Outcome

PIECE_BYTES: Final = 64 * 1024
CONNECTIONS: Final = 4096
MAX_HEADER_BYTES: Final = 32 * 1024


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Seconds: to connect, from there to the first byte of the answer, between two pieces of it, for all of
    it, and how long an idle connection is kept, which should be less than the backends keep theirs."""

    connect_s: float = 5.0
    first_byte_s: float = 60.0
    between_s: float = 60.0
    total_s: float = 1800.0
    idle_s: float = 4.0


class Failed(WorldError):
    """A try that gave no answer, or only half of one."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class Reply:
    """The head of an answer, and its body. `close` it whatever happens."""

    def __init__(self, response: aiohttp.ClientResponse, timeouts: Timeouts, deadline_s: float) -> None:
        self._response = response
        self._timeouts = timeouts
        self._deadline_s = deadline_s
        self.status = response.status
        self.headers: tuple[tuple[str, str], ...] = tuple(response.headers.items())
        self.content_type = response.headers.get("Content-Type", "application/octet-stream")
        self.length = response.content_length if not response.headers.get("Transfer-Encoding") else None

    async def whole(self) -> bytes:
        """All of the body. Raises Failed."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises Failed where it does not end as it should."""
        loop = asyncio.get_running_loop()
        content = self._response.content
        while True:
            try:
                limit_s = min(loop.time() + self._timeouts.between_s, self._deadline_s)
                async with asyncio.timeout_at(limit_s):
                    piece = await content.readany()
            except TimeoutError:
                raise Failed(Outcome.TIMEOUT, "the pool stopped in the middle of its answer") from None
            except (aiohttp.ClientError, OSError, ValueError) as problem:
                raise Failed(Outcome.BROKEN, f"the pool's answer broke off: {_text(problem)}") from problem
            if not piece:
                return
            yield piece

    def close(self) -> None:
        """Give the connection back where the answer was read to its end, else end it."""
        if self._response.content.is_eof():
            self._response.release()
        else:
            self._response.close()


class Upstream:
    """The connections to all pools. `open` it in the loop, `close` it there."""

    def __init__(self, timeouts: Timeouts, environ: Mapping[str, str] | None = None) -> None:
        self._timeouts = timeouts
        self._environ = os.environ if environ is None else environ
        self._proxies: dict[str, str | None] = {}
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None

    def open(self) -> None:
        """Make the pools of connections: one that keeps them, and one for resends, which never does."""
        self._kept = self._session(
            aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=self._timeouts.idle_s, ttl_dns_cache=10)
        )
        self._fresh = self._session(
            aiohttp.TCPConnector(limit=CONNECTIONS, force_close=True, ttl_dns_cache=10)
        )

    def _session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect_s),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            trace_configs=[trace],
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    async def close(self) -> None:
        """End all connections."""
        for session in (self._kept, self._fresh):
            if session is not None:
                await session.close()

    def forget(self, base: str) -> None:
        """Drop what is remembered of a frontend."""
        self._proxies.pop(base, None)

    async def send(
        self, base: str, path: str, *, headers: list[tuple[str, str]], body: bytes, deadline_s: float
    ) -> Reply:
        """POST `body` to a frontend. `deadline_s`: the loop's time by which all must be over.

        Raises Failed. A cancelled call ends its connection.
        """
        noted: dict[str, Any] = {}
        try:
            return await self._send(self._kept, base + path, headers, body, deadline_s, noted)
        except aiohttp.ServerDisconnectedError as problem:
            # With part of a head, aiohttp has it in place of the text.
            if not noted.get("reused") or not isinstance(problem.message, str):
                raise Failed(
                    Outcome.UNREACHABLE, "the pool closed the connection without an answer"
                ) from problem
        except (aiohttp.ClientOSError, ConnectionError) as problem:
            if not noted.get("reused"):
                raise Failed(
                    Outcome.UNREACHABLE, f"the pool cannot be reached: {_text(problem)}"
                ) from problem
        try:
            return await self._send(self._fresh, base + path, headers, body, deadline_s, {})
        except (aiohttp.ClientError, OSError) as problem:
            raise Failed(Outcome.UNREACHABLE, f"the pool cannot be reached: {_text(problem)}") from problem

    async def _send(
        self,
        session: aiohttp.ClientSession | None,
        url: str,
        headers: list[tuple[str, str]],
        body: bytes,
        deadline_s: float,
        noted: dict[str, Any],
    ) -> Reply:
        assert session is not None
        timeouts = self._timeouts
        limit_s = asyncio.get_running_loop().time() + timeouts.connect_s + timeouts.first_byte_s
        try:
            async with asyncio.timeout_at(min(limit_s, deadline_s)):
                response = await session.request(
                    "POST",
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy(url),
                    trace_request_ctx=noted,
                )
        except aiohttp.ConnectionTimeoutError as problem:
            raise Failed(Outcome.UNREACHABLE, "the pool did not take the connection in time") from problem
        except TimeoutError:
            raise Failed(Outcome.TIMEOUT, "the pool did not begin to answer in time") from None
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
            raise
        except (aiohttp.ClientError, ValueError) as problem:
            raise Failed(Outcome.FAILED, f"the pool gave no proper answer: {_text(problem)}") from problem
        return Reply(response, timeouts, deadline_s)

    def _proxy(self, url: str) -> str | None:
        base = url[: url.index("/", url.index("://") + 3)]
        if base not in self._proxies:
            if len(self._proxies) >= CONNECTIONS:
                self._proxies.clear()
            try:
                self._proxies[base] = proxy_for(base, self._environ)
            except UserError as problem:
                raise Failed(Outcome.UNREACHABLE, str(problem)) from problem
        return self._proxies[base]


async def _note_reuse(_: aiohttp.ClientSession, context: Any, __: Any) -> None:
    noted = context.trace_request_ctx
    if noted is not None:
        noted["reused"] = True


def _text(problem: BaseException) -> str:
    return str(problem)[:200] or type(problem).__name__
