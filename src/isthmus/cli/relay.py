"""`isthmus relay`: flags or environment in, a validated RelayOptions out, and the service.

Called through cli/main.py, mostly by the Deployment that the operator makes of a DynamoPoolRelay, which sets
the environment (poolrelay/plan/children.py). Flags and variables that Dynamo's own relay has are named as
there.
"""

from __future__ import annotations

import click

from isthmus import logs

KINDS = ("DynamoGraphDeployment", "ModelServing")


@click.command(context_settings={"show_default": True})
@click.option("--cluster-id", envvar="DYN_CLUSTER_ID", required=True, help="This cluster's name in its set.")
@click.option(
    "--pool-namespace", envvar="ISTHMUS_POOL_NAMESPACE", required=True, help="The pool's namespace."
)
@click.option("--pool-name", envvar="ISTHMUS_POOL_NAME", required=True, help="The pool's name.")
@click.option("--pool-kind", envvar="ISTHMUS_POOL_KIND", type=click.Choice(KINDS), default=KINDS[0])
@click.option(
    "--bind", envvar="DYN_RELAY_BIND", default="", help="Where routers ask, as IP:PORT; nowhere where empty."
)
@click.option("--system-bind", default="", help="Where probes ask; else port --system-port of all addresses.")
@click.option("--system-port", envvar="DYN_SYSTEM_PORT", default="8081", help="Port for probes; 0: none.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info")
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="text")
def command(  # noqa: PLR0913 - one per flag
    cluster_id: str,
    pool_namespace: str,
    pool_name: str,
    pool_kind: str,
    bind: str,
    system_bind: str,
    system_port: str,
    log_level: str,
    log_format: str,
) -> None:
    """Speak for one pool until SIGTERM: whose it is, at /v1/relay, and health on the system port."""
    from isthmus.relay import app
    from isthmus.web.sockets import EVERYWHERE, parse_address, parse_port

    port = parse_port("--system-port", system_port)
    system = parse_address("--system-bind", system_bind) or ((EVERYWHERE, port) if port else None)
    options = app.RelayOptions(
        cluster_id=cluster_id,
        pool_namespace=pool_namespace,
        pool_name=pool_name,
        pool_kind=pool_kind,
        bind=parse_address("--bind", bind),
        system=system,
    )
    logs.configure(log_level, log_format)
    import uvloop

    uvloop.run(app.run(options))
