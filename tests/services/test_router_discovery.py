"""A router's pools with the true discovery service: registrations, leases, restarts and its death."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from isthmus.clock import SystemClock
from isthmus.discovery.routes import Granting
from isthmus.router import pools
from isthmus.router.plan.directory import Directory
from isthmus.router.pools import Discovered, Source
from tests.support.discoveries import registration
from tests.support.discoveryrun import Asking, Running, discovering
from tests.support.eventually import until

SHORT = Granting(heartbeat_s=0.2, lease_s=1.0)
EAST, WEST = registration("east"), registration("west")


class Router:
    """What a router knows of its pools."""

    def __init__(self, port: int) -> None:
        self.directory = Directory()
        source = Source(url=f"http://127.0.0.1:{port}")
        self.discovered = Discovered(source, self.directory, SystemClock(), lambda: None)

    async def knows(self, *clusters: str, within_s: float = 5.0) -> None:
        """Wait until it knows pools of exactly these clusters."""

        def known() -> list[str]:
            return [each.cluster_id for each in self.directory.pools]

        await until(lambda: known() == list(clusters), within_s=within_s, seen=known)


@asynccontextmanager
async def routing(running: Running) -> AsyncIterator[Router]:
    router = Router(running.port)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(router.discovered.run())
        yield router
        task.cancel()


async def renew(asking: Asking, *clusters: str) -> None:
    """Heartbeats of these clusters' relays, for ever."""
    while True:
        for cluster in clusters:
            await asking.register(registration(cluster))
        await asyncio.sleep(0.2)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "FIRST_BACKOFF_S", 0.02)
    monkeypatch.setattr(pools, "MAX_BACKOFF_S", 0.1)


@pytest.mark.covers("PW-7", "PW-9", "PW-16")
async def test_router_must_hear_of_pools_that_come_change_and_go() -> None:
    async with discovering() as running, routing(running) as router:
        await running.asking.register(EAST)
        await router.knows("east")
        await running.asking.register(WEST)
        await router.knows("east", "west")
        await running.asking.ask("DELETE", "/pools/east/serving/chat?incarnation=a")
        await router.knows("west")
        assert router.discovered.heard.problem == ""


@pytest.mark.covers("PW-8", "PW-16", "D-19", "DS-3")
async def test_service_that_restarts_must_cost_no_pool_that_lives_and_each_that_died() -> None:
    async with discovering(granting=SHORT) as running, routing(running) as router:
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(renew(running.asking, "east", "west"))
            await router.knows("east", "west")
            beats.cancel()
        port = running.port
        running.discovery.close()
        await running.discovery.listener.stop()
        async with discovering(granting=SHORT, listen=(("127.0.0.1",), port)) as again:
            await until(lambda: router.directory.is_doubtful(EAST.key.pool_id))
            assert [each.cluster_id for each in router.directory.pools] == ["east", "west"]
            async with asyncio.TaskGroup() as group:
                beats = group.create_task(renew(again.asking, "east"))
                await router.knows("east")
                assert router.directory.complete
                beats.cancel()


@pytest.mark.covers("D-20")
async def test_router_must_go_on_with_its_pools_when_the_service_is_gone_for_good() -> None:
    async with discovering(granting=SHORT) as running, routing(running) as router:
        await running.asking.register(EAST)
        await router.knows("east")
        running.discovery.close()
        await running.discovery.listener.stop()
        await until(lambda: router.discovered.heard.problem != "")
        await asyncio.sleep(3 * SHORT.lease_s)
        assert [each.cluster_id for each in router.directory.pools] == ["east"]
