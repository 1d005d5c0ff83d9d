"""Builds the operator from its options and runs it: read it from top to bottom to see what there is and in
which order.

cli/operator.py calls `run`. The cluster is asked which of the chosen controllers it has the APIs for, each of
them is built by its module beside this one, ports are taken, and the cluster is asked whether all of it may
be watched; so a missing CRD, a port in use and a missing permission are error messages, before anything has
started. Then the manager takes over. Nothing here decides anything about the objects.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from isthmus import logs
from isthmus.api.meta import Resource
from isthmus.app import graph, modelserving, poolrelay
from isthmus.app.building import Building
from isthmus.app.namespaces import claim
from isthmus.app.options import OperatorOptions
from isthmus.app.preflight import answers, may_watch, served_controllers
from isthmus.clock import Clock, SystemClock
from isthmus.errors import UserError
from isthmus.kube.client import Client
from isthmus.kube.metrics import ClientMetrics
from isthmus.runtime.election import LeaderElector, unique_identity
from isthmus.runtime.manager import Exit, Manager
from isthmus.runtime.metrics import Metrics
from isthmus.web.health import health_routes, metrics_routes
from isthmus.web.routes import Routes
from isthmus.web.server import Listener

log = logs.get(__name__)


class Feature(Protocol):
    """A module of this package that builds one controller."""

    @property
    def NEEDS(self) -> Sequence[Resource[Any]]:
        """The APIs without which there is nothing to control."""

    async def build(self, building: Building) -> None:
        """Take what it needs from `building`, and add the controller to it. May ask the cluster what it
        serves; raises UserError where the controller cannot work as it is configured."""


FEATURES: Final[Mapping[str, Feature]] = {
    "modelserving": modelserving,
    "graph": graph,
    "poolrelay": poolrelay,
}
"""The controllers that there are, by their names in --controllers."""


async def run(options: OperatorOptions, *, clock: Clock | None = None) -> Exit:
    """Run until SIGTERM or SIGINT, or until something fails; return the exit code.

    Raises UserError, before anything has started, for a port that cannot be had and for a cluster that cannot
    be used.
    """
    clock = clock or SystemClock()
    asyncio.get_running_loop().set_exception_handler(_loop_complains)
    metrics = Metrics(process=True)
    client_metrics = ClientMetrics(metrics.registry)
    async with Client(options.config, clock=clock, metrics=client_metrics) as lease_client:
        election = _election(options, lease_client, clock, metrics)
        async with Client(
            options.config,
            qps=options.qps,
            burst=options.burst,
            clock=clock,
            gate=election,
            metrics=client_metrics,
        ) as client:
            needs = {name: feature.NEEDS for name, feature in FEATURES.items()}
            controllers = await served_controllers(options, client, needs)
            building = Building(options, client, clock, metrics)
            async with answers(options):
                await claim(building)
                manager = await _build(building, controllers, election)
            for server in building.servers:
                server.bind()
            await may_watch(building)
            for server in building.servers:
                manager.add_server(server)
            tame_collector()
            log.info(
                "starting",
                cluster=options.config.server,
                namespaces=options.namespaces or "all",
                controllers=controllers,
            )
            with _signals(manager):
                return await manager.run()


def tame_collector() -> None:
    """Keep the garbage collector off the path of events: what is there by now stays, and what comes later is
    freed by its reference counts, since decoded objects and plans hold no cycles. Its rare full passes would
    stop the loop for as long as 50,000 objects take."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


async def _build(building: Building, controllers: Sequence[str], election: LeaderElector | None) -> Manager:
    options = building.options
    if options.debug_port and modelserving.NAME not in controllers:
        raise UserError(f"--debug-port shows ModelServings, and needs the {modelserving.NAME} controller")
    for name in controllers:
        await FEATURES[name].build(building)
    manager = Manager(building.parts(election), clock=building.clock, metrics=building.metrics)
    if options.health is not None:
        hosts, port = options.health
        routes = Routes(health_routes(live=manager.live_checks(), ready=manager.ready_checks()))
        building.servers.append(Listener("--health-probe-bind-address", routes, hosts=hosts, port=port))
    if options.metrics is not None:
        hosts, port = options.metrics
        routes = Routes(metrics_routes(building.metrics.registry))
        building.servers.append(Listener("--metrics-bind-address", routes, hosts=hosts, port=port))
    return manager


def _election(
    options: OperatorOptions, client: Client, clock: Clock, metrics: Metrics
) -> LeaderElector | None:
    if not options.leader_elect:
        return None
    return LeaderElector(
        client,
        lease=(options.lease_namespace or options.config.namespace, options.lease_name),
        identity=unique_identity(),
        clock=clock,
        metrics=metrics,
        durations=options.durations,
    )


def _loop_complains(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What no task could be told. uvloop calls it a fatal error where bytes come in for a TLS connection that
    was just closed here, as when a request is given up; that is none, and not worth a traceback."""
    error = context.get("exception")
    if isinstance(error, RuntimeError) and "the handler is closed" in str(error):
        log.debug("a closed connection had something left to say", error=str(error))
    else:
        loop.default_exception_handler(context)


@contextmanager
def _signals(manager: Manager) -> Iterator[None]:
    """SIGTERM and SIGINT end the operator in good order; a second one does not hurry it (the deadlines
    do)."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, manager.request_stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
