"""How a router reads loads from relays over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from isthmus.api.pools import LoadFrontends, LoadSnapshot, ModelLoad, Pool
from isthmus.clock import SystemClock
from isthmus.router import loads
from isthmus.router.loads import Loads
from isthmus.router.plan.model import RequestFacts
from isthmus.router.plan.selector import Selector
from tests.support.eventually import until
from tests.support.poolfacts import MODEL, pool, selector
from tests.support.ports import free_port
from tests.support.rawhttp import RawServer, Request, Wire
from tests.support.relayfacts import crew
from tests.support.relayrun import Frontend, relaying, serving

PERIOD_S = 0.05


class Relay:
    """A relay that answers what `sample` is, or `body` as it stands."""

    def __init__(self) -> None:
        self.incarnation = "one"
        self.running = 3
        self.status = 200
        self.body: bytes | None = None
        self.stuck = False
        self.server = RawServer(self._answer)

    async def __aenter__(self) -> Relay:
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.__aexit__(*error)

    async def _answer(self, request: Request, wire: Wire) -> None:
        assert request.path == "/v1/load"
        if self.stuck:
            await asyncio.Event().wait()
        entry = ModelLoad(
            model=MODEL,
            awaiting_first_token=1,
            generating=self.running - 1,
            frontends=LoadFrontends(expected=1, observed=1, ready=1),
        )
        sample = LoadSnapshot(
            incarnation=self.incarnation, revision=1, status="complete", age_ms=100, entries=(entry,)
        )
        await wire.answer(msgspec.json.encode(sample) if self.body is None else self.body, self.status)


def with_relays(name: str, *urls: str, incarnation: str = "") -> Pool:
    return pool(name, relay_urls=urls, incarnation=incarnation)


def cost(found: Selector, each: Pool) -> tuple[float, str]:
    """Of a pool for the next request, and on what basis."""
    order = found.choose(RequestFacts(MODEL), SystemClock().monotonic()).order
    return next((ranked.cost, ranked.basis) for ranked in order if ranked.pool_id == each.pool_id)


@asynccontextmanager
async def reading(*pools: Pool) -> AsyncIterator[tuple[Selector, Loads]]:
    found = selector(*pools)
    reader = Loads(found, SystemClock(), period_s=PERIOD_S)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reader.run())
        reader.watch(found.directory.pools)
        yield found, reader
        assert not task.done()
        task.cancel()


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    async with Relay() as found:
        yield found


@pytest.mark.covers("PW-13", "GR-27", "GR-28")
async def test_load_must_be_read_again_and_again_with_its_age(relay: Relay) -> None:
    each = with_relays("a", relay.server.url)
    async with reading(each) as (found, _):
        await until(lambda: cost(found, each) == (3, "request_count"))
        age = found.load_age_s(each.pool_id, MODEL, SystemClock().monotonic())
        assert age is not None
        assert 0.1 <= age < 5
        relay.running = 7
        await until(lambda: cost(found, each) == (7, "request_count"))


@pytest.mark.covers("PW-13")
async def test_load_of_the_true_relay_must_be_understood() -> None:
    async with relaying() as relay, serving(Frontend(load={MODEL: (2, 6)})) as frontend:
        relay.see(frontend.door, crews=(crew(),))
        each = with_relays("a", relay.url)
        async with reading(each) as (found, _):
            await until(lambda: cost(found, each)[1] == "request_count", seen=lambda: cost(found, each))
            assert cost(found, each)[0] > 0


@pytest.mark.covers("GR-28", "GR-29")
@pytest.mark.parametrize(
    "wrong",
    [{"status": 503}, {"body": b"{"}, {"body": b"[" * 100_000}, {"body": b"x" * 3000}, {"stuck": True}],
)
async def test_relay_that_does_not_answer_must_clear_the_load(
    relay: Relay, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "ANSWER_S", 0.2)
    monkeypatch.setattr(loads, "MAX_BYTES", 2000)
    each = with_relays("a", relay.server.url)
    async with reading(each) as (found, _):
        await until(lambda: cost(found, each) == (3, "request_count"))
        for name, value in wrong.items():
            setattr(relay, name, value)
        await until(lambda: cost(found, each) == (0, "own_request_count"))


@pytest.mark.covers("GR-29", "GR-28")
async def test_sample_of_another_run_of_the_relay_must_not_count(relay: Relay) -> None:
    each = with_relays("a", relay.server.url, incarnation="two")
    async with reading(each) as (found, reader):
        await until(lambda: len(relay.server.requests) > 3)
        assert cost(found, each)[1] == "own_request_count"
        relay.incarnation = "two"
        await until(lambda: cost(found, each)[1] == "request_count")
        found.directory.put(with_relays("a", relay.server.url, incarnation="three"))
        reader.watch(found.directory.pools)
        await until(lambda: cost(found, each)[1] == "own_request_count")


async def test_relay_must_be_asked_through_the_proxy_of_the_environment(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", relay.server.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    each = with_relays("a", "http://relay.test:5561/")
    async with reading(each) as (found, _):
        await until(lambda: cost(found, each) == (3, "request_count"))
    assert relay.server.requests[0].target == "http://relay.test:5561/v1/load"


async def test_second_relay_must_be_asked_where_the_first_is_dead(relay: Relay) -> None:
    each = with_relays("a", f"http://127.0.0.1:{free_port()}", relay.server.url)
    async with reading(each) as (found, _):
        await until(lambda: cost(found, each) == (3, "request_count"))


async def test_pool_that_leaves_and_comes_back_must_be_asked_only_while_it_is_there(relay: Relay) -> None:
    each = with_relays("a", relay.server.url)
    async with reading(each, pool("b")) as (found, reader):
        await until(lambda: cost(found, each)[1] == "request_count")
        reader.watch([pool("b")])
        await asyncio.sleep(3 * PERIOD_S)
        asked = len(relay.server.requests)
        await asyncio.sleep(4 * PERIOD_S)
        assert len(relay.server.requests) == asked
        reader.watch([each])
        await until(lambda: len(relay.server.requests) > asked)


async def test_dead_relays_must_not_hold_up_the_living(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "AT_ONCE", 2)
    monkeypatch.setattr(loads, "ANSWER_S", 0.1)
    async with Relay() as dead:
        dead.stuck = True
        live = with_relays("live", relay.server.url)
        stuck = [with_relays(f"dead-{number}", dead.server.url) for number in range(10)]
        async with reading(live, *stuck) as (_, __):
            await until(lambda: len(dead.server.requests) >= 30)
            before = len(relay.server.requests), len(dead.server.requests)
            await asyncio.sleep(1.0)
            living, dying = len(relay.server.requests) - before[0], len(dead.server.requests) - before[1]
        assert living > dying / 10 * 2


async def test_many_relays_must_be_asked_less_often(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads, "PER_S", 10)
    async with reading(*(with_relays(f"p{number}", relay.server.url) for number in range(10))):
        await until(lambda: len(relay.server.requests) >= 5)
        before = len(relay.server.requests)
        await asyncio.sleep(1.0)
        assert 1 <= len(relay.server.requests) - before <= 20  # 200 if each were asked every PERIOD_S


async def test_redirect_of_a_relay_must_not_be_followed(relay: Relay) -> None:
    async def away(_: Request, wire: Wire) -> None:
        await wire.answer({}, 307, {"Location": relay.server.url + "/v1/load"})

    async with RawServer(away) as other:
        each = with_relays("a", other.url)
        async with reading(each):
            await until(lambda: len(other.requests) > 1)
        assert relay.server.requests == []
