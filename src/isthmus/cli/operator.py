"""`isthmus operator`: flags in, a validated OperatorOptions out, and the process's exit code.

Imported only when the subcommand is called; imports what runs only once the flags are right. Flag names are
upstream's and controller-runtime's where the meaning is the same (MS-114).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isthmus import logs

if TYPE_CHECKING:
    from isthmus.api.configuration import OperatorConfiguration

log = logs.get(__name__)


def _read_config(ctx: click.Context, param: click.Parameter, value: str) -> OperatorConfiguration | None:
    """The file's configuration; what it says takes the place of the defaults of the flags that say the same.
    Called before any other flag is looked at. Raises UserError."""
    if not value:
        return None
    from isthmus.app import configfile

    configuration = configfile.read(Path(value))
    ctx.default_map = _defaults(configuration)
    return configuration


def _defaults(configuration: OperatorConfiguration) -> dict[str, Any]:
    """Parameter of `command` to what the file has for it."""
    server, election = configuration.server, configuration.leader_election
    level = configuration.logging.level
    restricted = configuration.namespace.restricted
    return {
        "namespaces": (restricted,) if restricted else (),
        "leader_elect": election.enabled,
        "lease_namespace": election.namespace,
        **({"lease_name": election.id} if election.id else {}),
        "metrics": _address(server.metrics.bind_address, server.metrics.port),
        "health": _address(server.health_probe.bind_address, server.health_probe.port),
        "log_level": "warning" if level == "warn" else level,
        "log_format": configuration.logging.format,
    }


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@click.command(context_settings={"show_default": True})
@click.option(
    "--config",
    "configuration",
    default="",
    is_eager=True,
    callback=_read_config,
    help="OperatorConfiguration file, YAML or JSON; flags that are given win over it.",
)
@click.option("--kubeconfig", default="", help="Kubeconfig file; else in-cluster, $KUBECONFIG or home.")
@click.option(
    "--context", "context_name", default="", help="Context of the kubeconfig; else its current one."
)
@click.option("--controllers", default="*", help="Controllers to run: *, NAME, -NAME, separated by commas.")
@click.option(
    "--namespace", "-n", "namespaces", multiple=True, help="Work in this namespace only (repeatable)."
)
@click.option("--leader-elect/--no-leader-elect", default=False, help="Let one of several replicas work.")
@click.option("--leader-elect-lease-duration", "lease_s", type=float, default=15.0, help="Seconds.")
@click.option("--leader-elect-renew-deadline", "renew_s", type=float, default=10.0, help="Seconds.")
@click.option("--leader-elect-retry-period", "retry_s", type=float, default=2.0, help="Seconds.")
@click.option("--leader-elect-namespace", "lease_namespace", default="", help="Of the Lease; else our own.")
@click.option("--leader-elect-name", "lease_name", default="isthmus-operator", help="Name of the Lease.")
@click.option(
    "--debug-port",
    default="0",
    metavar="PORT",
    help=(
        "Serve the operator's cache and decisions on this port of loopback only; 0 for not at all. It has no"
        " authentication, and pod names, states and revision hashes can be sensitive: never put it behind a"
        " LoadBalancer or NodePort. Reach it with: kubectl port-forward POD PORT:PORT"
    ),
)
@click.option(
    "--metrics-bind-address", "metrics", default=":8080", help="Where to serve /metrics; 0: nowhere."
)
@click.option(
    "--health-probe-bind-address",
    "health",
    default=":8081",
    help="Where to serve /healthz and /readyz; 0: nowhere.",
)
@click.option(
    "--kube-api-qps", "qps", type=float, default=0.0, help="Requests per second; 0: no limit of ours."
)
@click.option("--kube-api-burst", "burst", type=int, default=0, help="Requests at once above the rate.")
@click.option("--workers", type=int, default=5, help="Objects that each controller works on at once.")
@click.option(
    "--api-probe-interval",
    "probe_s",
    type=float,
    default=60.0,
    help="Seconds between looks for optional APIs.",
)
@click.option(
    "--leader-worker-sets/--no-leader-worker-sets",
    default=True,
    help="Run LeaderWorkerSets as ModelServings where their API is served. Turn it off where their own "
    "controller runs.",
)
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info")
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="text")
def command(  # noqa: PLR0913 - one per flag
    configuration: OperatorConfiguration | None,
    kubeconfig: str,
    context_name: str,
    controllers: str,
    namespaces: tuple[str, ...],
    leader_elect: bool,
    lease_s: float,
    renew_s: float,
    retry_s: float,
    lease_namespace: str,
    lease_name: str,
    debug_port: str,
    metrics: str,
    health: str,
    qps: float,
    burst: int,
    workers: int,
    probe_s: float,
    leader_worker_sets: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Run the controllers in a cluster, until SIGTERM.

    Exit codes: 0 stopped, 1 something failed, 2 wrong flags or an unusable cluster, 3 the leader lease was
    lost.
    """
    from isthmus.api import configcheck
    from isthmus.api.configuration import OperatorConfiguration
    from isthmus.app import options as opt
    from isthmus.kube import config

    settings = configuration or OperatorConfiguration()
    port = opt.parse_debug_port(debug_port)
    chosen = opt.choose_controllers(controllers)
    checked = opt.OperatorOptions(
        config=config.load(kubeconfig or None, context_name or None),
        configuration=settings,
        controllers=chosen.controllers,
        required=chosen.required,
        namespaces=opt.choose_namespaces(namespaces),
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        durations=opt.Durations(lease_s, renew_s, retry_s),
        debug_port=port,
        metrics=opt.parse_address("--metrics-bind-address", metrics),
        health=opt.parse_address("--health-probe-bind-address", health),
        qps=qps,
        burst=burst,
        workers=workers,
        probe_s=probe_s,
        leader_worker_sets=leader_worker_sets,
    )
    logs.configure(log_level, log_format)
    if idle := configcheck.without_effect(settings):
        log.warning("settings of --config that do nothing here", paths=", ".join(idle))
    import uvloop

    from isthmus.app import operator

    sys.exit(int(uvloop.run(operator.run(checked))))
