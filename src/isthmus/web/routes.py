"""What a listener answers: requests in, answers out, and which handler each path and method has. Pure.

connection.py makes a Request of what it read, asks `Routes.answer`, and writes the Answer. A path that is not
there gets a 404 that lists the routes, another method a 405 with Allow; HEAD goes to the handler of GET. The
error pages are JSON objects with `error`. Handlers are plain coroutines; a Problem that they raise is an
answer, and anything else becomes a 500 in connection.py, with nothing of the exception in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from isthmus.errors import IsthmusError

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A whole request. `query` has the decoded pairs in order, `headers` lower-case names."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    hosts: tuple[str, ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str:
        """The first value of header `name` (lower case), or empty."""
        return next((value for key, value in self.headers if key == name), "")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. A `body` that is an async generator is sent piece by piece, with back-pressure.

    Its first piece is waited for before the status line leaves, so that a failure up to there is a 500. A
    failure after that aborts the connection: the client cannot take half an answer for a whole one. It is
    closed (`aclose`) whatever happens, at the latest when the client has gone. `close` ends the connection.
    """

    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    close: bool = False


class Problem(IsthmusError):
    """Raised by a handler, or by a body before its first piece: `answer` is sent instead, and nothing
    logged."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"answered {answer.status}")
        self.answer = answer


Handler = Callable[[Request], Awaitable[Answer]]


class Route(msgspec.Struct, frozen=True):
    """One exact path and the handler of each of its methods. `GET` brings `HEAD` with it."""

    path: str
    handlers: Mapping[str, Handler]

    @property
    def allow(self) -> str:
        """The value of an Allow header."""
        return ", ".join(sorted({*self.handlers, "HEAD"} if "GET" in self.handlers else self.handlers))


def get(path: str, handler: Handler) -> Route:
    """A route that answers GET and HEAD."""
    return Route(path, {"GET": handler})


def error(status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
    """A JSON error page: `{"error": message, ...more}`."""
    return Answer(status=status, body=json_body({"error": message, **more}), headers=headers or {})


def json_body(value: Any) -> bytes:
    """`value` as JSON with a newline at its end, for people with curl."""
    return msgspec.json.encode(value) + b"\n"


class Routes:
    """The routes of one listener. `loopback_only`: the Host of a request must name loopback, so that a web
    page cannot reach it through a name of its own that resolves to 127.0.0.1."""

    def __init__(self, routes: Iterable[Route], *, loopback_only: bool = False) -> None:
        self._routes = {route.path: route for route in routes}
        self._loopback_only = loopback_only

    async def answer(self, request: Request) -> Answer:
        """The answer of the handler that `request` is for, or an error page. Raises what the handler
        raises."""
        if self._loopback_only and not is_loopback(request.hosts):
            return error(
                403, "the Host header must name loopback: use 127.0.0.1, localhost or [::1] with any port"
            )
        route = self._routes.get(request.path)
        if route is None:
            return error(404, "there is nothing at this path", routes=sorted(self._routes))
        method = "GET" if request.method == "HEAD" else request.method
        handler = route.handlers.get(method)
        if handler is None:
            return error(405, f"allowed here: {route.allow}", headers={"Allow": route.allow})
        return await handler(request)


def is_loopback(hosts: tuple[str, ...]) -> bool:
    """Whether there is a host at all and each is 127.0.0.1, localhost or [::1], with or without a port."""
    return bool(hosts) and all(_without_port(host) in LOOPBACK_NAMES for host in hosts)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if colon and "]" not in port:
        host = name
    return host.lower()
