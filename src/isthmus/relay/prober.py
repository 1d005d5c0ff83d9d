"""Asks each frontend of the pool what it serves and how much it has to do, for as long as it is there.

One task per frontend asks GET /v1/models every two seconds and GET /metrics every second, and tells view.py;
a frontend without metrics that count is asked for them twice a minute. Answers are hostile: no redirects, no
compression, bounded sizes, one deadline for each, few at once. The standard proxy variables hold (R25): where
frontends must be asked straight although there is a proxy, NO_PROXY says so.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import aiohttp

from isthmus import __version__, logs
from isthmus.api.pools import InvalidField
from isthmus.clock import Clock
from isthmus.errors import WorldError
from isthmus.kube.proxies import proxy_for
from isthmus.relay.plan import heard as hearing
from isthmus.relay.plan.answers import read_models
from isthmus.relay.plan.metrics import read_load
from isthmus.relay.view import View
from isthmus.runtime.metrics import Metrics

log = logs.get(__name__)

MODELS_S: Final = 2.0
LOAD_S: Final = 1.0
NO_LOAD_S: Final = 30.0
DEADLINE_S: Final = 2.0
AT_ONCE: Final = 64
MODELS_BYTES: Final = 1 << 20
METRICS_BYTES: Final = 4 << 20
_PIECE: Final = 1 << 16


class NoAnswer(WorldError):
    """A frontend did not answer as it should; the text says how. `firm`: it has answered, with something
    else, and will again."""

    def __init__(self, text: str, *, firm: bool = False) -> None:
        super().__init__(text)
        self.firm = firm


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=2 * AT_ONCE, keepalive_timeout=15.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers={"User-Agent": f"isthmus-relay/{__version__}", "Accept-Encoding": "identity"},
    )


class Prober:
    """See the module. Raises UserError where the proxy variables hold what is no proxy."""

    def __init__(
        self,
        view: View,
        clock: Clock,
        metrics: Metrics,
        *,
        chance: Callable[[], float] = random.random,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._view = view
        self._clock = clock
        self._chance = chance
        self._environ = os.environ if environ is None else environ
        proxy_for("http://a-frontend", self._environ)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._failures = metrics.counter(
            "isthmus_relay_probe_failures_total", "Questions that frontends did not answer.", ["kind"]
        )

    async def run(self) -> None:
        """Ask those that are there, until cancelled."""
        asking: dict[str, asyncio.Task[None]] = {}
        async with _session() as session, asyncio.TaskGroup() as group:
            while True:
                there = self._view.heard.keys()
                for url in [url for url in asking if url not in there]:
                    asking.pop(url).cancel()
                for url in there - asking.keys():
                    asking[url] = group.create_task(self._follow(session, url))
                await self._view.moved.wait()
                self._view.moved.clear()

    async def _follow(self, session: aiohttp.ClientSession, url: str) -> None:
        """Ask one frontend, over and over; the first time at once."""
        models_due = load_due = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            if now >= models_due:
                await self._ask_models(session, url)
                models_due = now + MODELS_S * (0.9 + 0.2 * self._chance())
            if now >= load_due:
                told = await self._ask_load(session, url)
                load_due = now + (LOAD_S if told else NO_LOAD_S) * (0.9 + 0.2 * self._chance())
            await self._clock.sleep(min(models_due, load_due) - self._clock.monotonic())

    async def _ask_models(self, session: aiohttp.ClientSession, url: str) -> None:
        try:
            cards = read_models(await self._fetch(session, f"{url}/v1/models", MODELS_BYTES))
        except (NoAnswer, InvalidField) as problem:
            self._failures.labels("models").inc()
            log.debug("a frontend does not list its models", url=url, problem=str(problem))
            self._view.tell(url, partial(hearing.failed, problem=str(problem)))
        else:
            self._view.tell(url, partial(hearing.answered, cards=cards))

    async def _ask_load(self, session: aiohttp.ClientSession, url: str) -> bool:
        """Whether it is worth to ask again soon: it told, or did not answer at all."""
        try:
            load = read_load(await self._fetch(session, f"{url}/metrics", METRICS_BYTES))
        except NoAnswer as problem:
            self._failures.labels("metrics").inc()
            log.debug("a frontend does not tell its load", url=url, problem=str(problem))
            return not problem.firm
        if load is None:
            return False
        self._view.tell_load(url, load)
        return True

    async def _fetch(self, session: aiohttp.ClientSession, url: str, limit: int) -> bytes:
        """The body of a 200. Raises NoAnswer."""
        try:
            async with (
                self._turns,
                asyncio.timeout(DEADLINE_S),
                session.get(url, allow_redirects=False, proxy=proxy_for(url, self._environ)) as response,
            ):
                if response.status != 200:
                    raise NoAnswer(f"answered {response.status}", firm=True)
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise NoAnswer("answered in an encoding that was not asked for", firm=True)
                body = bytearray()
                async for piece in response.content.iter_chunked(_PIECE):
                    body += piece
                    if len(body) > limit:
                        raise NoAnswer(f"answered with more than {limit} bytes", firm=True)
                return bytes(body)
        except TimeoutError:
            raise NoAnswer(f"no answer within {DEADLINE_S:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            raise NoAnswer(str(problem)[:200] or type(problem).__name__) from None
