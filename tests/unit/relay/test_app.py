"""The relay's parts put together: what it watches, and when it is ready."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.endpointslices import ENDPOINT_SLICES
from isthmus.api.entrypods import ENTRY_PODS
from isthmus.kube.client import Client
from isthmus.kube.config import ClusterConfig
from isthmus.relay.app import STALE_S, Relay
from isthmus.relay.plan.heard import answered
from isthmus.relay.plan.model import SERVING, Card
from isthmus.runtime.metrics import Metrics
from isthmus.web.routes import Request, Routes
from tests.support.clock import FakeClock
from tests.support.relayfacts import NAMESPACE, endpoint, options, selection, slice_of

LOOPBACK = ("127.0.0.1",)


def build(**told: Any) -> tuple[Relay, FakeClock]:
    clock = FakeClock()
    told = {"bind": (LOOPBACK, 5561), "system": (LOOPBACK, 8081)} | told
    return Relay(options(**told), Client(ClusterConfig(server="http://127.0.0.1:1")), clock, Metrics()), clock


async def status(relay: Relay, path: str) -> int:
    return (await Routes(relay.system_routes()).answer(Request(method="GET", path=path))).status


@pytest.mark.covers("RL-4")
async def test_relay_must_watch_what_its_pool_is_made_of() -> None:
    graph, _ = build()
    assert graph.pool.watch.resource == ENDPOINT_SLICES
    serving, _ = build(selection=selection(kind=SERVING))
    assert serving.pool.watch.resource == ENTRY_PODS
    assert graph.pool.watch.source == serving.pool.watch.source == NAMESPACE


@pytest.mark.covers("PW-14")
async def test_relay_must_be_ready_once_it_knows_its_pool_and_stay_so() -> None:
    relay, clock = build()
    assert [await status(relay, path) for path in ("/live", "/health")] == [200, 503]
    found = slice_of("Frontend", "frontend", endpoint("10.0.0.1"))
    relay.pool.cache.replace(NAMESPACE, [found], "1")
    relay.view.refresh(clock.monotonic(), window=False)
    assert relay.problem() == "not every frontend has been asked yet"
    relay.view.tell("http://10.0.0.1:8000", lambda heard: answered(heard, (Card("a"),)))
    relay.view.refresh(clock.monotonic(), window=False)
    assert await status(relay, "/health") == 200
    await clock.advance(STALE_S + 1)
    relay.view.refresh(clock.monotonic(), window=False)
    assert relay.view.facts is not None
    assert relay.view.facts.status == "degraded"
    assert [await status(relay, path) for path in ("/live", "/health")] == [200, 200]
    relay.stopping = True
    assert [await status(relay, path) for path in ("/live", "/health")] == [200, 503]


async def test_relay_must_show_its_figures() -> None:
    relay, clock = build()
    found = slice_of("Frontend", "frontend", endpoint("10.0.0.1"), endpoint("10.0.0.2"))
    relay.pool.cache.replace(NAMESPACE, [found], "1")
    relay.view.refresh(clock.monotonic(), window=False)
    for number in (1, 2):
        cards = (Card("a"),) if number == 1 else None
        relay.view.tell(
            f"http://10.0.0.{number}:8000",
            lambda heard, cards=cards: answered(heard, cards),  # type: ignore[misc] # None: it lists nothing
        )
    relay.view.refresh(clock.monotonic(), window=False)
    value = relay.metrics.value
    assert (
        value("isthmus_relay_frontends", state="ready"),
        value("isthmus_relay_models", state="known"),
    ) == (
        2,
        1,
    )
    assert value("isthmus_relay_frontends", state="answering") == 1
    assert value("isthmus_relay_watchers", plane="load") == 0
    assert await status(relay, "/metrics") == 200


async def test_relay_without_a_port_for_routers_must_have_no_grpc() -> None:
    relay, _ = build(bind=None)
    assert (relay.grpc, relay.splitter, len(relay.listeners())) == (None, None, 1)
    both, _ = build()
    assert both.grpc is not None
    assert len(both.listeners()) == 2
