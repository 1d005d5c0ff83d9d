"""What a retry leaves behind: answers that were held back, headers, and counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from isthmus.api.pools import Location
from isthmus.router.accesslog import AccessLog
from isthmus.router.metrics import Metrics
from isthmus.router.plan.breaker import BreakerSettings
from isthmus.router.plan.budget import RetryBudget
from isthmus.router.plan.selector import PolicySettings, PriorityRule
from isthmus.router.proxy import SMALL_BYTES, Proxy, ProxySettings
from isthmus.router.upstream import Timeouts, Upstream
from isthmus.web.routes import Route
from tests.support.http import parse_answers, talk, until
from tests.support.poolfacts import load
from tests.support.rawhttp import RawServer, Request, Wire
from tests.support.relayrun import serving
from tests.support.routers import MODEL, body, opened, request, routing

FIRST_POOL = PolicySettings(
    breaker=BreakerSettings(threshold=1000), priorities=(PriorityRule(0, 9, "c0/serving/pool-0"),)
)
TO_FIRST = body(nvext={"agent_hints": {"priority": 1}})
ZERO, ONE = "c0/serving/pool-0", "c1/serving/pool-1"


async def _good(_: Request, wire: Wire) -> None:
    await wire.answer({"ok": True}, headers={"Content-Type": "application/json"})


async def _half(_: Request, wire: Wire) -> None:
    await wire.send(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"half"')
    wire.close()


async def _chunked_503(_: Request, wire: Wire) -> None:
    await wire.send(b"HTTP/1.1 503 X\r\nTransfer-Encoding: chunked\r\n\r\n")
    await wire.chunk(b"busy")
    await wire.end_chunked()


@pytest.mark.covers("PW-18", "R46", "PW-20")
@pytest.mark.parametrize(("first", "reason"), [(_half, "broken"), (_chunked_503, "failed")])
async def test_answer_that_was_held_back_must_be_tried_elsewhere_and_counted(
    tmp_path: Path, first: object, reason: str
) -> None:
    async with routing(tmp_path, first, _good, policy=FIRST_POOL) as r:  # type: ignore[arg-type] # a Handler
        (answer,) = parse_answers(await talk(r.port, request(TO_FIRST)))
        assert (answer.status, answer.json) == (200, {"ok": True})
        assert r.value("gr_retries_total", reason=reason) == 1
        assert r.value("gr_attempts_total", pool=ZERO, result=reason) == 1
        assert r.value("gr_attempts_total", pool=ONE, result="ok") == 1
        assert r.value("gr_requests_total", model=MODEL, pool=ONE, code="200") == 1
        assert r.value("gr_request_duration_seconds_count", pool=ONE) == 1
        assert r.value("gr_first_byte_seconds_count", pool=ONE) == 1
        assert (r.in_flight(), r.router.proxy.running) == (0, 0)


@pytest.mark.covers("PW-18", "PW-20")
async def test_first_tries_must_count_as_no_retries(tmp_path: Path) -> None:
    async with routing(tmp_path, _good) as r:
        await talk(r.port, request())
        samples = next(iter(r.router.metrics.retries.collect())).samples
        assert [each.value for each in samples] == []


@pytest.mark.covers("D-24", "GR-24")
async def test_long_answer_of_known_length_must_pass_as_it_comes_with_its_length(tmp_path: Path) -> None:
    go = asyncio.Event()
    size_bytes = 2 * SMALL_BYTES

    async def long(_: Request, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nfirst" % size_bytes)
        await go.wait()
        await wire.send(b"x" * (size_bytes - 5))

    async with routing(tmp_path, long) as r:
        reader, writer = await opened(r.port, request())
        head = await reader.readuntil(b"\r\n\r\n")
        assert f"content-length: {size_bytes}" in head.decode().lower()
        assert await reader.readexactly(5) == b"first"
        go.set()
        assert len(await reader.readexactly(size_bytes - 5)) == size_bytes - 5
        writer.close()
        await until(lambda: r.router.proxy.running == 0)


@pytest.mark.covers("D-26", "PW-20")
async def test_refusals_must_say_their_code_and_be_counted_without_made_up_names(tmp_path: Path) -> None:
    async with routing(tmp_path, _good) as r:
        (missing,) = parse_answers(await talk(r.port, request(body(model="made-up"))))
        assert missing.json["error"]["code"] == "model_not_found"
        assert "reasons" not in missing.json["error"]
        labels = [each.labels for each in next(iter(r.router.metrics.requests.collect())).samples]
        assert all(each["model"] != "made-up" and each["pool"] == "" for each in labels)
        assert labels
        assert r.router.proxy.running == 0


@pytest.mark.covers("GR-24")
async def test_answer_must_tell_of_the_choice_as_far_as_the_pool_is_known(tmp_path: Path) -> None:
    leaving = asyncio.Event()

    async def handler(_: Request, wire: Wire) -> None:
        if leaving.is_set():
            r.router.directory.remove(pool_id)
        await wire.answer({"ok": True})

    async with routing(tmp_path, handler) as r:
        (pool,) = r.router.directory.pools
        pool_id = pool.pool_id
        seen = []
        for location in (Location(), Location(region="eu"), Location(region="eu")):
            r.router.directory.put(replace(pool, location=location))
            (answer,) = parse_answers(await talk(r.port, request()))
            assert answer.status == 200
            assert answer.headers["x-dynamo-pool-id"] == pool_id
            assert "x-dynamo-load-age-ms" not in answer.headers
            seen.append(answer.headers.get("x-dynamo-target-region"))
            if len(seen) == 2:
                leaving.set()
        assert seen == [None, "eu", None]
        leaving.clear()
        r.router.directory.put(pool)
        taken_s = r.router.clock.monotonic() - 2.0
        r.router.selector.set_loads(pool_id, {MODEL: load(4, taken_s=taken_s)})
        (answer,) = parse_answers(await talk(r.port, request()))
        assert 2000 <= int(answer.headers["x-dynamo-load-age-ms"]) < 9000
        assert answer.headers["x-dynamo-routing-basis"] == "request_count"
        assert answer.headers["x-dynamo-routing-cost"] == "4"
        assert r.in_flight() == 0


@pytest.mark.covers("PW-18")
async def test_pools_that_left_meanwhile_must_be_passed_over(tmp_path: Path) -> None:
    async def handler(_: Request, wire: Wire) -> None:
        for pool in r.router.directory.pools[1:]:
            r.router.directory.remove(pool.pool_id)
        await wire.answer({"said": 503}, 503)

    async with routing(tmp_path, handler, _good, _good, policy=FIRST_POOL) as r:
        (answer,) = parse_answers(await talk(r.port, request(TO_FIRST)))
        assert (answer.status, answer.json) == (503, {"said": 503})
        assert [len(each.requests) for each in r.backends] == [1, 0, 0]


@dataclass
class Door:
    """A listener whose requests a proxy passes on."""

    proxy: Proxy
    port: int = 0

    def routes(self) -> list[Route]:
        return [Route("/v1/chat/completions", {"POST": self.proxy.forward})]


async def _status(status: int, wire: Wire) -> None:
    await wire.answer({"said": status}, status)


@pytest.mark.covers("PW-20")
async def test_each_request_must_be_told_with_its_pool_its_times_and_whether_all_was_well(
    tmp_path: Path,
) -> None:
    told: list[tuple[str, float, float, bool]] = []

    async def handler(seen: Request, wire: Wire) -> None:
        what = seen.json["user"]
        if what == "broken":
            await wire.start_chunked()
            await wire.chunk(b"data: 1\n\n")
            await asyncio.sleep(0.05)
            wire.reset()
        elif what == "slow":
            await wire.start_chunked()
            await wire.chunk(b"data: 1\n\n")
            await asyncio.sleep(0.1)
            await wire.end_chunked()
        else:
            await _status(int(what), wire)

    async with routing(tmp_path, handler) as r:
        proxy = Proxy(
            ProxySettings(total_s=30.0),
            r.router.selector,
            r.router.upstream,
            RetryBudget(0.2, 10.0, 0.0),
            Metrics(),
            r.router.clock,
            AccessLog(enabled=False),
            lambda *given: told.append(given),
        )
        async with serving(Door(proxy)) as door:
            for what in ("200", "404", "499", "500", "503", "broken", "slow"):
                await talk(door.port, request(body(user=what)))
            await until(lambda: len(told) == 7)
        (pool,) = r.router.directory.pools
    assert {each[0] for each in told} == {pool.pool_id}
    assert [each[3] for each in told] == [True, True, True, False, False, False, True]
    firsts, wholes = [each[1] for each in told], [each[2] for each in told]
    assert all(0 < first <= whole for first, whole in zip(firsts, wholes, strict=True))
    assert wholes[-1] - firsts[-1] > 0.05


@pytest.mark.covers("R51", "PW-18")
async def test_connection_that_dies_in_the_middle_of_a_head_must_never_be_asked_again(tmp_path: Path) -> None:
    async def handler(_: Request, wire: Wire) -> None:
        if len(r.backends[0].requests) == 1:
            await wire.answer({"ok": True})
            return
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
        wire.close()

    async with routing(tmp_path, handler) as r:
        answers = [parse_answers(await talk(r.port, request()))[0] for _ in range(2)]
        assert [each.status for each in answers] == [200, 502]
        assert [each.connection for each in r.backends[0].requests] == [1, 1]


async def test_pools_must_be_asked_through_the_proxy_of_the_environment() -> None:
    async with RawServer(_good) as server:
        upstream = Upstream(Timeouts(), {"HTTP_PROXY": server.url})
        upstream.open()
        deadline_s = asyncio.get_running_loop().time() + 5.0
        for _ in range(2):
            reply = await upstream.send(
                "http://pool.test:8000", "/v1/completions", headers=[], body=b"{}", deadline_s=deadline_s
            )
            assert await reply.whole() == b'{"ok": true}'
            reply.close()
        await upstream.close()
        assert [each.target for each in server.requests] == ["http://pool.test:8000/v1/completions"] * 2
        assert server.connections == 1


@pytest.mark.covers("R51", "PW-18")
async def test_fresh_connection_that_dies_must_never_be_replaced(tmp_path: Path) -> None:
    async def handler(_: Request, wire: Wire) -> None:
        wire.close()

    async with routing(tmp_path, handler) as r:
        (answer,) = parse_answers(await talk(r.port, request()))
        assert answer.status == 502
        assert len(r.backends[0].requests) == 1


@pytest.mark.covers("GR-25")
@pytest.mark.parametrize(("payload", "param"), [(b"{", None), (b"{}", "model")])
async def test_bad_body_must_be_refused_with_its_field_if_there_is_one(
    tmp_path: Path, payload: bytes, param: str | None
) -> None:
    async with routing(tmp_path, _good) as r:
        (answer,) = parse_answers(await talk(r.port, request(payload)))
        assert (answer.status, answer.json["error"]["param"]) == (400, param)


@pytest.mark.covers("PW-20", "GR-25")
async def test_errors_must_say_when_to_come_again_and_only_answers_have_times(tmp_path: Path) -> None:
    async def handler(_: Request, wire: Wire) -> None:
        wire.close()

    async with routing(tmp_path, handler) as r:
        (failed,) = parse_answers(await talk(r.port, request()))
        (missing,) = parse_answers(await talk(r.port, request(body(model="none"))))
        r.router.directory.put(replace(r.router.directory.pools[0], frontend_urls=()))
        (unready,) = parse_answers(await talk(r.port, request()))
        assert [each.status for each in (failed, missing, unready)] == [502, 404, 503]
        assert ["retry-after" in each.headers for each in (failed, missing, unready)] == [False, False, True]
        assert r.value("gr_first_byte_seconds_count", pool=ZERO) == 0
        assert r.value("gr_request_duration_seconds_count", pool=ZERO) == 1
        assert (
            r.router.metrics.registry.get_sample_value("gr_request_duration_seconds_count", {"pool": ""})
            is None
        )


@pytest.mark.covers("R50")
async def test_answer_with_two_lengths_must_never_be_passed_on(tmp_path: Path) -> None:
    async def handler(_: Request, wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 400000\r\nTransfer-Encoding: chunked\r\n\r\n")
        await wire.chunk(b"short")
        await wire.end_chunked()

    async with routing(tmp_path, handler) as r:
        (answer,) = parse_answers(await talk(r.port, request()))
        assert answer.status == 502
