"""One HTTP exchange with an API server: credentials, TLS, proxy, pool and deadlines; no retry, no meaning.

client.py calls `send` for each attempt and `watch` for each stream, and gets status and bytes, or Unreachable
with whether the request can have left. Writes are put to the gate inside `_Request`, that is after the wait
for a connection and right before the bytes go to the kernel, one write at a time, also where aiohttp itself
sends an idempotent request again on a fresh connection (R15). Redirects are never followed: they would carry
the token elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from isthmus.clock import Clock
from isthmus.kube.answers import error_from
from isthmus.kube.config import ClusterConfig
from isthmus.kube.errors import Unreachable, WriteRefused
from isthmus.kube.gate import WriteGate
from isthmus.kube.metrics import ClientMetrics
from isthmus.kube.stream import WatchStream
from isthmus.kube.tls import TlsSource

CONNECT_S: Final = 10.0
"""Time for TCP and TLS handshakes of one address."""
OPEN_S: Final = 20.0
"""Time until a watch must have answered with its headers."""
POOL: Final = 64
"""Connections for requests at one time; watches have their own, without a limit."""
POOL_IDLE_S: Final = 30.0
"""Below the 90 s after which API servers close an idle connection."""
WATCH_BUFFER_BYTES: Final = 1 << 18
MAX_ERROR_BYTES: Final = 1 << 16
_READS: Final = frozenset(("GET", "HEAD", "CONNECT", "OPTIONS"))


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What came back, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Attempt:
    """Whether the bytes of the request may have left."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = False


_attempt: ContextVar[_Attempt] = ContextVar("attempt")


def _request_class(gate: WriteGate) -> type[aiohttp.ClientRequest]:
    turn = asyncio.Lock()

    class _Request(aiohttp.ClientRequest):
        async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
            if self.method not in _READS and not self.body:
                gate.check()
            _attempt.get().sent = True
            return await super().send(conn)

        async def write_bytes(
            self,
            writer: aiohttp.abc.AbstractStreamWriter,
            conn: aiohttp.connector.Connection,
            content_length: int | None = None,
        ) -> None:
            """Everything of a write that has a body leaves here, one write at a time between the gate and the
            kernel: what a loop that stands still has let through, it would send when it wakes up."""
            if self.method in _READS:
                await super().write_bytes(writer, conn, content_length)
                return
            async with turn:
                try:
                    gate.check()
                except WriteRefused as refused:
                    if conn.protocol is not None:
                        conn.protocol.set_exception(refused)
                    return
                writing = asyncio.ensure_future(  # noqa: TID251 - awaited below
                    super().write_bytes(writer, conn, content_length)
                )
                try:
                    await asyncio.sleep(0)  # it writes to the transport
                    await asyncio.sleep(0)  # which uvloop gives to the kernel at the end of a turn
                except asyncio.CancelledError:
                    writing.cancel()
                    raise
            await writing

    return _Request


class Transport:
    """See the module. Use as an async context manager, on one event loop."""

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str,
        clock: Clock,
        gate: WriteGate,
        metrics: ClientMetrics | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._gate = gate
        self._metrics = metrics
        self._credentials = config.credentials
        self._base = config.server.rstrip("/")
        parts = urlsplit(self._base)
        self._host = parts.netloc
        self._tls = TlsSource(config.tls) if parts.scheme == "https" else None
        self._server_name = config.tls.server_name or None
        self._proxy = URL(config.proxy) if config.proxy else None
        self._headers = [("User-Agent", user_agent), ("Accept-Encoding", "identity"), *config.headers]
        self._sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession] | None = None

    async def __aenter__(self) -> Transport:
        self._sessions = (self._session(POOL), self._session(0))
        return self

    async def __aexit__(self, *_: object) -> None:
        sessions, self._sessions = self._sessions, None
        for session in sessions or ():
            await session.close()

    @property
    def renewable(self) -> bool:
        """Whether a 401 may pass with credentials that are read again."""
        return self._credentials.renewable

    def renew(self) -> None:
        """The credentials were refused: read them again before the next request."""
        self._credentials.renew()

    async def send(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, timeout_s: float
    ) -> Answer:
        """Send once, and read the whole answer. `target` is path and query, encoded.

        Raises Unreachable where no complete answer came, WriteRefused where the gate is closed.
        """
        attempt = _Attempt()
        _attempt.set(attempt)
        try:
            context = await self._prepare(headers)
            async with self._get_sessions()[0].request(
                method,
                URL(self._base + target, encoded=True),
                data=body,
                headers=headers,
                ssl=context if context is not None else True,
                server_hostname=self._server_name,
                proxy=self._proxy,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S),
            ) as response:
                answer = Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._count(0, method)
            raise self._unreachable(f"{method} {target}", error, sent=attempt.sent) from error
        self._count(answer.status, method)
        return answer

    @contextlib.asynccontextmanager
    async def watch(
        self, target: str, headers: dict[str, str], *, lifetime_s: float, idle_s: float | None = None
    ) -> AsyncIterator[WatchStream]:
        """Open a stream that lives at most `lifetime_s` (the server should end it before), and that ends as
        if the server had ended it once it is silent for `idle_s`.

        Raises ApiError where the server refuses, Unreachable where it cannot be reached; the stream raises
        Unreachable when the connection breaks or the time is over.
        """
        _attempt.set(_Attempt())
        what = f"WATCH {target}"
        try:
            context = await self._prepare(headers)
            async with asyncio.timeout(OPEN_S):
                response = await self._get_sessions()[1].get(
                    URL(self._base + target, encoded=True),
                    headers=headers,
                    ssl=context if context is not None else True,
                    server_hostname=self._server_name,
                    proxy=self._proxy,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=lifetime_s, sock_connect=CONNECT_S, sock_read=idle_s),
                    read_bufsize=WATCH_BUFFER_BYTES,
                )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._count(0, "GET")
            raise self._unreachable(what, error, sent=True) from error
        self._count(response.status, "GET")

        async def read() -> bytes:
            try:
                return await response.content.readany()
            except aiohttp.SocketTimeoutError:
                return b""  # silent for too long: quiet, or dead; opening the next watch tells which
            except (aiohttp.ClientError, OSError, TimeoutError, RuntimeError) as error:
                raise self._unreachable(what, error, sent=True) from error

        try:
            if response.status != 200:
                raise await self._refusal(response, what)
            yield WatchStream(read)
        finally:
            response.close()

    async def _refusal(self, response: aiohttp.ClientResponse, what: str) -> Exception:
        try:
            async with asyncio.timeout(CONNECT_S):
                body = await response.content.read(MAX_ERROR_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return self._unreachable(what, error, sent=True)
        return error_from(response.status, body, what, headers=response.headers, now=self._clock.now())

    async def _prepare(self, headers: dict[str, str]) -> ssl.SSLContext | None:
        credentials = self._credentials
        now = self._clock.monotonic()
        authorization = credentials.cached(now)
        if authorization is None:
            authorization = await credentials.refresh(self._clock)
        if authorization:
            headers["Authorization"] = authorization
        if self._tls is None:
            return None
        plugin = credentials.certificate()
        return self._tls.cached(now, plugin) or await self._tls.refresh(self._clock, plugin)

    def _count(self, status: int, method: str) -> None:
        if self._metrics is not None:
            self._metrics.answered(status, method, self._host)

    def _get_sessions(self) -> tuple[aiohttp.ClientSession, aiohttp.ClientSession]:
        if self._sessions is None:
            raise RuntimeError("the client is not open: use `async with`")
        return self._sessions

    def _session(self, limit: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit, keepalive_timeout=POOL_IDLE_S, socket_factory=_keepalive_socket
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            request_class=_request_class(self._gate),
            trust_env=False,
        )

    def _unreachable(self, what: str, error: Exception, *, sent: bool) -> Unreachable:
        if self._tls is not None and _is_tls(error):
            self._tls.renew()
        text = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        return Unreachable(f"{what} at {self._host}: {text}"[:1000], sent=sent)


def _is_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError | ssl.CertificateError | aiohttp.ClientSSLError):
            return True
        error = error.__cause__
    return False


def _keepalive_socket(address: tuple[int, int, int, str, object]) -> socket.socket:
    """A TCP socket whose dead peer is found within 30 s, where the machine can be told so."""
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    return sock
