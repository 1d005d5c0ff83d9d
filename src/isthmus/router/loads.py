"""The load of each pool, from its relays' GET /v1/load, into the Selector (PW-13, GR-28, GR-29).

One task per pool that has relays, each asking every `period_s`, or less often where that would be more than
PER_S questions a second; at most AT_ONCE ask at a time. A pool whose relays do not answer is asked ever less
often, up to every SLOW_S, so that the dead do not hold up the living. A sample's time is when its answer
came, less the age that the relay tells, on the router's own clock: nobody's wall clock is compared. A relay
that does not answer, or says `unavailable`, clears the pool's load; so does an answer of another run of the
relay than the one that the list tells of.
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
from isthmus.router.plan.load import loads_of
from isthmus.router.plan.selector import Selector
from isthmus.router.pools import limited_body

log = logs.get(__name__)

PERIOD_S: Final = 1.0
SLOW_S: Final = 15.0
ANSWER_S: Final = 3.0
AT_ONCE: Final = 64
PER_S: Final = 400
"""Questions a second to all relays together, so that thousands of pools do not take the loop's time."""
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
                for pool_id, task in list(self._tasks.items()):
                    if pool_id not in self._pools or task.done():
                        task.cancel()
                        del self._tasks[pool_id]
                for pool_id in self._pools.keys() - self._tasks.keys():
                    self._tasks[pool_id] = group.create_task(self._follow(session, pool_id))
                self._changed.clear()
                await self._changed.wait()

    @property
    def _pause_s(self) -> float:
        return max(self._period_s, len(self._pools) / PER_S)

    async def _follow(self, session: aiohttp.ClientSession, pool_id: str) -> None:
        pause_s = self._pause_s
        await self._clock.sleep(pause_s * random.random())
        while (pool := self._pools.get(pool_id)) is not None:
            sample = await self._sample(session, pool)
            pause_s = self._pause_s if sample is not None else max(self._pause_s, min(SLOW_S, 2 * pause_s))
            known = self._pools.get(pool_id)
            if known is None:
                return
            if sample is not None and known.incarnation not in ("", sample.incarnation):
                sample = None  # of a run of the relay that has ended, or that the list does not know yet
            loads = {} if sample is None else loads_of(sample, self._clock.monotonic())
            self._selector.set_loads(pool_id, loads)
            await self._clock.sleep(pause_s * random.uniform(0.9, 1.1))

    async def _sample(self, session: aiohttp.ClientSession, pool: Pool) -> LoadSnapshot | None:
        """What the first relay that answers says."""
        for url in pool.relay_urls:
            async with self._slots:
                sample = await self._ask(session, url)
            if sample is not None:
                return sample
        return None

    async def _ask(self, session: aiohttp.ClientSession, url: str) -> LoadSnapshot | None:
        """A relay's sample; None where there is none to go by."""
        try:
            async with (
                asyncio.timeout(ANSWER_S),
                session.get(
                    f"{url.rstrip('/')}/v1/load", proxy=proxy_for(url, os.environ), allow_redirects=False
                ) as answer,
            ):
                body = await limited_body(answer, MAX_BYTES)
                if answer.status != 200:
                    return None
            return _decoder.decode(body)
        except (aiohttp.ClientError, OSError, ValueError, IsthmusError, RecursionError) as problem:
            log.debug("load not read", relay=url, error=str(problem))
            return None


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=AT_ONCE, keepalive_timeout=30)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None),
    )
