"""One port for HTTP/1 and gRPC: the first bytes of a connection tell which it is.

The relay's exported Service has one port, so both must be there. An HTTP/2 client begins with a preface that
is no HTTP/1 request; such a connection is carried, byte by byte and with back-pressure, to grpcio, which
listens on an abstract socket of this process; every other is handed to web/ as if nothing had been before it.
Connections that are undecided or carried are bounded and counted here; web/ counts its own.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

from isthmus import logs

log = logs.get(__name__)

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DECIDE_S: Final = 10.0
"""How long a client may take to say what it speaks."""
CONNECTIONS: Final = 256
BUFFER_BYTES: Final = 1 << 16

Accept = Callable[[], asyncio.Protocol]


class Splitter:
    """Give `front` to a Listener. `path` is where gRPC is answered: an abstract socket's name after a zero
    byte, or a file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.open: set[_First | _Pipe] = set()
        self.group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own what opens connections to gRPC, until cancelled. None is carried before."""
        async with asyncio.TaskGroup() as self.group:
            await asyncio.get_running_loop().create_future()

    def front(self, http: Accept) -> asyncio.Protocol:
        """What reads a new connection first; beyond the limit it is HTTP or nothing."""
        if len(self.open) >= CONNECTIONS:
            return http()
        return _First(self, http)

    def stop(self) -> None:
        """End all that is undecided or carried, at once."""
        for each in list(self.open):
            each.abort()


class _First(asyncio.Protocol):
    """A connection of which it is not known yet what it speaks."""

    def __init__(self, owner: Splitter, http: Accept) -> None:
        self._owner = owner
        self._http = http
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._timer: asyncio.TimerHandle | None = None
        self._carrying: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._owner.open.add(self)
        self._timer = self._loop.call_later(DECIDE_S, self.abort)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._carrying is not None or self._transport is None:
            return
        if not self._received.startswith(PREFACE):
            if not PREFACE.startswith(self._received):
                self._hand_over(self._transport)
            return
        self._decided()
        if self._owner.group is None:
            self.abort()
            return
        self._transport.pause_reading()
        self._carrying = self._owner.group.create_task(self._carry(self._transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._decided()
        self._owner.open.discard(self)
        if self._carrying is not None:
            self._carrying.cancel()

    def abort(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _decided(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _hand_over(self, transport: asyncio.Transport) -> None:
        """To web/: it is told of the connection, and of all that came."""
        self._decided()
        self._owner.open.discard(self)
        protocol = self._http()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._received)

    async def _carry(self, client: asyncio.Transport) -> None:
        """To grpcio: two pipes, one for each direction."""
        near = _Pipe(self._owner)
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        try:
            await self._loop.sock_connect(sock, self._owner.path)  # uvloop opens no abstract ones itself
            server, far = await self._loop.create_unix_connection(lambda: _Pipe(self._owner), sock=sock)
        except asyncio.CancelledError:
            sock.close()
            raise
        except OSError as problem:
            sock.close()
            log.warning("gRPC cannot be reached", problem=str(problem))
            self.abort()
            return
        far.join(client)
        near.join(server)
        client.set_protocol(near)
        near.connection_made(client)
        self._owner.open.discard(self)
        server.write(self._received)
        client.resume_reading()


class _Pipe(asyncio.Protocol):
    """One side of a carried connection: what it gets goes to the other side, no faster than that takes it."""

    def __init__(self, owner: Splitter) -> None:
        self._owner = owner
        self._own: asyncio.Transport | None = None
        self._other: asyncio.Transport | None = None

    def join(self, other: asyncio.Transport) -> None:
        """Where everything goes."""
        self._other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._own = cast(asyncio.Transport, transport)
        self._own.set_write_buffer_limits(high=BUFFER_BYTES)
        self._owner.open.add(self)

    def data_received(self, data: bytes) -> None:
        if self._other is not None:
            self._other.write(data)

    def eof_received(self) -> bool:
        if self._other is not None and self._other.can_write_eof():
            self._other.write_eof()
        return True

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None and not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._own = None
        self._owner.open.discard(self)
        if self._other is not None:
            self._other.close()

    def abort(self) -> None:
        """End the connection."""
        if self._own is not None:
            self._own.abort()
