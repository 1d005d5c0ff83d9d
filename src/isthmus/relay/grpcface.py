"""The relay over gRPC: `dynamo.kvrelay.v1.KvEventRelay` and `grpc.health.v1` (RL-4, RL-6 to RL-16).

app.py makes one where grpcio is installed (`isthmus[grpc]`); split.py leads its connections here. Messages
are bytes that plan/messages.py makes, so nothing is generated. Each stream sends the present whole state,
then each newer one, and the newest again where there was none for ten seconds. Errors carry the trailer of
RL-12.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from isthmus import logs
from isthmus.clock import Clock
from isthmus.relay.plan import messages
from isthmus.relay.plan.messages import Asked, Refused, Speaker, number_of
from isthmus.relay.planes import Plane, TooMany
from isthmus.relay.view import View

log = logs.get(__name__)

MAX_MESSAGE_BYTES: Final = 8 << 20
HEARTBEAT_S: Final = 10.0
PROGRESS_S: Final = 60.0
"""How long a reader may take for one state."""
STREAMS: Final = 6 * 64
GRACE_S: Final = 1.0
REASON: Final = "kv-relay-error-reason"
HEALTH: Final = "grpc.health.v1.Health"
OPTIONS: Final = (
    ("grpc.max_receive_message_length", 1 << 16),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", STREAMS),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.so_reuseport", 0),
)
CODES: Final = {
    "CONTRACT_MISMATCH": grpc.StatusCode.FAILED_PRECONDITION,
    "INVALID_REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "UNSUPPORTED_FEATURE": grpc.StatusCode.FAILED_PRECONDITION,
    "POOL_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "RESOURCE_LIMIT": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "SNAPSHOT_PROGRESS_TIMEOUT": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "PUBLICATION_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
}
"""The reasons of RL-12 that this relay gives, and their codes."""

Context = grpc.aio.ServicerContext[bytes, bytes]
Unary = Callable[[bytes, Context], Awaitable[bytes]]
Stream = Callable[[bytes, Context], Awaitable[None]]


class GrpcFace:
    """See the module. `serving` says whether the relay is ready. Make it on the loop that runs it."""

    def __init__(self, view: View, clock: Clock, serving: Callable[[], bool]) -> None:
        options = view.options
        self._view = view
        self._clock = clock
        self._serving = serving
        self._speaker = Speaker(
            instance=number_of(options.instance),
            incarnation=number_of(options.incarnation),
            cluster=number_of(options.cluster_id),
        )
        self.path = f"\0isthmus-relay-{secrets.token_hex(8)}"
        self._pool_loads = Plane("pool load")
        self._server = grpc.aio.server(options=OPTIONS)
        self._server.add_generic_rpc_handlers((self._relay(), self._health()))

    async def serve(self) -> None:
        """Answer on `path`."""
        self._server.add_insecure_port(f"unix-abstract:{self.path[1:]}")
        await self._server.start()

    async def stop(self) -> None:
        """End all streams; those that do not end by themselves are cut."""
        self._pool_loads.close()
        await self._server.stop(GRACE_S)

    def _relay(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        view = self._view
        streams: dict[str, Stream] = {
            "WatchKvPoolCatalog": self._stream(view.catalog, self._catalog),
            "SubscribeServingReadiness": self._stream(view.readiness, self._readiness),
            "SubscribeServingLoad": self._stream(view.load, self._load),
            "SubscribeKvPoolLoad": self._stream(view.load, self._pool_load, counted=self._pool_loads),
            "SubscribeKvPool": self._filter,
        }
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_stream_rpc_method_handler(handler) for name, handler in streams.items()
        }
        handlers["GetRelayInfo"] = grpc.unary_unary_rpc_method_handler(self._info)
        return grpc.method_handlers_generic_handler(messages.SERVICE, handlers)

    async def _info(self, request: bytes, context: Context) -> bytes:
        await self._read(request, context, named=False)
        return messages.relay_info(self._speaker)

    def _stream(
        self, plane: Plane, message: Callable[[Plane], bytes], *, counted: Plane | None = None
    ) -> Stream:
        async def stream(request: bytes, context: Context) -> None:
            await self._read(request, context, named=True)
            try:
                with (counted or plane).subscribed():
                    await self._send(plane, message, context)
            except TooMany as problem:
                await _abort(context, "RESOURCE_LIMIT", str(problem))

        return stream

    async def _send(self, plane: Plane, message: Callable[[Plane], bytes], context: Context) -> None:
        """Every newer state, and the same again after HEARTBEAT_S; until the relay stops."""
        if plane.facts is None:
            await _abort(context, "PUBLICATION_UNAVAILABLE", "this relay has not seen its pool yet")
        while not plane.closed:
            revision = plane.revision
            try:
                async with asyncio.timeout(PROGRESS_S):
                    await context.write(message(plane))
            except TimeoutError:
                await _abort(context, "SNAPSHOT_PROGRESS_TIMEOUT", f"nothing was read for {PROGRESS_S:g} s")
            await plane.newer(revision, self._clock, HEARTBEAT_S)

    async def _filter(self, request: bytes, context: Context) -> None:
        asked = await self._read(request, context, named=True)
        facts = self._view.facts
        if not asked.pool:
            await _abort(context, "INVALID_REQUEST", "expected_producer is missing")
        if facts is None or not messages.knows(self._speaker, asked.pool, facts):
            await _abort(context, "POOL_NOT_FOUND", "the catalogue has no such pool")
        await _abort(context, "UNSUPPORTED_FEATURE", "this relay has no KV events")

    async def _read(self, request: bytes, context: Context, *, named: bool) -> Asked:
        try:
            return messages.read_request(request, named=named)
        except Refused as problem:
            await _abort(context, problem.reason, str(problem))
            raise

    def _catalog(self, plane: Plane) -> bytes:
        assert plane.facts is not None
        return messages.catalog(self._speaker, plane.revision, plane.facts)

    def _readiness(self, plane: Plane) -> bytes:
        assert plane.facts is not None
        return messages.readiness(self._speaker, plane.revision, plane.facts)

    def _load(self, plane: Plane) -> bytes:
        assert plane.facts is not None
        now, age_s = self._clock.now(), self._clock.monotonic() - plane.facts.load_at
        times = (_ms(now), _ms(now - age_s))
        return messages.serving_load(self._speaker, plane.revision, plane.facts, self._view.totals, times)

    def _pool_load(self, plane: Plane) -> bytes:
        return messages.pool_load(self._speaker, plane.revision, _ms(self._clock.now()))

    # Health: RL-4. SERVING is 1, NOT_SERVING 2; the name of no service stands for the whole server.

    def _health(self) -> grpc.GenericRpcHandler[bytes, bytes]:
        return grpc.method_handlers_generic_handler(
            HEALTH,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch_health),
            },
        )

    async def _check(self, request: bytes, context: Context) -> bytes:
        if messages.health_service(request) not in ("", messages.SERVICE):
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service here")
        return messages.health(serving=self._serving())

    async def _watch_health(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        if messages.health_service(request) not in ("", messages.SERVICE):
            yield messages.health(serving=None)
            return
        told: bool | None = None
        while not self._pool_loads.closed:
            serving = self._serving()
            if serving != told:
                yield messages.health(serving=serving)
                told = serving
            await self._pool_loads.newer(0, self._clock, 1.0)


async def _abort(context: Context, reason: str, text: str) -> Any:
    """End the call with a reason (RL-12). Does not return."""
    await context.abort(CODES[reason], text, trailing_metadata=((REASON, f"RELAY_ERROR_REASON_{reason}"),))


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
