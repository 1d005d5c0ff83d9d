"""`isthmus relay`: flags or environment in, a validated RelayOptions out, and the service.

Called through cli/main.py, mostly by the Deployment that the operator makes of a DynamoPoolRelay, which sets
the environment (poolrelay/plan/children.py). Flags and variables that Dynamo's own relay has are named as
there, their old names included (RL-2); what has no effect here is accepted.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any, Final

import click

from isthmus import logs

KINDS = ("DynamoGraphDeployment", "ModelServing")
FILE: Final = click.Path(path_type=Path, dir_okay=False)


@click.command(context_settings={"show_default": True})
@click.option(
    "--cluster-id",
    "--dc-id",
    "cluster_id",
    envvar=["DYN_CLUSTER_ID", "DYN_DC_ID"],
    required=True,
    help="This cluster's name in its set.",
)
@click.option(
    "--pool-namespace", envvar="ISTHMUS_POOL_NAMESPACE", required=True, help="The pool's namespace."
)
@click.option("--pool-name", envvar="ISTHMUS_POOL_NAME", required=True, help="The pool's name.")
@click.option("--pool-kind", envvar="ISTHMUS_POOL_KIND", type=click.Choice(KINDS), default=KINDS[0])
@click.option(
    "--namespaces", envvar="DYN_RELAY_NAMESPACES", default="", help="Dynamo namespaces that count, by commas."
)
@click.option(
    "--watch-all", envvar="DYN_RELAY_WATCH_ALL", is_flag=True, help="All Dynamo namespaces of the pool count."
)
@click.option(
    "--endpoint-prefix",
    "prefixes",
    envvar="DYN_RELAY_ENDPOINT_PREFIXES",
    default="",
    help="Only workers whose NAMESPACE.COMPONENT begins with one of these, by commas.",
)
@click.option(
    "--sources-file", envvar="DYN_RELAY_SOURCES_FILE", type=FILE, help="Dynamo namespaces from a JSON file."
)
@click.option("--expected-unique-blocks", type=int, default=1048576, hidden=True)
@click.option(
    "--frontend-roles",
    envvar="ISTHMUS_FRONTEND_ROLES",
    default="",
    help="Roles of a ModelServing that take requests, by commas.  [default: all but prefill, decode, encode]",
)
@click.option(
    "--frontend-port",
    envvar="ISTHMUS_FRONTEND_PORT",
    default="8000",
    help="Port of frontends that name none.",
)
@click.option(
    "--alias", "aliases", multiple=True, envvar="ISTHMUS_MODEL_ALIASES", help="ALIAS=MODEL (repeatable)."
)
@click.option(
    "--max-concurrency",
    envvar="ISTHMUS_MAX_CONCURRENCY",
    type=int,
    help="Requests that the pool takes at once.  [default: as its frontends say]",
)
@click.option("--region", envvar="ISTHMUS_REGION", default="", help="Where the pool is.")
@click.option("--zone", envvar="ISTHMUS_ZONE", default="", help="The zone.  [default: the frontends' nodes']")
@click.option("--datacenter", envvar="ISTHMUS_DATACENTER", default="", help="The data centre.")
@click.option("--discovery", envvar="ISTHMUS_DISCOVERY_URL", default="", help="The discovery service's URL.")
@click.option(
    "--discovery-token-file", envvar="ISTHMUS_DISCOVERY_TOKEN_FILE", type=FILE, help="Its bearer token."
)
@click.option("--discovery-ca-file", envvar="ISTHMUS_DISCOVERY_CA_FILE", type=FILE, help="Its CA, as PEM.")
@click.option(
    "--advertise", envvar="ISTHMUS_ADVERTISE_URL", default="", help="URL of this relay.  [default: of POD_IP]"
)
@click.option(
    "--bind", envvar="DYN_RELAY_BIND", default="", help="Where routers ask, as IP:PORT; nowhere where empty."
)
@click.option("--system-bind", default="", help="Where probes ask; else port --system-port of all addresses.")
@click.option("--system-port", envvar="DYN_SYSTEM_PORT", default="8081", help="Port for probes; 0: none.")
@click.option("--kubeconfig", default="", help="Kubeconfig file; else in-cluster, $KUBECONFIG or home.")
@click.option("--context", "context_name", default="", help="Context of the kubeconfig.")
@click.option("--log-level", envvar="ISTHMUS_LOG_LEVEL", type=click.Choice(logs.LEVELS), default="info")
@click.option("--log-format", envvar="ISTHMUS_LOG_FORMAT", type=click.Choice(logs.FORMATS), default="text")
def command(**options: Any) -> None:
    """Speak for one pool until SIGTERM: what it serves, how ready and how loaded it is, over HTTP and gRPC at
    --bind; and register it with a discovery service."""
    from isthmus.kube import config
    from isthmus.relay import app

    logs.configure(options["log_level"], options["log_format"])
    found = _options(options)
    cluster = config.load(options["kubeconfig"] or None, options["context_name"] or None)
    import uvloop

    code = uvloop.run(app.run(found, cluster))
    if code:
        sys.exit(code)


def _options(raw: dict[str, Any]) -> Any:
    from isthmus.api.pools import Location
    from isthmus.errors import UserError
    from isthmus.relay.options import DiscoveryOptions, RelayOptions, advertised, parse_aliases
    from isthmus.relay.plan.model import Selection
    from isthmus.web.sockets import EVERYWHERE, parse_address, parse_port

    namespaces = _listed(raw["namespaces"])
    if raw["watch_all"] and (namespaces or raw["sources_file"]):
        raise UserError("--watch-all excludes --namespaces and --sources-file")
    port = parse_port("--system-port", raw["system_port"])
    bind = parse_address("--bind", raw["bind"])
    discovery = None
    if raw["discovery"]:
        discovery = DiscoveryOptions(
            url=raw["discovery"],
            token_file=raw["discovery_token_file"],
            ca_file=raw["discovery_ca_file"],
        )
    return RelayOptions(
        cluster_id=raw["cluster_id"],
        selection=Selection(
            kind=raw["pool_kind"],
            namespace=raw["pool_namespace"],
            name=raw["pool_name"],
            namespaces=namespaces,
            prefixes=_listed(raw["prefixes"]),
            frontend_roles=_listed(raw["frontend_roles"]),
            port=parse_port("--frontend-port", raw["frontend_port"]) or 8000,
        ),
        bind=bind,
        system=parse_address("--system-bind", raw["system_bind"]) or ((EVERYWHERE, port) if port else None),
        advertise=advertised(raw["advertise"], bind, os.environ.get("POD_IP", "")),
        discovery=discovery,
        location=Location(region=raw["region"], availability_zone=raw["zone"], datacenter=raw["datacenter"]),
        aliases=parse_aliases("--alias", raw["aliases"]),
        max_concurrency=raw["max_concurrency"],
        sources_file=raw["sources_file"],
        instance=os.environ.get("POD_UID") or os.environ.get("POD_NAME") or socket.gethostname(),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
