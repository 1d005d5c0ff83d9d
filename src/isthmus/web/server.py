"""A listener: bound first, served later, stopped with a deadline.

`Listener.bind` is called before anything else of a process starts, so that a port in use or not allowed is an
error message and not half an operator; `serve` accepts; `stop` drains. Every listener of Isthmus (health,
metrics, debug port) is one of these with its own routes and limits. A page of what it keeps to is
docs/debug-port.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from typing import Final

from isthmus import logs
from isthmus.web.answers import Excess
from isthmus.web.connection import Connection
from isthmus.web.limits import Limits
from isthmus.web.routes import Routes
from isthmus.web.sockets import bind
from isthmus.web.tls import RELOAD_S, ServerTls

_log = logs.get(__name__)

LAST_TURNS_S: Final = 1.0
"""How long `stop` waits for cancelled handlers to end; they do so within a turn of the loop unless they are
wrong."""


Accept = Callable[[], asyncio.Protocol]
"""Makes what reads one connection."""


class Listener:
    """`flag` names the listener to people (in errors and logs): the command-line flag that opens it. `front`
    stands before each connection, where a port speaks more than HTTP/1: it is given what makes an HTTP
    connection, and makes what is there first."""

    def __init__(  # noqa: PLR0913 - what a listener is
        self,
        flag: str,
        routes: Routes,
        *,
        hosts: Sequence[str],
        port: int,
        limits: Limits | None = None,
        front: Callable[[Accept], asyncio.Protocol] | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._flag = flag
        self._routes = routes
        self._hosts = tuple(hosts)
        self._port = port
        self._limits = limits or Limits()
        self._front = front
        self._tls = tls
        self._reload: asyncio.TimerHandle | None = None
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._changed = asyncio.Event()
        self.excess = 0
        """Connections turned away since the start because there were too many."""
        self.held_bytes = 0
        """Request bodies in memory now."""

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """(address, port) of each socket, once bound."""
        return tuple((name[0], name[1]) for name in (sock.getsockname() for sock in self._sockets))

    @property
    def connections(self) -> int:
        """Open connections, those turned away not counted."""
        return len(self._connections)

    def bind(self) -> None:
        """Take the addresses. Clients that connect from now on wait for `serve`. Raises UserError as
        `web.sockets.bind` does."""
        self._sockets = bind(self._flag, self._hosts, self._port)

    async def serve(self) -> None:
        """Start to accept, binding first where that has not been done; returns at once."""
        if not self._sockets:
            self.bind()
        loop = asyncio.get_running_loop()
        for sock in self._sockets:
            context = None if self._tls is None else self._tls.context
            timeout_s = None if context is None else self._limits.head_s
            self._servers.append(
                await loop.create_server(self._begin, sock=sock, ssl=context, ssl_handshake_timeout=timeout_s)
            )
        if self._tls is not None:
            self._reload = loop.call_later(RELOAD_S, self._reload_tls, self._tls)
        _log.info("listening", flag=self._flag, addresses=[f"{host} {port}" for host, port in self.addresses])

    async def stop(self) -> None:
        """Accept nothing more, let running answers end within `drain_s`, and cut the others. May be called
        twice, and without `serve`."""
        if self._reload is not None:
            self._reload.cancel()
        for server in self._servers:
            server.close()
        for sock in self._sockets:
            sock.close()
        self._servers, self._sockets = [], []
        for connection in list(self._connections):
            connection.drain()
        if not await self._emptied(self._limits.drain_s):
            _log.warning("answers cut on stop", flag=self._flag, connections=len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await self._emptied(LAST_TURNS_S)
        await asyncio.sleep(0)

    async def _emptied(self, seconds: float) -> bool:
        """Whether every connection has ended within `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._connections:
                    self._changed.clear()
                    await self._changed.wait()
        return not self._connections

    def _reload_tls(self, tls: ServerTls) -> None:
        tls.reload()
        self._reload = asyncio.get_running_loop().call_later(RELOAD_S, self._reload_tls, tls)

    def _begin(self) -> asyncio.Protocol:
        return self._accept() if self._front is None else self._front(self._accept)

    def _accept(self) -> asyncio.Protocol:
        if len(self._connections) >= self._limits.connections:
            self.excess += 1
            return Excess(self._routes.page)
        return Connection(self, self._limits, self._routes.answer, self._routes.page)

    def opened(self, connection: Connection) -> None:
        """See connection.Owner."""
        self._connections.add(connection)

    def closed(self, connection: Connection) -> None:
        """See connection.Owner."""
        self._connections.discard(connection)
        self._changed.set()

    def hold(self, more_bytes: int) -> bool:
        """See connection.Owner."""
        self.held_bytes += more_bytes
        return self.held_bytes <= self._limits.held_bytes
