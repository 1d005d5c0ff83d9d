"""One client's connection: reads requests strictly and in time, has them answered, writes in time, ends.

This is the asyncio protocol of every listener (server.py makes one per connection). What arrives goes through
framing.py; only a whole, unambiguous request gets further. aiohttp is then given a request line of our own,
which makes it run the handler's task and write the response: so no byte of a client's ever reaches its
parser, and it does not matter which of its parsers is in use (R54). Deadlines are one timer per connection,
armed by what the connection waits for, and a second for a reader that does not read (R53). It keeps no list,
binds nothing and knows no route.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, Protocol, cast

from aiohttp import web

from isthmus import logs
from isthmus.web.answers import answer_headers, refusal_bytes
from isthmus.web.framing import Framing, Phase
from isthmus.web.head import Head, Refused
from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, ErrorPage, Problem, Request, error

_log = logs.get(__name__)

_STILL_THERE: Final = b"HTTP/1.1 102 Processing\r\n\r\n"
"""Sent to a client that has closed its sending side and waits for an answer: passed over by one that is
there, and met with a reset by the kernel of one that has gone."""
_ASK_AGAIN_S: Final = 0.5
_NEVER_S: Final = 1e6
"""For aiohttp's own idle timer, whose work is done here."""


class Owner(Protocol):
    """What a connection tells its listener."""

    def opened(self, connection: Connection) -> None:
        """The client is connected."""

    def closed(self, connection: Connection) -> None:
        """The connection is gone and no handler of it runs any more."""

    def hold(self, more_bytes: int) -> bool:
        """So much more (or less) is held of request bodies; whether that is still within the limit."""


class Connection(asyncio.Protocol):
    """See the module. `answer` is asked once per request; what it raises becomes a 500 without a word of
    it. `page` makes the error pages."""

    def __init__(
        self,
        owner: Owner,
        limits: Limits,
        answer: Callable[[Request], Awaitable[Answer]],
        page: ErrorPage = error,
    ) -> None:
        self._owner = owner
        self._limits = limits
        self._answer = answer
        self._page = page
        self._loop = asyncio.get_running_loop()
        self._framing = Framing(limits)
        self._inner = web.Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=_NEVER_S,
            lingering_time=0.0,
        )()
        self._transport: asyncio.Transport | None = None
        self._phase = Phase.IDLE
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._ending = False
        """No further request of this connection is read."""
        self._answering = False
        """Between the dispatch of a request and the end of its answer."""
        self._handlers = 0
        self._held_bytes = 0
        self._arrived_s = 0.0
        self._peer = ""
        self._begun = False
        """The head of the present answer has been written."""

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock for the first request's headers."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_bytes)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self._owner.opened(self)
        self._inner.connection_made(transport)
        self._set_deadline(self._limits.head_s)

    def data_received(self, data: bytes) -> None:
        """Read on; what comes after a refusal or a last request is thrown away."""
        if not self._ending:
            self._advance(lambda: self._framing.feed(data))

    def eof_received(self) -> bool:
        """A client that has hung up gets nothing more: its handler is cancelled, as with Go's server.

        With `half_close` one that waits for an answer still gets it; whether it is there at all is found out
        by a word that HTTP/1.1 lets us send before an answer. Once an answer has begun there is no such word,
        and the client is taken for gone.
        """
        transport = self._transport
        if transport is None or not self._limits.half_close or not self._answering or self._begun:
            return False
        if self._framing.head.minor == 0 or transport.get_extra_info("sslcontext") is not None:
            return False
        self._ending = True
        self._ask_still_there(_ASK_AGAIN_S)
        return True

    def _ask_still_there(self, again_s: float) -> None:
        """Write a word before the answer, and another one later: the first makes a client's kernel that has
        no such connection say so, and the second write hears of it."""
        if self._transport is None or self._begun:
            return
        self._transport.write(_STILL_THERE)
        self._stop_timer()
        self._timer = self._loop.call_later(again_s, self._ask_still_there, 2 * again_s)

    def pause_writing(self) -> None:
        """The write buffer is full: give the reader `write_s` to empty most of it."""
        self._inner.pause_writing()
        self._write_timer = self._loop.call_later(self._limits.write_s, self.abort)

    def resume_writing(self) -> None:
        """The reader has caught up."""
        self._stop_write_timer()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the handler, if one runs, and tell the owner once it has ended."""
        self._transport = None
        self._stop_timer()
        self._stop_write_timer()
        self._owner.hold(-self._held_bytes)
        self._held_bytes = 0
        self._inner.connection_lost(exc)
        if not self._handlers:
            self._owner.closed(self)

    # What the listener calls.

    def drain(self) -> None:
        """End the connection: at once where no handler runs, else with its answer."""
        self._ending = True
        if self._phase is not Phase.READY and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now, whatever is in its buffers; a running handler is cancelled."""
        if self._transport is not None:
            self._transport.abort()

    def _reset(self) -> None:
        """End the connection with a reset: not even an HTTP/1.0 client takes that for the end of an
        answer."""
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    # Reading.

    def _advance(self, move: Callable[[], None]) -> None:
        """Let the framing move, and do what its new phase asks for."""
        before = self._phase
        try:
            move()
        except Refused as refusal:
            self._refuse(refusal.status, str(refusal))
            return
        self._phase = phase = self._framing.phase
        if not self._hold():
            self._refuse(503, "too much is being received at once; try again")
            return
        self._bound_backlog()
        if phase is Phase.READY:
            if not self._answering:
                self._stop_timer()
                self._dispatch(self._framing.head)
        elif phase is Phase.BODY and before is not Phase.BODY:
            self._set_deadline(self._limits.body_s)
            if self._framing.head.wants_continue and self._transport is not None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif phase is Phase.HEAD and before is not Phase.HEAD:
            self._arrived_s = self._loop.time()
            self._set_deadline(min(self._limits.head_s, self._deadline - self._loop.time()))

    def _hold(self) -> bool:
        """Tell the owner how much is held now; whether that is still within its limit."""
        more = self._framing.held_bytes - self._held_bytes
        self._held_bytes += more
        return not more or self._owner.hold(more) or more < 0

    def _bound_backlog(self) -> None:
        """Read no further while enough of later requests is held."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._phase is Phase.READY and self._framing.buffered_bytes > self._limits.head_bytes:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _dispatch(self, head: Head) -> None:
        """Have aiohttp call `_handle` and write what it returns, in the form that this client understands."""
        self._answering = True
        self._begun = False
        method = "HEAD" if head.method == "HEAD" else "GET"
        connection = "close" if head.close else "keep-alive"
        self._inner.data_received(
            f"{method} / HTTP/1.{head.minor}\r\nHost: isthmus\r\nConnection: {connection}\r\n\r\n".encode()
        )

    def _refuse(self, status: int, message: str) -> None:
        """Say why, and end: what the client still sends is thrown away for a moment, so that it can read
        it."""
        self._ending = True
        self._phase = Phase.IDLE
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(refusal_bytes(self._page(status, message)))
        self._transport.write_eof()
        self._transport.resume_reading()
        self._set_deadline(self._limits.linger_s)

    # Answering.

    async def _handle(self, raw: web.BaseRequest) -> web.StreamResponse:
        """aiohttp's handler: the answer to the request that the framing holds."""
        self._handlers += 1
        try:
            return await self._send(raw, await self._ask(self._framing.head))
        finally:
            self._handlers -= 1
            if self._transport is None and not self._handlers:
                self._owner.closed(self)

    async def _ask(self, head: Head) -> Answer:
        request = Request(
            method=head.method,
            path=head.path,
            query=head.query,
            headers=head.headers,
            hosts=head.hosts,
            body=self._framing.body,
            arrived_s=self._arrived_s or self._loop.time(),
            peer=self._peer,
        )
        self._arrived_s = 0.0
        try:
            return await self._answer(request)
        except Exception as failure:
            return self._failure(failure)

    def _failure(self, failure: Exception) -> Answer:
        if isinstance(failure, Problem):
            return failure.answer
        _log.exception("a request failed", path=self._framing.head.path)
        return self._page(500, "this request failed; the log of the process says why")

    async def _send(self, raw: web.BaseRequest, answer: Answer) -> web.StreamResponse:
        response: web.StreamResponse
        headers = answer_headers(answer)
        if isinstance(answer.body, bytes):
            response = web.Response(status=answer.status, body=answer.body, headers=headers)
            with contextlib.suppress(ConnectionError):
                await self._begin(raw, response, answer)
                await self._end(response)
            return response
        async with contextlib.aclosing(answer.body) as pieces:
            first = b""
            if raw.method != "HEAD":
                try:
                    first = await anext(pieces, b"")
                except Exception as failure:
                    return await self._send(raw, self._failure(failure))
            response = web.StreamResponse(status=answer.status, headers=headers)
            with contextlib.suppress(ConnectionError):
                await self._begin(raw, response, answer)
                if raw.method == "HEAD" or await self._stream(response, first, pieces):
                    await self._end(response)
        return response

    async def _stream(
        self, response: web.StreamResponse, first: bytes, pieces: AsyncGenerator[bytes, None]
    ) -> bool:
        """Write every piece; False where making one failed, and the connection is aborted then, so that the
        client cannot take what it has for the whole."""
        await response.write(first)
        try:
            async for piece in pieces:
                await response.write(piece)
        except ConnectionError:
            raise
        except Exception:
            _log.exception("an answer failed midway", path=self._framing.head.path)
            self._reset()
            return False
        return True

    async def _begin(self, raw: web.BaseRequest, response: web.StreamResponse, answer: Answer) -> None:
        if self._ending or answer.close:
            response.force_close()
        self._begun = True
        self._stop_timer()
        await response.prepare(raw)

    async def _end(self, response: web.StreamResponse) -> None:
        """Send the rest, then read the next request or, where this was the last, wait for the close."""
        await response.write_eof()
        if self._ending:
            response.force_close()
        self._answering = False
        if self._transport is None:
            return
        if not response.keep_alive:
            self._ending = True
            self._set_deadline(self._limits.write_s)
            return
        self._set_deadline(self._limits.idle_s)
        self._advance(self._framing.release)

    # Time.

    def _set_deadline(self, seconds: float) -> None:
        self._stop_timer()
        self._deadline = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._deadline, self._late)

    def _late(self) -> None:
        """The deadline of the present phase has passed."""
        if self._ending:
            self.abort()
        elif self._phase is Phase.IDLE:
            self.drain()
            self._set_deadline(self._limits.linger_s)
        else:
            what = "headers" if self._phase is Phase.HEAD else "body"
            self._refuse(408, f"the {what} did not arrive in time")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
