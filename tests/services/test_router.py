"""The router over real sockets: what is passed on, what is tried again, what is said when nothing helps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from isthmus.api.pools import PoolKey
from isthmus.router.options import Drain
from isthmus.router.plan.breaker import BreakerSettings
from isthmus.router.plan.selector import PolicySettings, PriorityRule
from isthmus.router.proxy import ProxySettings
from isthmus.router.upstream import Timeouts
from tests.support.http import Answered, ask, parse_answers, request_bytes, talk, until
from tests.support.rawhttp import Handler, Request, Wire
from tests.support.routers import MODEL, body, opened, request, routing

SSE = {"Content-Type": "text/event-stream"}
FIRST_POOL = PolicySettings(
    breaker=BreakerSettings(threshold=1000), priorities=(PriorityRule(0, 9, "c0/serving/pool-0"),)
)
TO_FIRST = body(nvext={"agent_hints": {"priority": 1}})
TO_FIRST_STREAMED = body(stream=True, nvext={"agent_hints": {"priority": 1}})


async def _good(_: Request, wire: Wire) -> None:
    await wire.answer({"ok": True}, headers={"Content-Type": "application/json"})


def _status(status: int, **headers: str) -> Handler:
    async def handler(_: Request, wire: Wire) -> None:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        await wire.answer({"said": status}, status=status, headers=given)

    return handler


async def _start_stream(wire: Wire) -> None:
    await wire.send(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )


async def _post(
    port: int, payload: bytes | None = None, *, headers: bytes = b"", path: str = "/v1/chat/completions"
) -> Answered:
    (answer,) = parse_answers(await talk(port, request(payload, headers=headers, path=path)))
    return answer


@pytest.mark.covers("PW-15", "GR-23")
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
)
async def test_body_must_reach_the_pool_byte_for_byte_at_the_same_path(tmp_path: Path, path: str) -> None:
    odd = b'{ "model" : "example/tiny",\t"input":"\\u00e4 \xc3\xa4", "x":1e3 }'
    async with routing(tmp_path, _good) as r:
        answer = await _post(r.port, odd, path=path)
        (seen,) = r.backends[0].requests
    assert (answer.status, answer.json) == (200, {"ok": True})
    assert (seen.method, seen.target, seen.body) == ("POST", path, odd)


@pytest.mark.covers("D-24")
async def test_first_chunk_must_arrive_before_the_last_is_made(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def handler(_: Request, wire: Wire) -> None:
        await _start_stream(wire)
        await wire.chunk(b"data: 1\n\n")
        await go.wait()
        await wire.chunk(b"data: [DONE]\n\n")
        await wire.end_chunked()

    async with routing(tmp_path, handler) as r:
        reader, writer = await opened(r.port, request(body(stream=True)))
        seen = await reader.readuntil(b"data: 1\n\n")
        assert b"text/event-stream" in seen
        go.set()
        rest = await reader.read()
        writer.close()
    assert b"data: [DONE]\n\n" in rest
    assert rest.endswith(b"0\r\n\r\n")


async def test_models_must_be_the_union_over_pools_with_aliases(tmp_path: Path) -> None:
    async with routing(tmp_path, _good, _good) as r:
        names = [each["id"] for each in (await ask(r.port, target="/v1/models")).json["data"]]
        pools = (await ask(r.port, target="/pools?model=tiny")).json["pools"]
    assert names == [MODEL, "tiny"]
    assert [each["name"] for each in pools] == ["pool-0", "pool-1"]


@pytest.mark.covers("D-21", "D-22", "D-26", "GR-25")
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request(headers=b"X-Dynamo-Global-Router-Hop: 1\r\n"), 508),
        (request(b"{"), 400),
        (request(b"{}"), 400),
        (request(b'{"model":7}'), 400),
        (request(b'{"model":""}'), 400),
        (request(b'{"model":"nobody/has"}'), 404),
        (request(headers=b"Content-Encoding: gzip\r\n"), 415),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Length: %d\r\n\r\n" % ((16 << 20) + 1),
            413,
        ),
        (request_bytes("GET", "/v1/chat/completions"), 405),
        (request_bytes("GET", "/nowhere"), 404),
    ],
)
async def test_request_that_no_pool_should_see_must_be_refused_as_openai_does(
    tmp_path: Path, raw: bytes, status: int
) -> None:
    async with routing(tmp_path, _good) as r:
        (answer,) = parse_answers(await talk(r.port, raw))
        assert r.backends[0].requests == []
    assert answer.status == status
    assert {"message", "type", "param", "code"} <= answer.json["error"].keys()


@pytest.mark.covers("D-26")
async def test_model_whose_pools_are_all_unreachable_must_be_503_once_they_rest(tmp_path: Path) -> None:
    policy = PolicySettings(breaker=BreakerSettings(threshold=1, first_s=600.0, longest_s=600.0))
    async with routing(tmp_path, _good, policy=policy) as r:
        await r.backends[0].__aexit__()
        first, second = await _post(r.port), await _post(r.port)
        ready = await ask(r.port, target="/readyz")
    assert (first.status, second.status, ready.status) == (502, 503, 503)
    assert "circuit breaker is open" in second.json["error"]["reasons"][0]


@pytest.mark.covers("PW-18", "R46")
@pytest.mark.parametrize("how", ["refuse", "status", "headers only", "silence", "garbage", "close"])
async def test_try_without_an_answer_must_be_followed_by_another_pool(tmp_path: Path, how: str) -> None:
    async def bad(_: Request, wire: Wire) -> None:
        if how == "status":
            await wire.answer(b"no", status=503, headers={"Retry-After": "9"})
        elif how == "headers only":
            await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
            wire.close()
        elif how == "silence":
            await asyncio.Event().wait()
        elif how == "garbage":
            await wire.send(b"what?\r\n\r\n")
        else:
            wire.close()

    timeouts = Timeouts(connect_s=1.0, first_byte_s=0.2, between_s=1.0, total_s=10.0)
    async with routing(tmp_path, bad, _good, policy=FIRST_POOL, timeouts=timeouts) as r:
        if how == "refuse":
            await r.backends[0].__aexit__()
        answer = await _post(r.port, TO_FIRST)
        assert (answer.status, answer.json) == (200, {"ok": True})
        assert len(r.backends[1].requests) == 1
        assert r.in_flight() == 0
        assert (
            sum(r.value("gr_attempts_total", pool="c1/serving/pool-1", result=each) for each in ("ok",)) == 1
        )


@pytest.mark.covers("PW-18", "GR-17", "D-7")
async def test_last_failure_must_be_the_answer_where_all_pools_fail(tmp_path: Path) -> None:
    async with routing(tmp_path, _status(502), _status(503), policy=FIRST_POOL) as r:
        answer = await _post(r.port, TO_FIRST)
    assert (answer.status, answer.json) == (503, {"said": 503})


@pytest.mark.covers("PW-18")
@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 500, 501])
async def test_other_errors_of_a_pool_must_be_passed_on_and_never_tried_elsewhere(
    tmp_path: Path, status: int
) -> None:
    async with routing(tmp_path, _status(status, retry_after="9"), _good, policy=FIRST_POOL) as r:
        answer = await _post(r.port, TO_FIRST)
        assert r.backends[1].requests == []
    assert (answer.status, answer.json) == (status, {"said": status})
    assert answer.headers["retry-after"] == "9"


@pytest.mark.covers("PW-18")
async def test_pools_must_be_tried_no_more_often_than_allowed(tmp_path: Path) -> None:
    bad = _status(503)
    async with routing(tmp_path, bad, bad, bad, bad, proxy=ProxySettings(attempts=2, total_s=10.0)) as r:
        assert (await _post(r.port)).status == 503
        assert sum(len(backend.requests) for backend in r.backends) == 2


@pytest.mark.covers("PW-18")
async def test_retries_must_keep_to_their_budget(tmp_path: Path) -> None:
    changes = {"retry_share": 0.0, "retry_floor_per_s": 0.0}
    async with routing(tmp_path, _status(503), _good, policy=FIRST_POOL, **changes) as r:
        answers = [(await _post(r.port, TO_FIRST)).status for _ in range(3)]
        assert r.value("gr_retries_over_budget_total") == 2
    assert answers == [200, 503, 503]


@pytest.mark.covers("R46", "PW-19")
@pytest.mark.parametrize("streamed", [True, False])
async def test_answer_that_breaks_off_must_never_be_tried_again_or_look_whole(
    tmp_path: Path, streamed: bool
) -> None:
    async def dies(_: Request, wire: Wire) -> None:
        if streamed:
            await _start_stream(wire)
        else:
            await wire.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
        for number in range(5):
            await wire.chunk(b"data: %d\n\n" % number)
        wire.reset()

    async with routing(tmp_path, dies, _good, policy=FIRST_POOL) as r:
        raw = await talk(r.port, request(TO_FIRST_STREAMED))
        assert r.backends[1].requests == []
        await until(lambda: r.in_flight() == 0)
        assert r.value("gr_broken_answers_total", pool="c0/serving/pool-0") == 1
    assert not raw.endswith(b"0\r\n\r\n")
    assert b"[DONE]" not in raw
    assert (b'"stream_broken"' in raw) is streamed


@pytest.mark.covers("R50")
async def test_only_the_winners_headers_must_reach_the_client(tmp_path: Path) -> None:
    async def bad(_: Request, wire: Wire) -> None:
        headers = {"X-Request-Id": "A", "Retry-After": "9", "Set-Cookie": "a=1", "Content-Encoding": "gzip"}
        await wire.answer(b"no", status=503, headers=headers)

    async with routing(tmp_path, bad, _status(200, x_request_id="B"), policy=FIRST_POOL) as r:
        answer = await _post(r.port, TO_FIRST, headers=b"X-Request-Id: mine\r\n")
        ids = [backend.requests[0].headers["x-request-id"] for backend in r.backends]
    assert answer.headers["x-request-id"] == "mine"
    assert ids == ["mine", "mine"]
    assert not {"retry-after", "set-cookie", "content-encoding"} & answer.headers.keys()
    assert answer.headers["x-dynamo-pool-id"] == PoolKey("c1", "serving", "pool-1").pool_id


@pytest.mark.covers("R55", "D-25", "GR-23")
async def test_headers_must_pass_by_a_list_in_both_directions(tmp_path: Path) -> None:
    async def handler(_: Request, wire: Wire) -> None:
        headers = {
            "Content-Type": "application/json", "Cache-Control": "private", "Keep-Alive": "timeout=5",
            "Upgrade": "h2c", "Trailer": "X-T", "Proxy-Authenticate": "Basic", "Set-Cookie": "a=1",
            "X-Internal": "secret", "X-RateLimit-Remaining": "3", "OpenAI-Version": "v",
        }  # fmt: skip
        await wire.answer({}, headers=headers)

    sent = (
        b"Authorization: Bearer k\r\nCookie: a=1\r\nTE: trailers\r\nKEEP-ALIVE: 1\r\nUpgrade: h2c\r\n"
        b"Proxy-Authorization: Basic x\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=1\r\n"
        b"Accept: application/json\r\nUser-Agent: me\r\nAccept-Encoding: gzip\r\nX-Custom: 1\r\n"
        b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: a=b\r\n"
    )
    async with routing(tmp_path, handler) as r:
        answer = await _post(r.port, headers=sent)
        seen = r.backends[0].requests[0].headers
    assert set(seen) - {"host", "content-length"} == {
        "accept", "user-agent", "accept-encoding", "content-type", "x-request-id", "traceparent",
        "tracestate", "x-forwarded-for", "x-dynamo-global-router-hop",
    }  # fmt: skip
    assert seen["x-forwarded-for"] == "127.0.0.1"
    assert seen["traceparent"] == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert answer.headers["x-ratelimit-remaining"] == "3"
    assert answer.headers["cache-control"] == "private"
    leaked = {"keep-alive", "upgrade", "trailer", "proxy-authenticate", "set-cookie", "x-internal"}
    assert not leaked & answer.headers.keys()


async def test_credential_must_go_on_only_where_that_is_asked_for(tmp_path: Path) -> None:
    async with routing(tmp_path, _good, proxy=ProxySettings(authorization=True, total_s=10.0)) as r:
        await _post(r.port, headers=b"Authorization: Bearer k\r\n")
        assert r.backends[0].requests[0].headers["authorization"] == "Bearer k"


async def test_trace_must_be_begun_where_the_client_has_none(tmp_path: Path) -> None:
    async with routing(tmp_path, _good) as r:
        await _post(r.port, headers=b"traceparent: 00-zz\r\n")
        trace = r.backends[0].requests[0].headers["traceparent"].split("-")
    assert [len(part) for part in trace] == [2, 32, 16, 2]


@pytest.mark.covers("D-23")
async def test_redirect_must_be_502_without_its_location(tmp_path: Path) -> None:
    async with routing(tmp_path, _status(307, location="http://127.0.0.1:1/steal")) as r:
        answer = await _post(r.port)
        assert len(r.backends[0].requests) == 1
    assert answer.status == 502
    assert "location" not in answer.headers
    assert "steal" not in str(answer.json)


@pytest.mark.covers("R48")
@pytest.mark.parametrize("how", ["first byte", "between", "total"])
async def test_each_limit_of_time_must_fire_by_itself(tmp_path: Path, how: str) -> None:
    async def handler(_: Request, wire: Wire) -> None:
        if how == "first byte":
            await asyncio.Event().wait()
        await _start_stream(wire)
        while True:
            await wire.chunk(b"data: 1\n\n")
            await asyncio.sleep(0.02 if how == "total" else 1000)

    short = {"first byte": "first_byte_s", "between": "between_s", "total": "total_s"}[how]
    limits = {"connect_s": 0.1, "first_byte_s": 10.0, "between_s": 10.0, "total_s": 10.0} | {short: 0.3}
    proxy = ProxySettings(total_s=limits["total_s"])
    async with routing(tmp_path, handler, timeouts=Timeouts(**limits), proxy=proxy) as r:
        loop = asyncio.get_running_loop()
        start = loop.time()
        raw = await talk(r.port, request(body(stream=True)))
        assert 0.25 < loop.time() - start < 3.0
        await until(lambda: r.in_flight() == 0)
        await until(lambda: r.value("gr_attempts_total", pool="c0/serving/pool-0", result="timeout") == 1)
    if how == "first byte":
        (answer,) = parse_answers(raw)
        assert (answer.status, answer.json["error"]["type"]) == (504, "server_error")
    else:
        assert b'"stream_broken"' in raw
        assert not raw.endswith(b"0\r\n\r\n")


@pytest.mark.covers("R45")
@pytest.mark.parametrize("streamed", [True, False])
async def test_client_that_goes_must_end_its_try_at_once(tmp_path: Path, streamed: bool) -> None:
    gone = asyncio.Event()

    async def handler(_: Request, wire: Wire) -> None:
        try:
            if streamed:
                await _start_stream(wire)
                for number in range(3):
                    await wire.chunk(b"data: %d\n\n" % number)
            await wire.reader.read(1)
        finally:
            gone.set()

    async with routing(tmp_path, handler) as r:
        reader, writer = await opened(r.port, request(body(stream=streamed), last=False))
        if streamed:
            await reader.readuntil(b"data: 2\n\n")
        else:
            await until(lambda: len(r.backends[0].requests) == 1)
        writer.transport.abort()
        async with asyncio.timeout(1.5):
            await gone.wait()
        await until(lambda: r.in_flight() == 0 and r.router.proxy.running == 0)
        assert r.value("gr_client_aborts_total") == 1


@pytest.mark.covers("R45")
async def test_client_that_only_closed_its_sending_side_must_get_its_answer(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def handler(_: Request, wire: Wire) -> None:
        await go.wait()
        await wire.answer({"late": True})

    async with routing(tmp_path, handler) as r:
        reader, writer = await opened(r.port, request(last=False))
        await until(lambda: len(r.backends[0].requests) == 1)
        writer.write_eof()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 102")
        go.set()
        raw = await reader.read()
        writer.close()
    assert raw.endswith(b'{"late": true}')


@pytest.mark.covers("R51")
async def test_kept_connection_that_died_must_be_replaced_once_without_the_client_knowing(
    tmp_path: Path,
) -> None:
    answered = 0

    async def handler(request: Request, wire: Wire) -> None:
        nonlocal answered
        if request.connection == 1 and answered:
            wire.reset()  # as it is reused
            return
        answered += 1
        await wire.answer({"n": answered})

    async with routing(tmp_path, handler) as r:
        first, second = await _post(r.port), await _post(r.port)
        assert r.backends[0].connections == 2
    assert (first.json, second.json) == ({"n": 1}, {"n": 2})


@pytest.mark.covers("R51")
async def test_fresh_connection_that_dies_must_not_be_replaced(tmp_path: Path) -> None:
    async def handler(_: Request, wire: Wire) -> None:
        wire.reset()

    async with routing(tmp_path, handler) as r:
        assert (await _post(r.port)).status == 502
        assert r.backends[0].connections == 1


@pytest.mark.covers("R56")
async def test_pool_that_leaves_must_finish_what_it_runs_and_get_nothing_new(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def handler(_: Request, wire: Wire) -> None:
        await _start_stream(wire)
        await wire.chunk(b"data: 1\n\n")
        await go.wait()
        await wire.chunk(b"data: [DONE]\n\n")
        await wire.end_chunked()

    async with routing(tmp_path, handler) as r:
        reader, writer = await opened(r.port, request(body(stream=True)))
        await reader.readuntil(b"data: 1\n\n")
        r.file.write_text('{"pools": []}')
        await until(lambda: not r.router.directory.pools)
        assert (await _post(r.port)).status == 404
        go.set()
        assert (await reader.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        writer.close()


@pytest.mark.covers("R56")
async def test_router_that_ends_must_let_streams_finish_and_say_that_it_is_not_ready(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def handler(_: Request, wire: Wire) -> None:
        await _start_stream(wire)
        await wire.chunk(b"data: 1\n\n")
        await go.wait()
        await wire.chunk(b"data: [DONE]\n\n")
        await wire.end_chunked()

    async with routing(tmp_path, handler, drain=Drain(delay_s=0.0, timeout_s=10.0)) as r:
        reader, writer = await opened(r.port, request(body(stream=True)))
        await reader.readuntil(b"data: 1\n\n")
        await r.router.drain()
        assert (await ask(r.port, target="/readyz")).status == 503
        stopping = asyncio.create_task(r.router.listeners[0].stop())  # noqa: TID251 - awaited below
        with pytest.raises(OSError, match="Connect call failed"):
            await until_refused(r.port)
        go.set()
        assert (await reader.read()).endswith(b"0\r\n\r\n")
        writer.close()
        await stopping


async def until_refused(port: int) -> None:
    """Connect until that fails, and raise how."""
    while True:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await asyncio.sleep(0.005)


async def test_limit_of_a_pool_must_send_the_next_request_elsewhere(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def held(_: Request, wire: Wire) -> None:
        await go.wait()
        await wire.answer({"pool": 0})

    policy = PolicySettings(limit=1, priorities=FIRST_POOL.priorities)
    async with routing(tmp_path, held, _good, policy=policy) as r:
        first = asyncio.create_task(_post(r.port, TO_FIRST))  # noqa: TID251 - awaited below
        await until(lambda: len(r.backends[0].requests) == 1)
        assert (await _post(r.port, TO_FIRST)).json == {"ok": True}
        go.set()
        assert (await first).json == {"pool": 0}
    assert json.loads(TO_FIRST)["model"] == MODEL
