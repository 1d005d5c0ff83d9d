"""The debug port: a loopback listener with the cache and the decisions of the ModelServing controller.

The composition root makes one where `--debug-port` is not 0, calls `bind` before anything else, `serve` on
every replica from the first phase on, and `stop` last. It has no authentication, so it binds to loopback only
and there is no option to bind elsewhere (R30, docs/debug-port.md). It reads through the protocols of
sources.py and holds no lock: a dump that fails or hangs cannot harm a reconcile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from isthmus.debugport.sources import DecisionSource, DumpSource
from isthmus.debugport.stream import Encodes
from isthmus.modelserving.dto import PIECE_BYTES, Decision
from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, Problem, Request, Routes, error, get
from isthmus.web.server import Listener
from isthmus.web.sockets import LOOPBACK, parse_port

FLAG: Final = "--debug-port"
CACHE_PATH: Final = "/debug/modelserving/cache"
DECISIONS_PATH: Final = "/debug/modelserving/decisions"
PARAMETERS: Final = ("namespace", "name")
MAX_ECHO_CHARS: Final = 60
"""How much of an unknown parameter's name is repeated to whom sent it."""
LIMITS: Final = Limits(body_bytes=4096, drain_s=5.0)


def parse_debug_port(value: str | int) -> int:
    """`value` of --debug-port: 0 (off) or a port. Raises UserError."""
    return parse_port(FLAG, value)


class DebugPort:
    """See the module. `port` is a port number; 0 takes a free one (off is the caller's affair)."""

    def __init__(
        self,
        port: int,
        *,
        dump: DumpSource,
        decisions: DecisionSource,
        limits: Limits = LIMITS,
        encodes: Encodes | None = None,
    ) -> None:
        self._dump = dump
        self._decisions = decisions
        self._encodes = encodes or Encodes()
        routes = Routes(
            [get(CACHE_PATH, self._cache), get(DECISIONS_PATH, self._decided)], loopback_only=True
        )
        self._listener = Listener(FLAG, routes, hosts=LOOPBACK, port=port, limits=limits)

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """(address, port) of each socket, once bound."""
        return self._listener.addresses

    def bind(self) -> None:
        """Take the port on 127.0.0.1, and on ::1 where there is one. Raises UserError naming the flag and
        port."""
        self._listener.bind()

    async def serve(self) -> None:
        """Start to answer; returns at once."""
        await self._listener.serve()

    async def stop(self) -> None:
        """Let running dumps end within the drain deadline, cut the others, and free the port."""
        await self._listener.stop()
        self._encodes.close()

    async def _cache(self, request: Request) -> Answer:
        """GET /debug/modelserving/cache (MS-47)."""
        namespace, name = narrowing(request)
        incomplete = self._dump.incomplete()
        if incomplete:
            return error(
                503,
                "the operator is starting: these caches are not complete yet",
                headers={"Retry-After": "1"},
                incomplete=list(incomplete),
            )
        return Answer(body=self._encodes.stream(lambda: self._dump.snapshot().chunks(namespace, name)))

    async def _decided(self, request: Request) -> Answer:
        """GET /debug/modelserving/decisions."""
        namespace, name = narrowing(request)
        return Answer(
            body=self._encodes.stream(lambda: decision_pieces(self._decisions.decisions(namespace, name)))
        )


def narrowing(request: Request) -> tuple[str | None, str | None]:
    """(namespace, name) as asked for, None where not given or empty. Raises a Problem (400) that names what
    is unknown or repeated."""
    keys = [key[:MAX_ECHO_CHARS] for key, _ in request.query]
    unknown = sorted({key for key in keys if key not in PARAMETERS})
    if unknown:
        raise Problem(error(400, "unknown query parameters", unknown=unknown, known=list(PARAMETERS)))
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        raise Problem(error(400, "repeated query parameters", repeated=repeated))
    values = dict(request.query)
    return values.get("namespace") or None, values.get("name") or None


def decision_pieces(decisions: Sequence[Decision]) -> Iterator[bytes]:
    """The JSON document of the decisions route (DecisionDump), in pieces of about PIECE_BYTES.

    `decisions` are oldest first, those of several ModelServings in any mixture.
    """
    buffer = bytearray(b"{")
    last = None
    for decision in sorted(decisions, key=_key):  # stable, so oldest first within each ModelServing
        key = _key(decision)
        if key == last:
            buffer += b","
        else:
            buffer += (b"" if last is None else b"],") + msgspec.json.encode(key) + b":["
            last = key
        buffer += msgspec.json.encode(decision)
        if len(buffer) >= PIECE_BYTES:
            yield bytes(buffer)
            buffer.clear()
    buffer += b"}\n" if last is None else b"]}\n"
    yield bytes(buffer)


def _key(decision: Decision) -> str:
    return f"{decision.namespace}/{decision.name}"
