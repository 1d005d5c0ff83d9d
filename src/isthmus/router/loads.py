"""The load of each pool, from its relays' GET /v1/load, into the Selector (PW-13, GR-28, GR-29).

One task per pool that has relays, each asking every `period_s`; at most AT_ONCE ask at a time. A sample's
time is when its answer came, less the age that the relay tells, on the router's own clock: nobody's wall
clock is compared. A relay that does not answer, or says `unavailable`, clears the pool's load; so does a new
incarnation, until its own sample is there.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterable
from typing import Final

import aiohttp
import msgspec

from isthmus import logs
from isthmus.api.pools import LoadSnapshot, Pool
from isthmus.clock import Clock
from isthmus.errors import IsthmusError
from isthmus.kube.proxies import proxy_for
from isthmus.router.plan.model import Load
from isthmus.router.plan.selector import Selector
from isthmus.router.pools import limited_body

log = logs.get(__name__)

PERIOD_S: Final = 1.0
ANSWER_S: Final = 3.0
AT_ONCE: Final = 64
MAX_BYTES: Final = 1 << 20

_decoder: Final = msgspec.json.Decoder(LoadSnapshot)


class Loads:
    """See the module. `run` it in the router's task group; `watch` says which pools there are."""

    def __init__(self, selector: Selector, clock: Clock, *, period_s: float = PERIOD_S) -> None:
        self._selector = selector
        self._clock = clock
        self._period_s = period_s
        self._pools: dict[str, Pool] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def watch(self, pools: Iterable[Pool]) -> None:
        """These are the pools from now on."""
        self._pools = {pool.pool_id: pool for pool in pools if pool.relay_urls}
        self._changed.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        async with _session() as session, asyncio.TaskGroup() as group:
            while True:
                for pool_id in self._tasks.keys() - self._pools.keys():
                    self._tasks.pop(pool_id).cancel()
                for pool_id in self._pools.keys() - self._tasks.keys():
                    self._tasks[pool_id] = group.create_task(self._follow(session, pool_id))
                self._changed.clear()
                await self._changed.wait()

    async def _follow(self, session: aiohttp.ClientSession, pool_id: str) -> None:
        await self._clock.sleep(self._period_s * random.random())
        while (pool := self._pools.get(pool_id)) is not None:
            sample = None
            for url in pool.relay_urls:
                async with self._slots:
                    sample = await self._ask(session, url)
                if sample is not None:
                    break
            right = sample is not None and sample.incarnation == (pool.incarnation or sample.incarnation)
            self._selector.set_loads(
                pool_id, loads_of(sample, self._clock.monotonic()) if sample is not None and right else {}
            )
            await self._clock.sleep(self._period_s * random.uniform(0.9, 1.1))

    async def _ask(self, session: aiohttp.ClientSession, url: str) -> LoadSnapshot | None:
        """A relay's sample; None where there is none to go by."""
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                session.get(f"{url.rstrip('/')}/v1/load", proxy=proxy_for(url, os.environ)) as answer,
            ):
                body = await limited_body(answer, MAX_BYTES)
                if answer.status != 200:
                    return None
            return _decoder.decode(body)
        except (aiohttp.ClientError, OSError, ValueError, IsthmusError, RecursionError) as problem:
            log.debug("load not read", relay=url, error=str(problem))
            return None


def loads_of(sample: LoadSnapshot, now: float) -> dict[str, Load]:
    """The loads by model that a sample which came at `now` tells; none of models whose counts are missing."""
    if sample.status == "unavailable" or sample.age_ms < 0:
        return {}
    found = {}
    for entry in sample.entries:
        waiting, generating = entry.awaiting_first_token, entry.generating
        if waiting is None or generating is None or waiting < 0 or generating < 0:
            continue
        frontends = entry.frontends
        found[entry.model] = Load(
            running=waiting + generating,
            max_concurrency=max(0, entry.max_concurrency or 0),
            whole=frontends.observed == frontends.expected,
            taken_s=now - sample.age_ms / 1000,
        )
    return found


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=AT_ONCE, keepalive_timeout=30)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
