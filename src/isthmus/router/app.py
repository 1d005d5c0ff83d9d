"""The router's process: pools in, listeners open, requests through, and a way out that cuts nobody off.

cli/router.py fills RouterOptions and calls `run`. The phases: take the ports, read the pools, serve. On
SIGTERM readiness fails at once while new requests are still taken for `drain.delay_s` (until endpoints have
been told), then no more are taken and running answers may end within `drain.timeout_s`; a second signal ends
that (R56).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from isthmus import logs
from isthmus.clock import Clock, SystemClock
from isthmus.router.accesslog import AccessLog
from isthmus.router.history import History
from isthmus.router.loads import Loads
from isthmus.router.metrics import Metrics
from isthmus.router.options import RouterOptions
from isthmus.router.plan.budget import RetryBudget
from isthmus.router.plan.directory import Directory
from isthmus.router.plan.selector import Selector, is_routable
from isthmus.router.pools import Discovered, Filed
from isthmus.router.proxy import Proxy
from isthmus.router.ui import Page
from isthmus.router.upstream import Upstream
from isthmus.runtime.tasks import wait_first
from isthmus.web.health import health_routes, metrics_routes
from isthmus.web.limits import Limits
from isthmus.web.routes import Answer, Request, Route, Routes, get, json_body, openai_error
from isthmus.web.server import Listener

log = logs.get(__name__)

PASSED: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
GAUGES_S: Final = 1.0
HEAD_LINES: Final = 128


class Router:
    """All parts of one router, put together. `serve` runs them."""

    def __init__(self, options: RouterOptions, clock: Clock | None = None) -> None:
        self._options = options
        self.clock = clock or SystemClock()
        self.metrics = Metrics()
        self.directory = Directory()
        self.selector = Selector(options.policy, self.directory)
        self.upstream = Upstream(options.timeouts)
        self.loads = Loads(self.selector, self.clock)
        self.draining = False
        self.history = History()
        self.page = Page(self.state, self.clock)
        budget = RetryBudget(options.retry_share, options.retry_floor_per_s, self.clock.monotonic())
        self.proxy = Proxy(
            options.proxy,
            self.selector,
            self.upstream,
            budget,
            self.metrics,
            self.clock,
            AccessLog(enabled=options.access_log),
            self._record,
        )
        self.source: Discovered | Filed
        if options.discovery is not None:
            self.source = Discovered(options.discovery, self.directory, self.clock, self._changed)
        else:
            assert options.pools_file is not None
            self.source = Filed(options.pools_file, self.directory, self.clock, self._changed)
        self._named: set[str] = set()
        self.listeners = self._listeners()

    def bind(self) -> None:
        """Take the ports, and read the pools where they come from a file. Raises UserError."""
        if isinstance(self.source, Filed):
            self.source.read()
        for listener in self.listeners:
            listener.bind()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve inside; on the way out nothing is waited for but what `drain` left."""
        self.upstream.open()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.source.run()), group.create_task(self._show())]
                if self._options.loads:
                    tasks.append(group.create_task(self.loads.run()))
                for listener in self.listeners:
                    await listener.serve()
                try:
                    yield
                finally:
                    for listener in self.listeners:
                        await listener.stop()
                    for task in tasks:
                        task.cancel()
        finally:
            await self.upstream.close()

    async def drain(self) -> None:
        """Say that this router is going, and go on for `delay_s`."""
        self.draining = True
        self.metrics.draining.set(1)
        await self.clock.sleep(self._options.drain.delay_s)

    # Routes

    def _listeners(self) -> list[Listener]:
        options = self._options
        own = [*health_routes(live={}, ready={"pools": self.unready}), *metrics_routes(self.metrics.registry)]
        routes = [
            *(Route(path, {"POST": self.proxy.forward}) for path in PASSED),
            get("/v1/models", self._models),
            get("/pools", self._pools),
            *(self.page.routes() if options.page else ()),
        ]
        if options.metrics is None:
            routes += own
        hosts, port = options.listen
        limits = Limits(
            body_bytes=options.body_bytes,
            held_bytes=options.held_bytes,
            connections=options.connections,
            head_lines=HEAD_LINES,
            head_bytes=32 * 1024,
            body_s=120.0,
            half_close=True,
            drain_s=options.drain.timeout_s,
        )
        found = [
            Listener("--listen", Routes(routes, page=openai_error), hosts=hosts, port=port, limits=limits)
        ]
        if options.metrics is not None:
            hosts, port = options.metrics
            found.append(Listener("--metrics-listen", Routes(own), hosts=hosts, port=port))
        return found

    def unready(self) -> str | None:
        """Why this router can serve nothing; None where it can (PW-15)."""
        if self.draining:
            return "the router is going"
        if not self.directory.synced:
            return "no list of pools has been read yet"
        now = self.clock.monotonic()
        for pool in self.directory.pools:
            for model in pool.models:
                if self.selector.why_not(pool, model.id, now) is None:
                    return None
        return "no pool can take a request"

    async def _models(self, _: Request) -> Answer:
        """The union over pools that have it ready, aliases included."""
        names = {
            name: pool.cluster_id
            for pool in self.directory.pools
            if pool.frontend_urls
            for model in pool.models
            if is_routable(model)
            for name in model.names
        }
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "isthmus"} for name in sorted(names)
        ]
        return Answer(body=json_body({"object": "list", "data": data}))

    async def _pools(self, request: Request) -> Answer:
        """What is known of each pool, for people; `?model=` narrows it."""
        model = request.argument("model")
        pools = self.directory.pools if model is None else self.directory.serving(model)
        return Answer(
            body=json_body(
                {
                    "policy": self.selector.policy,
                    "complete": self.directory.complete,
                    "discovery_age_s": self.source.heard.age_s(),
                    "discovery_problem": self.source.heard.problem,
                    "pools": [self.describe(pool.pool_id) for pool in pools],
                }
            )
        )

    def describe(self, pool_id: str) -> dict[str, Any]:
        """A pool that is known, and what this router thinks of it."""
        pool = self.directory.get(pool_id)
        assert pool is not None
        now = self.clock.monotonic()
        whys = {model.id: self.selector.why_not(pool, model.id, now) for model in pool.models}
        return {
            "pool_id": pool_id,
            "cluster_id": pool.cluster_id,
            "namespace": pool.namespace,
            "name": pool.name,
            "location": pool.location,
            "models": pool.models,
            "frontends": self.selector.frontend_states(pool, now),
            "eligible": any(why is None for why in whys.values()),
            "why_not": {model: why for model, why in whys.items() if why is not None},
            "breaker": self.selector.breaker_state(pool_id, now),
            "in_flight": self.selector.in_flight(pool_id),
            "limit": self.selector.limit_of(pool),
            "doubtful": self.directory.is_doubtful(pool_id),
        }

    def state(self) -> dict[str, Any]:
        """What the page shows: every pool as `describe` has it, and its traffic."""
        now = self.clock.monotonic()
        return {
            "policy": self._options.policy.policy,
            "draining": self.draining,
            "complete": self.directory.complete,
            "discovery_age_s": self.source.heard.age_s(),
            "discovery_problem": self.source.heard.problem,
            "pools": [
                self.describe(pool.pool_id) | {"traffic": self.history.traffic(pool.pool_id, now)._asdict()}
                for pool in self.directory.pools
            ],
        }

    # What goes on beside

    def _record(self, pool_id: str, first_s: float, _: float, ok: bool) -> None:
        self.history.record(pool_id, first_s, ok, self.clock.monotonic())

    def _changed(self) -> None:
        self.selector.forget_gone()
        self.loads.watch(self.directory.pools)

    async def _show(self) -> None:
        """Keep the gauges true."""
        while True:
            self._gauge()
            await self.clock.sleep(GAUGES_S)

    def _gauge(self) -> None:
        metrics, now = self.metrics, self.clock.monotonic()
        self.selector.forget_gone()
        self.history.keep([pool.pool_id for pool in self.directory.pools])
        named = set()
        for pool in self.directory.pools:
            name = str(pool.key)
            named.add(name)
            eligible = any(self.selector.why_not(pool, model.id, now) is None for model in pool.models)
            metrics.eligible.labels(name).set(eligible)
            state = self.selector.breaker_state(pool.pool_id, now)
            metrics.breaker.labels(name).set({"open": 1.0, "half-open": 0.5}.get(state, 0.0))
            metrics.in_flight.labels(name).set(self.selector.in_flight(pool.pool_id))
        for name in self._named - named:
            metrics.forget(name)
        self._named = named
        metrics.pools.set(len(named))
        metrics.discovery_age.set(self.source.heard.age_s())
        metrics.discovery_complete.set(self.directory.complete)


async def run(options: RouterOptions, started: Callable[[Router], None] = lambda router: None) -> None:
    """Serve until SIGTERM or SIGINT. Raises UserError, before anything is served, for a port or a file that
    cannot be had."""
    router = Router(options)
    router.bind()
    first, second = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (second if first.is_set() else first).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    async with asyncio.TaskGroup() as group:
        ending = group.create_task(_serve(router, first, second, started))
        cut = group.create_task(second.wait())
        await wait_first(asyncio.shield(ending), asyncio.shield(cut))
        if not ending.done():
            log.warning("second signal: running answers are cut")
        ending.cancel()
        cut.cancel()


async def _serve(
    router: Router, first: asyncio.Event, second: asyncio.Event, started: Callable[[Router], None]
) -> None:
    async with router.serving():
        started(router)
        log.info("router is up")
        await first.wait()
        log.info("draining")
        await wait_first(router.drain(), second.wait())
    log.info("router has ended")
