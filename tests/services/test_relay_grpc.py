"""The relay's gRPC contract through a real grpcio client, on the port that HTTP is on too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from isthmus.relay.planes import MAX_SUBSCRIBERS
from tests.support.eventually import eventually
from tests.support.http import talk
from tests.support.relayfacts import crew
from tests.support.relaygrpc import MARKER, contract, method
from tests.support.relayrun import Frontend, TestRelay, fetch, relaying, serving

REASON = "kv-relay-error-reason"
STREAMS = {
    "WatchKvPoolCatalog": "KvPoolCatalogUpdate",
    "SubscribeServingReadiness": "ServingReadinessUpdate",
    "SubscribeServingLoad": "ServingLoadUpdate",
    "SubscribeKvPoolLoad": "KvPoolLoadUpdate",
}
LARGE = [("grpc.max_receive_message_length", 8 << 20)]


@pytest.fixture
async def relay() -> AsyncIterator[TestRelay]:
    async with relaying() as found, serving(Frontend()) as frontend:
        found.see(frontend.door)

        async def known() -> None:
            assert found.view.facts is not None

        await eventually(known)
        yield found


@pytest.fixture
async def channel(relay: TestRelay) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(relay.target, options=LARGE) as found:
        yield found


def subscription(**parts: Any) -> Any:
    return contract().Subscription(**({"subscriber_id": "test", "contract_marker": MARKER} | parts))


def stream(channel: Any, name: str, **parts: Any) -> Any:
    return method(channel, name, "Subscription", STREAMS[name])(subscription(**parts))


def reason(error: grpc.aio.AioRpcError) -> str:
    metadata: Any = error.trailing_metadata() or ()
    return str(dict(metadata).get(REASON, ""))


@pytest.mark.covers("RL-5", "RL-6", "RL-7", "RL-8")
async def test_relay_info_must_name_this_run(relay: TestRelay, channel: Any) -> None:
    request = contract().RelayInfoRequest(contract_marker=MARKER)
    info = await method(channel, "GetRelayInfo", "RelayInfoRequest", "RelayInfo")(request)
    assert (info.protocol_version, info.contract_marker) == (1, MARKER)
    assert info.relay.relay_incarnation == int(relay.view.options.incarnation, 16)
    assert (await fetch(f"{relay.url}/v1/relay"))[0] == 200, "HTTP is on the same port"


@pytest.mark.covers("RL-6", "RL-9", "RL-10", "RL-11", "RL-16")
async def test_each_stream_must_begin_with_a_whole_state(relay: TestRelay, channel: Any) -> None:
    for name in STREAMS:
        call = stream(channel, name)
        update = await anext(aiter(call))
        assert (update.protocol_version, update.contract_marker) == (1, MARKER)
        call.cancel()
    catalog = await anext(aiter(stream(channel, "WatchKvPoolCatalog")))
    registrations = catalog.snapshot.pools[0].registrations
    assert [each.canonical_model_id for each in registrations] == ["example/tiny"]

    async def loaded() -> None:
        load = await anext(aiter(stream(channel, "SubscribeServingLoad")))
        assert load.models[0].load.status == 1
        assert load.models[0].load.requests.generating == 2

    await eventually(loaded)


@pytest.mark.covers("RL-9", "RL-10", "RL-14")
async def test_streams_must_follow_changes_and_end_with_the_relay(relay: TestRelay, channel: Any) -> None:
    readiness = aiter(stream(channel, "SubscribeServingReadiness"))
    first = await anext(readiness)
    assert first.entries[0].state == 2
    assert relay.view.roster is not None
    relay.see(*relay.view.roster.doors, crews=(crew("prefill"), crew("decode", ready=0)))
    second = await anext(readiness)
    assert (second.entries[0].state, list(second.entries[0].missing_roles)) == (1, [2])
    assert second.revision > first.revision
    load = aiter(stream(channel, "SubscribeServingLoad"))
    windows = [(await anext(load)).window_sequence for _ in range(3)]
    assert windows == [windows[0], windows[0] + 1, windows[0] + 2]
    relay.view.readiness.close()
    with pytest.raises(StopAsyncIteration):
        await anext(readiness)


@pytest.mark.covers("RL-7", "RL-12")
@pytest.mark.parametrize(
    ("parts", "code", "why"),
    [
        ({"contract_marker": 1}, grpc.StatusCode.FAILED_PRECONDITION, "CONTRACT_MISMATCH"),
        ({"subscriber_id": ""}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        ({"subscriber_id": "x" * 129}, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
    ],
)
async def test_refusal_must_have_its_code_and_reason(
    channel: Any, parts: dict[str, Any], code: grpc.StatusCode, why: str
) -> None:
    for name in STREAMS:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stream(channel, name, **parts)))
        assert (caught.value.code(), reason(caught.value)) == (code, f"RELAY_ERROR_REASON_{why}")


@pytest.mark.covers("RL-12", "RL-17")
async def test_filter_of_a_pool_must_be_an_unsupported_feature(channel: Any) -> None:
    catalog = await anext(aiter(stream(channel, "WatchKvPoolCatalog")))
    producer = catalog.snapshot.pools[0].producer
    subscribe = method(channel, "SubscribeKvPool", "FilterSubscription", "FilterUpdate")

    async def refused(**parts: Any) -> grpc.aio.AioRpcError:
        request = contract().FilterSubscription(subscriber_id="test", contract_marker=MARKER, **parts)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(subscribe(request)))
        return caught.value

    error = await refused(expected_producer=producer)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert reason(error) == "RELAY_ERROR_REASON_UNSUPPORTED_FEATURE"
    producer.pool_id.dc_id += 1
    assert reason(await refused(expected_producer=producer)) == "RELAY_ERROR_REASON_POOL_NOT_FOUND"
    assert reason(await refused()) == "RELAY_ERROR_REASON_INVALID_REQUEST"


@pytest.mark.covers("RL-12", "RL-14")
async def test_subscribers_beyond_the_limit_must_be_told_to_wait(relay: TestRelay, channel: Any) -> None:
    relay.view.catalog.subscribers = MAX_SUBSCRIBERS
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(stream(channel, "WatchKvPoolCatalog")))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reason(caught.value) == "RELAY_ERROR_REASON_RESOURCE_LIMIT"
    await anext(aiter(stream(channel, "SubscribeServingReadiness")))
    relay.view.catalog.subscribers = 0


@pytest.mark.covers("RL-12")
async def test_stream_must_be_unavailable_until_the_pool_has_been_seen() -> None:
    async with relaying() as relay, grpc.aio.insecure_channel(relay.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await anext(aiter(stream(channel, "WatchKvPoolCatalog")))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert reason(caught.value) == "RELAY_ERROR_REASON_PUBLICATION_UNAVAILABLE"
        assert await health(channel, b"") == b"\x08\x02"


@pytest.mark.covers("RL-6")
async def test_method_that_is_not_there_must_be_unimplemented(channel: Any) -> None:
    call = channel.unary_unary("/dynamo.kvrelay.v1.KvEventRelay/Other")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def health(channel: Any, request: bytes) -> bytes:
    raw: bytes = await channel.unary_unary("/grpc.health.v1.Health/Check")(request)
    return raw


@pytest.mark.covers("RL-4")
async def test_health_must_know_the_services_name(channel: Any) -> None:
    name = b"dynamo.kvrelay.v1.KvEventRelay"
    assert await health(channel, b"\x0a" + bytes([len(name)]) + name) == b"\x08\x01"
    assert await health(channel, b"") == b"\x08\x01"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health(channel, b"\x0a\x01x")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_port_must_tell_http_from_grpc_by_the_first_bytes(relay: TestRelay) -> None:
    request = b"GET /v1/relay HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert b" 200 " in (await talk(relay.port, request)).partition(b"\r\n")[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    for byte in request:
        writer.write(bytes([byte]))
        await writer.drain()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    almost = b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"
    assert b" 505 " in (await talk(relay.port, almost)).partition(b"\r\n")[0]


async def test_connections_that_say_nothing_or_go_must_leave_nothing(relay: TestRelay) -> None:
    writers = []
    for sent in (b"", b"P", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
        _, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(sent)
        writers.append(writer)

    async def open_ones(count: int) -> None:
        assert len(relay.splitter.open) >= count if count else not relay.splitter.open

    await eventually(lambda: open_ones(3))
    for writer in writers:
        writer.close()
    await eventually(lambda: open_ones(0))


async def test_many_calls_over_one_channel_must_leave_no_subscriber(relay: TestRelay, channel: Any) -> None:
    async def once(name: str) -> None:
        call = stream(channel, name)
        await anext(aiter(call))
        call.cancel()

    for _ in range(5):
        await asyncio.gather(*(once(name) for name in STREAMS))

    async def none() -> None:
        assert [plane.subscribers for plane in relay.view.planes] == [0, 0, 0]

    await eventually(none)
