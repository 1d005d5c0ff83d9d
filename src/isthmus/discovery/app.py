"""The discovery service's process: a store, in some modes watches of imports, one listener, until SIGTERM.

cli/discovery.py fills DiscoveryOptions and calls `run`. The port is taken first. /healthz is 200 while the
loop runs, since no restart mends an API server or a store that is away; /readyz once the store answers and
the imports have been listed (PW-11). Neither they nor /metrics ask for a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Final

import msgspec

from isthmus import logs
from isthmus.clock import Clock, SystemClock
from isthmus.discovery.plan.join import REGISTRATIONS, Suffixes
from isthmus.discovery.routes import Granting, Interface
from isthmus.discovery.service import Service
from isthmus.discovery.sources import Sources
from isthmus.discovery.store import MemoryStore, Store
from isthmus.discovery.tokens import Tokens
from isthmus.kube.client import Client
from isthmus.kube.config import ClusterConfig
from isthmus.kube.metrics import ClientMetrics
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import Policy, Supervisor, wait_first
from isthmus.web.health import health_routes, metrics_routes
from isthmus.web.limits import Limits
from isthmus.web.routes import Routes, coded_error
from isthmus.web.server import Listener
from isthmus.web.tls import ServerTls

log = logs.get(__name__)

TASK_FAILED: Final = 1
LIMITS: Final = Limits(
    body_bytes=1 << 20, connections=4096, held_bytes=256 << 20, write_buffer_bytes=256 << 10, drain_s=5.0
)


class RedisOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the shared store is, and what its keys begin with."""

    url: str
    prefix: str = "isthmus:"


class DiscoveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `isthmus discovery` was told. `redis` is None for the store in memory."""

    listen: tuple[tuple[str, ...], int]
    mode: str = REGISTRATIONS
    suffixes: Suffixes = Suffixes()
    granting: Granting = Granting()
    redis: RedisOptions | None = None
    tokens_file: Path | None = None
    tls: tuple[Path, Path] | None = None


class Discovery:
    """All parts, built but not started. `client` is needed in the modes that import."""

    def __init__(
        self, options: DiscoveryOptions, client: Client | None, clock: Clock, metrics: Metrics
    ) -> None:
        self.options = options
        self.metrics = metrics
        self._clock = clock
        self.store = _store(options, clock)
        self.sources: Sources | None = None
        if client is not None:
            self.sources = Sources(options.mode, client, clock, metrics, lambda: self.service.touch())
        self.service = Service(self.store, self.sources, clock, mode=options.mode, suffixes=options.suffixes)
        self.store.changed = self.service.touch
        self.tokens = Tokens(options.tokens_file, clock)
        self.tls = None
        if options.tls is not None:
            self.tls = ServerTls(*options.tls, flags="--tls-cert-path, --tls-key-path")
        self.stopping = False
        self._gauge()
        self.listener = self._listener()

    def problem(self) -> str | None:
        """Why the service is not ready; None where it is."""
        if self.stopping:
            return "it is about to end"
        missing = self.sources.problem() if self.sources is not None else None
        return self.store.problem() or missing

    def start(self, tasks: Supervisor) -> None:
        """Begin all that runs beside the listener."""
        if self.sources is not None:
            tasks.start("imports", self.sources.run)
        tasks.start("store", self.store.run, policy=Policy.RESTART)
        tasks.start("list", self.service.run)
        if self.options.tokens_file is not None:
            tasks.start("tokens", self.tokens.run, policy=Policy.RESTART)

    def close(self) -> None:
        """Say that it is about to end, and send away who follows the list or waits for another."""
        self.stopping = True
        self.service.close()

    def _listener(self) -> Listener:
        interface = Interface(
            self.service, self.store, self.tokens, self.options.granting, self._clock, self.metrics.registry
        )
        routes = [
            *interface.routes(),
            *health_routes(live={}, ready={"list": self.problem}),
            *metrics_routes(self.metrics.registry),
        ]
        hosts, port = self.options.listen
        return Listener(
            "--listen", Routes(routes, page=coded_error), hosts=hosts, port=port, limits=LIMITS, tls=self.tls
        )

    def _gauge(self) -> None:
        service, read = self.service, self.metrics.read_gauge
        name, text = "gds_pools", "Pools that are listed: with a frontend, and without."
        read(
            name,
            text,
            lambda: float(sum(bool(p.frontend_urls) for p in service.listing.pools)),
            state="routable",
        )
        read(
            name,
            text,
            lambda: float(sum(not p.frontend_urls for p in service.listing.pools)),
            state="no_frontend",
        )
        for kind in ("registration", "import"):

            def count(kind: str = kind) -> float:
                return float(sum(each.kind == kind for each in service.unmatched))

            read(f"gds_unmatched_{kind}s", f"{kind.capitalize()}s that have no counterpart.", count)
        read("gds_watchers", "Readers that follow the list.", lambda: float(len(service.watchers)))
        read("gds_complete", "Whether the list is complete: 1 or 0.", lambda: float(service.listing.complete))


def _store(options: DiscoveryOptions, clock: Clock) -> Store:
    if options.redis is None:
        return MemoryStore(options.granting.lease_s, clock)
    from isthmus.discovery.store_redis import RedisStore

    return RedisStore(options.redis.url, options.redis.prefix, options.granting.lease_s, clock)


async def run(options: DiscoveryOptions, cluster: ClusterConfig | None) -> int:
    """Serve until SIGTERM or SIGINT; the process' exit code. Raises UserError, before anything is served, for
    a port that cannot be had and for files that cannot be used."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    clock, metrics = SystemClock(), Metrics(process=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        client = None
        if cluster is not None:
            client = await stack.enter_async_context(
                Client(cluster, user_agent="isthmus-discovery", metrics=ClientMetrics(metrics.registry))
            )
        discovery = Discovery(options, client, clock, metrics)
        discovery.listener.bind()
        stack.push_async_callback(discovery.listener.stop)
        tasks = await stack.enter_async_context(Supervisor(clock, metrics))
        discovery.start(tasks)
        await discovery.listener.serve()
        log.info("discovery service is up", mode=options.mode, storage="redis" if options.redis else "memory")
        await wait_first(stop.wait(), tasks.failed.wait())
        discovery.close()
        return TASK_FAILED if tasks.failed.is_set() else 0
