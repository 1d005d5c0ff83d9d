"""Builds the operator from its options and runs it: read it from top to bottom to see what there is and in
which order.

cli/operator.py calls `run`. Ports are taken first, so that one in use is an error message; then the cluster
is asked whether it can be used at all, so that a missing CRD or permission is one too; then the manager takes
over. Nothing here decides anything about ModelServings.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from isthmus import logs
from isthmus.api import labels
from isthmus.api.meta import Key, Resource
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import (
    CONTROLLER_REVISIONS,
    SERVING_PODS,
    SERVING_SERVICES,
)
from isthmus.app.options import OperatorOptions
from isthmus.clock import Clock, SystemClock
from isthmus.debugport.port import DebugPort
from isthmus.errors import UserError
from isthmus.kube.client import Client
from isthmus.kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
from isthmus.kube.metrics import ClientMetrics, WatchMetrics
from isthmus.kube.watch import Reflector
from isthmus.modelserving.controller import ModelServingController
from isthmus.modelserving.dump import Dump
from isthmus.modelserving.store import Caches, Store
from isthmus.runtime.cache import Cache
from isthmus.runtime.controller import Controller
from isthmus.runtime.election import LeaderElector, unique_identity
from isthmus.runtime.events import EventRecorder
from isthmus.runtime.expect import Expectations
from isthmus.runtime.manager import Exit, Manager, Parts
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.queue import WorkQueue
from isthmus.web.health import health_routes, metrics_routes
from isthmus.web.routes import Routes
from isthmus.web.server import Listener

log = logs.get(__name__)

CONTROLLER_NAME = "isthmus.dev/modelserving-controller"
PREFLIGHT_S = 10.0
"""How long the cluster may take to answer the questions that are asked before the start."""

SELECTORS: dict[str, str] = {
    MODEL_SERVINGS.name: "",
    SERVING_PODS.name: labels.GROUP_NAME,
    SERVING_SERVICES.name: labels.GROUP_NAME,
    CONTROLLER_REVISIONS.name: labels.NAME,
}
"""Only what carries our labels is watched, whatever else a cluster holds (MS-48, R29)."""


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
            manager, servers = _build(options, client, election, clock, metrics)
            for server in servers:
                server.bind()
            await _preflight(options, client)
            for server in servers:
                manager.add_server(server)
            tame_collector()
            log.info("starting", cluster=options.config.server, namespaces=options.namespaces or "all")
            with _signals(manager):
                return await manager.run()


def tame_collector() -> None:
    """Keep the garbage collector off the path of events: what is there by now stays, and what comes later is
    freed by its reference counts, since decoded objects and plans hold no cycles. Its rare full passes would
    stop the loop for as long as 50,000 objects take."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _build(
    options: OperatorOptions, client: Client, election: LeaderElector | None, clock: Clock, metrics: Metrics
) -> tuple[Manager, list[Listener | DebugPort]]:
    sources = options.namespaces or ("",)
    caches = Caches(
        servings=Cache(MODEL_SERVINGS, sources=sources, metrics=metrics),
        pods=Cache(SERVING_PODS, sources=sources, metrics=metrics),
        services=Cache(SERVING_SERVICES, sources=sources, metrics=metrics),
        revisions=Cache(CONTROLLER_REVISIONS, sources=sources, metrics=metrics),
    )
    store: Store

    def begin() -> list[Key]:
        """Workers start: from now on vanished pods are losses, and every ModelServing is looked at once."""
        store.remember(True)
        return store.keys()

    queue = WorkQueue("modelserving", clock, metrics, seed=begin)
    store = Store(caches, queue.add)
    recorder = EventRecorder(
        client, controller=CONTROLLER_NAME, instance=unique_identity(), clock=clock, metrics=metrics
    )
    brain = ModelServingController(client, caches, store, Expectations(clock, metrics), recorder, clock)
    controller = Controller(
        "modelserving", reconcile=brain.reconcile, queue=queue, metrics=metrics, workers=options.workers
    )
    watch_metrics = WatchMetrics(metrics.registry)
    watches = [
        Reflector(
            client,
            cache.resource,
            sink=cache,
            namespace=source,
            source=source,
            label_selector=SELECTORS[cache.resource.name],
            clock=clock,
            metrics=watch_metrics,
        )
        for cache in caches.all
        for source in sources
    ]
    parts = Parts(
        caches=caches.all, watches=watches, controllers=(controller,), election=election, recorder=recorder
    )
    manager = Manager(parts, clock=clock, metrics=metrics)
    servers: list[Listener | DebugPort] = []
    if options.debug_port:
        servers.append(DebugPort(options.debug_port, dump=Dump(store, clock), decisions=brain.decisions))
    if options.health is not None:
        hosts, port = options.health
        routes = Routes(health_routes(live=manager.live_checks(), ready=manager.ready_checks()))
        servers.append(Listener("--health-probe-bind-address", routes, hosts=hosts, port=port))
    if options.metrics is not None:
        hosts, port = options.metrics
        routes = Routes(metrics_routes(metrics.registry))
        servers.append(Listener("--metrics-bind-address", routes, hosts=hosts, port=port))
    return manager, servers


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


async def _preflight(options: OperatorOptions, client: Client) -> None:
    """See that the cluster answers, has the CRD, and lets us read what we must; say what to do where it does
    not."""
    resources: tuple[Resource[Any], ...] = (
        MODEL_SERVINGS,
        SERVING_PODS,
        SERVING_SERVICES,
        CONTROLLER_REVISIONS,
    )
    try:
        async with asyncio.timeout(PREFLIGHT_S), asyncio.TaskGroup() as tasks:
            for resource in resources:
                for namespace in options.namespaces or ("",):
                    tasks.create_task(_may_list(client, resource, namespace))
    except* UserError as group:
        raise next(_leaves(group)) from None
    except* (TimeoutError, Unreachable) as group:
        raise _unreachable(options, next(_leaves(group))) from None


async def _may_list(client: Client, resource: Resource[Any], namespace: str) -> None:
    try:
        await client.list_page(resource, namespace, label_selector=SELECTORS[resource.name], limit=1)
    except NotFound as error:
        raise UserError(
            f"the cluster does not serve {resource.name} at {resource.api_version}",
            hint="install the CRDs: isthmus crds | kubectl apply --server-side -f -",
        ) from error
    except Forbidden as error:
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        raise UserError(
            f"not allowed to list {resource.name} {where}: {error.message}",
            hint="grant get, list and watch on it (docs/operator.md), or name namespaces with --namespace",
        ) from error
    except Unauthorized as error:
        raise UserError(
            f"the cluster does not accept our credentials: {error.message}",
            hint="see that the kubeconfig's user is valid: kubectl auth whoami",
        ) from error
    except ApiError as error:
        raise UserError(f"the cluster cannot be used now: {error}") from error


def _unreachable(options: OperatorOptions, cause: BaseException) -> UserError:
    text = str(cause) or f"no answer within {PREFLIGHT_S:.0f} s"
    return UserError(
        f"cannot reach the cluster at {options.config.server} (from {options.config.source}): {text}",
        hint="see that --kubeconfig names the right cluster and that it runs: kubectl cluster-info",
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


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
