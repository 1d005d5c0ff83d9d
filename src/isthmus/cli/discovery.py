"""`isthmus discovery`: flags in, validated DiscoveryOptions out, and the service.

Called through cli/main.py. Flags are named as those of Dynamo's global discovery service. One that belongs
to another mode or storage ends the start where it was given, whatever its value; its mere default does not
(DS-1).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from isthmus import logs

if TYPE_CHECKING:
    from isthmus.api.pools import RouterRef

FILE = click.Path(dir_okay=False, path_type=Path)
OWNERS: Final = {
    "routers": ("--pool-discovery", ("registrations",)),
    "frontend_suffix": ("--pool-discovery", ("mcs", "karmada")),
    "relay_suffix": ("--pool-discovery", ("mcs", "karmada")),
    "kubeconfig": ("--pool-discovery", ("mcs", "karmada")),
    "context_name": ("--pool-discovery", ("mcs", "karmada")),
    "redis_url": ("--registration-storage", ("redis",)),
    "redis_prefix": ("--registration-storage", ("redis",)),
}
"""Flags that belong to some values of another one."""


@click.command(context_settings={"show_default": True})
@click.option("--listen", default="0.0.0.0:8080", help="Where relays and routers ask; `[::]:8080` for IPv6.")
@click.option("--tls-cert-path", type=FILE, help="Certificate, as PEM; read again when it changes.")
@click.option("--tls-key-path", type=FILE, help="Its key.")
@click.option(
    "--pool-discovery",
    type=click.Choice(["registrations", "karmada", "mcs"]),
    default="registrations",
    help="Where pools' addresses come from.",
)
@click.option("--registration-storage", type=click.Choice(["memory", "redis"]), default="memory")
@click.option(
    "--redis-url", envvar="ISTHMUS_REDIS_URL", default="", help="redis://, rediss:// or unix:// URL."
)
@click.option("--redis-prefix", default="isthmus:", help="What the keys begin with.")
@click.option("--heartbeat-interval-secs", type=float, default=5.0, help="How often relays renew.")
@click.option("--lease-duration-secs", type=float, default=15.0, help="How long a registration holds.")
@click.option("--router", "routers", multiple=True, metavar="ID=URL", help="A router; repeatable.")
@click.option("--frontend-suffix", default="-frontend", help="What frontends' Services end in.")
@click.option("--relay-suffix", default="-pool-relay", help="What relays' Services end in.")
@click.option("--tokens-file", type=FILE, help="Bearer tokens and what they are good for.")
@click.option(
    "--kubeconfig", default="", help="Of the cluster with the imports; else in-cluster or $KUBECONFIG."
)
@click.option("--context", "context_name", default="", help="Context of the kubeconfig.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info")
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="text")
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Join the pools of every cluster into one list, for routers, until SIGTERM."""
    from isthmus.discovery import app
    from isthmus.kube import config

    logs.configure(given["log_level"], given["log_format"])
    _check_owners(context, given)
    options = read_options(given)
    cluster = None
    if given["pool_discovery"] != "registrations":
        cluster = config.load(given["kubeconfig"] or None, given["context_name"] or None)
    import uvloop

    code = uvloop.run(app.run(options, cluster))
    if code:
        sys.exit(code)


def _check_owners(context: click.Context, given: dict[str, Any]) -> None:
    from isthmus.errors import UserError

    flags = {option.name: option.opts[0] for option in context.command.params}
    unset = (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP, None)
    for name, (owner, values) in OWNERS.items():
        value = given[owner.strip("-").replace("-", "_")]
        if value not in values and context.get_parameter_source(name) not in unset:
            raise UserError(
                f"{flags[name]} does not go with {owner} {value}",
                hint=f"it belongs to {' and '.join(values)}",
            )


def read_options(given: dict[str, Any]) -> Any:
    """The options that these flags come to. Raises UserError, naming the flag."""
    from isthmus.discovery.app import DiscoveryOptions, RedisOptions
    from isthmus.discovery.plan.join import Suffixes
    from isthmus.discovery.routes import Granting
    from isthmus.errors import UserError
    from isthmus.web.sockets import parse_address

    listen = parse_address("--listen", given["listen"])
    if listen is None:
        raise UserError("--listen: there must be somewhere to ask")
    if (given["tls_cert_path"] is None) != (given["tls_key_path"] is None):
        raise UserError("--tls-cert-path and --tls-key-path go together")
    heartbeat_s, lease_s = given["heartbeat_interval_secs"], given["lease_duration_secs"]
    if not 0 < heartbeat_s < lease_s:
        raise UserError("--heartbeat-interval-secs must be above 0 and below --lease-duration-secs")
    if not lease_s <= 86_400:
        raise UserError("--lease-duration-secs must be at most 86400")
    redis = None
    if given["registration_storage"] == "redis":
        if not given["redis_url"]:
            raise UserError("--registration-storage redis needs --redis-url")
        redis = RedisOptions(url=given["redis_url"], prefix=given["redis_prefix"])
    suffixes = Suffixes(given["frontend_suffix"], given["relay_suffix"])
    if not suffixes.frontend or not suffixes.relay or suffixes.frontend == suffixes.relay:
        raise UserError("--frontend-suffix and --relay-suffix must be there, and must differ")
    tls = None
    if given["tls_cert_path"] is not None:
        tls = (given["tls_cert_path"], given["tls_key_path"])
    return DiscoveryOptions(
        listen=listen,
        mode=given["pool_discovery"],
        suffixes=suffixes,
        granting=Granting(heartbeat_s=heartbeat_s, lease_s=lease_s, routers=_routers(given["routers"])),
        redis=redis,
        tokens_file=given["tokens_file"],
        tls=tls,
    )


def _routers(given: Sequence[str]) -> tuple[RouterRef, ...]:
    """The values of --router."""
    from isthmus.api.pools import InvalidField, RouterRef, check_text, check_url
    from isthmus.errors import UserError

    routers = []
    for item in given:
        name, _, url = item.partition("=")
        try:
            check_text("--router", name)
            check_url("--router", url)
        except InvalidField as problem:
            raise UserError(f"{problem}; write --router ID=URL") from None
        routers.append(RouterRef(id=name, url=url))
    if len({each.id for each in routers}) < len(routers):
        raise UserError("--router: an ID is there twice")
    return tuple(routers)
