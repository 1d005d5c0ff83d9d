"""The relay's process: two listeners, health on the system port and the pool's identity on the other.

cli/relay.py fills RelayOptions and calls `run`, which takes the ports first, then serves until SIGTERM.
Routes below /v1 are for routers and discovery services; /live and /health are what probes of Dynamo's
runtimes ask, /healthz and /readyz the same under the names that Kubernetes' own components have.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from dataclasses import dataclass, field
from typing import Final

from isthmus import __version__, logs
from isthmus.errors import UserError
from isthmus.web.health import health_routes
from isthmus.web.routes import Answer, Request, Route, Routes, get, json_body
from isthmus.web.server import Listener

log = logs.get(__name__)

PROTOCOL: Final = 1
"""Version of what /v1 answers."""

Address = tuple[tuple[str, ...], int]


@dataclass(frozen=True, kw_only=True)
class RelayOptions:
    """Everything that `isthmus relay` was told. `bind` and `system` are where to listen, None for nowhere.
    The incarnation tells two runs of one relay apart."""

    cluster_id: str
    pool_namespace: str
    pool_name: str
    pool_kind: str = "DynamoGraphDeployment"
    bind: Address | None = None
    system: Address | None = None
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        if not self.cluster_id or self.cluster_id != self.cluster_id.strip():
            raise UserError("--cluster-id must be there and have no whitespace around it")
        for flag, value in (("--pool-namespace", self.pool_namespace), ("--pool-name", self.pool_name)):
            if not value:
                raise UserError(f"{flag} is required")
        if self.bind is None and self.system is None:
            raise UserError("there is nothing to listen on: give --bind or --system-bind")
        if self.bind is not None and self.system is not None and self.bind[1] == self.system[1]:
            raise UserError(f"--bind and --system-bind both want port {self.bind[1]}")


def identity(options: RelayOptions) -> bytes:
    """What /v1/relay answers: whose pool this is, and which run of the relay."""
    return json_body(
        {
            "cluster_id": options.cluster_id,
            "namespace": options.pool_namespace,
            "name": options.pool_name,
            "kind": options.pool_kind,
            "incarnation": options.incarnation,
            "protocol": PROTOCOL,
            "version": __version__,
        }
    )


def listeners(options: RelayOptions) -> list[Listener]:
    """The process' listeners, not bound yet."""
    found = []
    if options.bind is not None:
        hosts, port = options.bind
        found.append(Listener("--bind", Routes(_pool_routes(options)), hosts=hosts, port=port))
    if options.system is not None:
        hosts, port = options.system
        found.append(Listener("--system-bind", Routes(_system_routes()), hosts=hosts, port=port))
    return found


def _pool_routes(options: RelayOptions) -> list[Route]:
    body = identity(options)

    async def relay(_: Request) -> Answer:
        return Answer(body=body)

    return [get("/v1/relay", relay)]


def _system_routes() -> list[Route]:
    routes = health_routes(live={}, ready={})
    names = {"/healthz": "/live", "/readyz": "/health"}
    return [*routes, *(Route(names[route.path], route.handlers) for route in routes if route.path in names)]


async def run(options: RelayOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises UserError, before anything is served, for a port that cannot be
    had."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    servers = listeners(options)
    for server in servers:
        server.bind()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        for server in servers:
            await server.serve()
        log.info(
            "relay is up",
            cluster_id=options.cluster_id,
            pool=f"{options.pool_namespace}/{options.pool_name}",
            incarnation=options.incarnation,
        )
        await stop.wait()
    finally:
        for server in servers:
            await server.stop()
