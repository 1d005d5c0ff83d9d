"""The relay's process: it follows its pool, tells of it on one port over HTTP and gRPC, and registers it.

cli/relay.py fills RelayOptions and calls `run`, which takes the ports first, then serves until SIGTERM; the
way out is the way in, backwards: deregister, end the streams, close the ports. /live and /health on the
system port are what probes of Dynamo's runtimes ask, /healthz and /readyz the same under the names that
Kubernetes' own components have.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec.structs import replace

from isthmus import logs
from isthmus.api.dynamo.names import GRAPH_LABEL
from isthmus.api.endpointslices import ENDPOINT_SLICES
from isthmus.api.entrypods import ENTRY_PODS, entries_of
from isthmus.api.pools import Model
from isthmus.clock import Clock, SystemClock
from isthmus.kube.client import Client
from isthmus.kube.config import ClusterConfig
from isthmus.kube.metrics import ClientMetrics, WatchMetrics
from isthmus.kube.watch import Reflector
from isthmus.relay import sourcefile
from isthmus.relay.discoveryclient import DiscoveryClient
from isthmus.relay.options import RelayOptions
from isthmus.relay.pages import Pages
from isthmus.relay.plan.model import GRAPH, Roster, Selection
from isthmus.relay.plan.roster import of_pods, of_slices
from isthmus.relay.planes import Plane
from isthmus.relay.prober import Prober
from isthmus.relay.registrar import Registrar
from isthmus.relay.split import Splitter
from isthmus.relay.view import View
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import Policy, Supervisor, wait_first
from isthmus.web.health import health_routes, metrics_routes
from isthmus.web.limits import Limits
from isthmus.web.routes import Route, Routes, coded_error
from isthmus.web.server import Listener

log = logs.get(__name__)

STALE_S: Final = 120.0
"""After this long without a word of the API server what the relay tells is called degraded. It goes on: its
frontends do too."""
LIMITS: Final = Limits(connections=512)
TASK_FAILED: Final = 1


class _Grpc(Protocol):
    """What app.py needs of grpcface.GrpcFace, which is imported only where grpcio is there."""

    path: str

    async def serve(self) -> None:
        """Begin."""

    async def stop(self) -> None:
        """End."""


class Pool:
    """The cache of what belongs to the pool, and the watch that fills it: EndpointSlices of a graph, entry
    pods of a ModelServing. These are the only rights that a relay needs."""

    def __init__(self, client: Client, selection: Selection, clock: Clock, metrics: Metrics) -> None:
        self._graph = selection.kind == GRAPH
        self._clock = clock
        resource: Any = ENDPOINT_SLICES if self._graph else ENTRY_PODS
        name = selection.name
        self.cache: Cache[Any] = Cache(resource, sources=(selection.namespace,), metrics=metrics)
        self.watch: Reflector[Any] = Reflector(
            client,
            resource,
            sink=self.cache,
            namespace=selection.namespace,
            source=selection.namespace,
            label_selector=f"{GRAPH_LABEL}={name}" if self._graph else entries_of(name),
            clock=clock,
            metrics=WatchMetrics(metrics.registry),
        )

    def roster(self, selection: Selection) -> Roster | None:
        """Who belongs to the pool; None while the cache is not complete."""
        if not self.cache.complete:
            return None
        values = self.cache.values()
        found = of_slices(values, selection) if self._graph else of_pods(values, selection)
        age_s = self.watch.age(self._clock.monotonic())
        return replace(found, stale=True) if age_s > STALE_S else found


class Relay:
    """All parts, built but not started."""

    def __init__(self, options: RelayOptions, client: Client, clock: Clock, metrics: Metrics) -> None:
        self.options = options
        self.metrics = metrics
        self._clock = clock
        self.pool = Pool(client, options.selection, clock, metrics)
        self.view = View(options, self.pool.roster, clock)
        self.pool.cache.subscribe(lambda _: self.view.touch())
        self.prober = Prober(self.view, clock, metrics)
        self.grpc = self._make_grpc()
        self.splitter = Splitter(self.grpc.path) if self.grpc is not None else None
        self.stopping = False
        self._gauge()

    def _gauge(self) -> None:
        view, watch = self.view, self.pool.watch
        self.metrics.read_gauge(
            "isthmus_watch_age_seconds",
            "Seconds since the watch heard the API server.",
            lambda: watch.age(self._clock.monotonic()),
            resource=watch.name,
            source=watch.source,
        )

        def told(plane: Plane) -> Callable[[], float]:
            return lambda: float(plane.subscribers)

        for plane in view.planes:
            name, text = "isthmus_relay_watchers", "Who watches, by what."
            self.metrics.read_gauge(name, text, told(plane), plane=plane.name)
        name, text = "isthmus_relay_frontends", "Frontends: ready ones, and those of them that list models."
        self.metrics.read_gauge(name, text, lambda: float(len(view.heard)), state="ready")
        self.metrics.read_gauge(
            name, text, lambda: float(len(view.facts.frontends if view.facts else ())), state="answering"
        )
        models = ("isthmus_relay_models", "Models: all, and those that can be asked.")
        self.metrics.read_gauge(*models, lambda: float(len(_models(view))), state="known")
        self.metrics.read_gauge(
            *models, lambda: float(sum(model.ready for model in _models(view))), state="ready"
        )

    def listeners(self) -> list[Listener]:
        """The process' listeners, not bound yet."""
        options, found = self.options, []
        if options.bind is not None:
            hosts, port = options.bind
            routes = Routes(Pages(self.view, self._clock).routes(), page=coded_error)
            front = self.splitter.front if self.splitter is not None else None
            found.append(Listener("--bind", routes, hosts=hosts, port=port, limits=LIMITS, front=front))
        if options.system is not None:
            hosts, port = options.system
            found.append(Listener("--system-bind", Routes(self.system_routes()), hosts=hosts, port=port))
        return found

    def system_routes(self) -> list[Route]:
        """What probes and scrapers ask."""
        routes = health_routes(live={}, ready={"pool": self.problem})
        names = {"/healthz": "/live", "/readyz": "/health"}
        aliases = [Route(names[route.path], route.handlers) for route in routes if route.path in names]
        return [*routes, *aliases, *metrics_routes(self.metrics.registry)]

    def problem(self) -> str | None:
        """Why the relay is not ready, or None. That the API server or the discovery service is away is no
        reason: routers still need what this relay knows."""
        if self.stopping:
            return "it is about to end"
        if not self.pool.cache.complete:
            return "the pool has not been listed yet"
        if self.view.facts is None:
            return "not every frontend has been asked yet"
        return None

    def start(self, tasks: Supervisor) -> None:
        """Begin all that runs beside the listeners."""
        tasks.start("watch", self.pool.watch.run)
        tasks.start("look", self._look)
        tasks.start("view", self.view.keep)
        tasks.start("probe", self.prober.run, policy=Policy.RESTART)
        path = self.options.sources_file
        if path is not None:
            tasks.start("sources", lambda: sourcefile.follow(path, self.view, self._clock))
        if self.splitter is not None:
            tasks.start("split", self.splitter.run)

    async def _look(self) -> None:
        """An empty list is no change, and yet the first look."""
        await self.pool.cache.wait_complete()
        self.view.touch()
        await asyncio.get_running_loop().create_future()

    def _make_grpc(self) -> _Grpc | None:
        if self.options.bind is None:
            return None
        try:
            from isthmus.relay.grpcface import GrpcFace
        except ImportError:
            return None
        return GrpcFace(self.view, self._clock, lambda: self.problem() is None)


def _models(view: View) -> tuple[Model, ...]:
    return view.facts.models if view.facts else ()


async def run(options: RelayOptions, cluster: ClusterConfig) -> int:
    """Serve until SIGTERM or SIGINT; the process' exit code. Raises UserError, before anything is served, for
    a port that cannot be had and for files that cannot be used."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    clock, metrics = SystemClock(), Metrics(process=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(cluster, user_agent="isthmus-relay", metrics=ClientMetrics(metrics.registry))
        )
        relay = Relay(options, client, clock, metrics)
        if options.sources_file is not None:
            relay.view.select(await asyncio.to_thread(sourcefile.read, options.sources_file))
        servers = relay.listeners()
        for server in servers:
            server.bind()
            stack.push_async_callback(server.stop)
        tasks = await stack.enter_async_context(Supervisor(clock, metrics))
        registrar = None
        if options.discovery is not None:
            discovery = await stack.enter_async_context(DiscoveryClient(options.discovery, clock))
            registrar = Registrar(relay.view, discovery, clock, metrics)
        if relay.grpc is not None:
            await relay.grpc.serve()
            stack.push_async_callback(relay.grpc.stop)
        relay.start(tasks)
        if registrar is not None:
            tasks.start("register", registrar.run, policy=Policy.RESTART)
        for server in servers:
            await server.serve()
        log.info(
            "relay is up",
            pool=str(options.key),
            incarnation=options.incarnation,
            grpc=relay.grpc is not None,
            discovery=options.discovery.url if options.discovery else "",
        )
        await wait_first(stop.wait(), tasks.failed.wait())
        relay.stopping = True
        if registrar is not None:
            await tasks.finish(["register"], 0)
            await registrar.leave()
        for plane in relay.view.planes:
            plane.close()
        if relay.splitter is not None and relay.grpc is not None:
            await relay.grpc.stop()
            relay.splitter.stop()
        return TASK_FAILED if tasks.failed.is_set() else 0
