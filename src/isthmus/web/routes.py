"""What a listener answers: requests in, answers out, and which handler each path and method has. Pure.

connection.py makes a Request of what it read, asks `Routes.answer`, and writes the Answer. A path that is not
there gets a 404 that lists the routes, another method a 405 with Allow; HEAD goes to the handler of GET. The
error pages are JSON objects with `error`, in the form that the listener's clients know: text, or an object
with a code, or OpenAI's. Handlers are plain coroutines; a Problem that they raise is an answer, and anything
else becomes a 500 in connection.py, with nothing of the exception in it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from isthmus.errors import IsthmusError

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


EVENT_STREAM: Final = "text/event-stream"

Pairs = tuple[tuple[str, str], ...]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A whole request. `query` has the decoded pairs in order, `headers` lower-case names, `params` what the
    route's `{name}` segments stand for, decoded. `arrived_s` is the loop's time when its first byte came;
    `peer` is the client's address."""

    method: str
    path: str
    query: Pairs = ()
    headers: Pairs = ()
    hosts: tuple[str, ...] = ()
    body: bytes = b""
    params: Pairs = ()
    arrived_s: float = 0.0
    peer: str = ""

    def header(self, name: str) -> str:
        """The first value of header `name` (lower case), or empty."""
        return next((value for key, value in self.headers if key == name), "")

    def argument(self, name: str) -> str | None:
        """The first value of query parameter `name`; None where it is not there."""
        return next((value for key, value in self.query if key == name), None)

    def param(self, name: str) -> str:
        """What the path has at `{name}`. Raises KeyError for a name that the route does not have."""
        return dict(self.params)[name]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. A `body` that is an async generator is sent piece by piece, with back-pressure.

    Its first piece is waited for before the status line leaves, so that a failure up to there is a 500. A
    failure after that aborts the connection: the client cannot take half an answer for a whole one. It is
    closed (`aclose`) whatever happens, at the latest when the client has gone. `close` ends the connection.
    `headers` are pairs where a name may be there more than once; with a Content-Length among them a streamed
    body is sent without chunks.
    """

    status: int = 200
    body: bytes | AsyncGenerator[bytes, None] = b""
    content_type: str = JSON
    headers: Mapping[str, str] | Pairs = {}
    close: bool = False


class Problem(IsthmusError):
    """Raised by a handler, or by a body before its first piece: `answer` is sent instead, and nothing
    logged."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"answered {answer.status}")
        self.answer = answer


Handler = Callable[[Request], Awaitable[Answer]]


class Route(msgspec.Struct, frozen=True):
    """One path and the handler of each of its methods. `GET` brings `HEAD` with it. A segment `{name}` of the
    path stands for any text without a slash."""

    path: str
    handlers: Mapping[str, Handler]

    @property
    def allow(self) -> str:
        """The value of an Allow header."""
        return ", ".join(sorted({*self.handlers, "HEAD"} if "GET" in self.handlers else self.handlers))


def get(path: str, handler: Handler) -> Route:
    """A route that answers GET and HEAD."""
    return Route(path, {"GET": handler})


class ErrorPage(Protocol):
    """Makes the answer for a request that went wrong, in the form that a listener's clients know."""

    def __call__(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Answer:
        """`more`: what else the client is told, by name."""


def error(status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> Answer:
    """A JSON error page: `{"error": message, ...more}`."""
    return Answer(status=status, body=json_body({"error": message, **more}), headers=headers or {})


def coded_error(
    status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> Answer:
    """`{"error": {"code": ..., "message": ...}}`; without a `code`, it is the status' name in snake case."""
    body = {"code": _code(status), "message": message, **more}
    return Answer(status=status, body=json_body({"error": body}), headers=headers or {})


def openai_error(
    status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: Any
) -> Answer:
    """An error as clients of OpenAI's API know it: message, type, param and code."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    body = {"message": message, "type": kind, "param": None, "code": _code(status), **more}
    return Answer(status=status, body=json_body({"error": body}), headers=headers or {})


def _code(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace("-", "_").replace(" ", "_")


def json_body(value: Any) -> bytes:
    """`value` as JSON with a newline at its end, for people with curl."""
    return msgspec.json.encode(value) + b"\n"


class Routes:
    """The routes of one listener. `loopback_only`: the Host of a request must name loopback, so that a web
    page cannot reach it through a name of its own that resolves to 127.0.0.1. `page` makes its error
    pages."""

    def __init__(
        self, routes: Iterable[Route], *, loopback_only: bool = False, page: ErrorPage = error
    ) -> None:
        routes = tuple(routes)
        self._routes = {route.path: route for route in routes}
        self._patterns = [(route.path.split("/"), route) for route in routes if "{" in route.path]
        self._loopback_only = loopback_only
        self.page = page

    async def answer(self, request: Request) -> Answer:
        """The answer of the handler that `request` is for, or an error page. Raises what the handler
        raises."""
        if self._loopback_only and not is_loopback(request.hosts):
            return self.page(
                403, "the Host header must name loopback: use 127.0.0.1, localhost or [::1] with any port"
            )
        route = self._routes.get(request.path)
        if route is None or "{" in route.path:
            route, params = self._match(request.path)
            if route is None:
                return self.page(404, "there is nothing at this path", routes=sorted(self._routes))
            request = replace(request, params=params)
        method = "GET" if request.method == "HEAD" else request.method
        handler = route.handlers.get(method)
        if handler is None:
            return self.page(405, f"allowed here: {route.allow}", headers={"Allow": route.allow})
        return await handler(request)

    def _match(self, path: str) -> tuple[Route | None, Pairs]:
        """The route with `{name}` segments that fits, and what they stand for. A slash that came encoded in a
        segment fits none."""
        segments = path.split("/")
        for pattern, route in self._patterns:
            if len(pattern) == len(segments) and all(
                wanted.startswith("{") or wanted == segment
                for wanted, segment in zip(pattern, segments, strict=True)
            ):
                pairs = zip(pattern, segments, strict=True)
                return route, tuple((key[1:-1], value) for key, value in pairs if key.startswith("{"))
        return None, ()


def is_loopback(hosts: tuple[str, ...]) -> bool:
    """Whether there is a host at all and each is 127.0.0.1, localhost or [::1], with or without a port."""
    return bool(hosts) and all(_without_port(host) in LOOPBACK_NAMES for host in hosts)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if colon and "]" not in port:
        host = name
    return host.lower()
