"""`isthmus router`: flags or environment in, validated RouterOptions out, and the service.

Called through cli/main.py. Flags and variables that Dynamo's global router has are named as there (GR-1);
flags win over the environment. What only concerns upstream's place in a Dynamo graph (`--model-name`,
`--namespace`, `--component-name`) is not there.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isthmus import logs

if TYPE_CHECKING:
    from isthmus.router.options import RouterOptions

PREFIX = "DYN_GLOBAL_ROUTER"
FILE = click.Path(dir_okay=False, path_type=Path)


class Number(click.FloatRange):
    """A number within bounds; neither NaN nor infinity is one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See click.ParamType."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found


@click.command(context_settings={"show_default": True})
@click.option("--listen", default=":8000", help="Where clients ask, as ADDRESS:PORT or :PORT.")
@click.option("--metrics-listen", default="", help="Health and metrics; with the clients where empty.")
@click.option("--discovery", envvar="ISTHMUS_DISCOVERY_URL", default="", help="URL of the discovery service.")
@click.option(
    "--discovery-token-file", type=FILE, envvar="ISTHMUS_DISCOVERY_TOKEN_FILE", help="Bearer token."
)
@click.option("--discovery-ca-file", type=FILE, help="The discovery service's authority, as PEM.")
@click.option("--pools-file", type=FILE, help="Pools from a JSON file, in place of --discovery.")
@click.option("--policy", type=click.Choice(["load", "locality", "grid"]), default="load")
@click.option(
    "--config", type=FILE, envvar=f"{PREFIX}_CONFIG", help="The grid: upstream's configuration file."
)
@click.option(
    "--default-ttft-target-ms",
    "--default-ttft-target",
    "ttft",
    type=Number(0.0, 1e12),
    envvar=f"{PREFIX}_DEFAULT_TTFT_TARGET_MS",
    help="For requests without one; else mid-range.",
)
@click.option(
    "--default-itl-target-ms",
    "--default-itl-target",
    "itl",
    type=Number(0.0, 1e12),
    envvar=f"{PREFIX}_DEFAULT_ITL_TARGET_MS",
    help="For requests without one; else mid-range.",
)
@click.option("--region", envvar="ISTHMUS_REGION", default="", help="Where this router is, for locality.")
@click.option("--zone", envvar="ISTHMUS_ZONE", default="", help="The zone that this router is in.")
@click.option(
    "--spill-at",
    type=Number(0.01, 10.0),
    default=0.9,
    help="Share of a pool's capacity from which farther pools are preferred.",
)
@click.option("--weight", multiple=True, metavar="CLUSTER=NUMBER", help="A cluster's weight; repeatable.")
@click.option(
    "--priority-override",
    multiple=True,
    metavar="MIN:MAX=POOL",
    help="Requests of these priorities try this pool first; repeatable.",
)
@click.option(
    "--max-concurrency",
    type=click.IntRange(0),
    default=0,
    help="This router's requests at one pool at once; 0: what its models say.",
)
@click.option("--max-load-age", type=Number(0.1, 3600.0), default=10.0, help="Seconds.")
@click.option("--loads/--no-loads", default=True, help="Whether relays are asked for their pools' load.")
@click.option("--attempts", type=click.IntRange(1, 10), default=3, help="Pools tried for one request.")
@click.option("--retry-share", type=Number(0.0, 1.0), default=0.2, help="Retries, of all requests.")
@click.option("--retry-floor", type=Number(0.0, 1e6), default=10.0, help="Retries a second, always.")
@click.option("--breaker-failures", type=click.IntRange(1, 1000), default=3, help="In a row, that open it.")
@click.option("--breaker-open", type=Number(0.1, 600.0), default=1.0, help="Seconds, at first.")
@click.option("--breaker-open-max", type=Number(0.1, 3600.0), default=30.0, help="Seconds.")
@click.option("--connect-timeout", type=Number(0.1, 600.0), default=5.0, help="Seconds.")
@click.option("--first-byte-timeout", type=Number(0.1, 86400.0), default=60.0, help="Seconds.")
@click.option(
    "--between-timeout",
    type=Number(0.1, 86400.0),
    default=60.0,
    help="Seconds between two pieces of an answer.",
)
@click.option("--total-timeout", type=Number(0.1, 86400.0), default=1800.0, help="Seconds.")
@click.option(
    "--idle-timeout",
    type=Number(0.1, 3600.0),
    default=4.0,
    help="Seconds that an idle connection to a pool is kept; less than the pools keep theirs.",
)
@click.option("--forward-authorization", is_flag=True, help="Pass clients' credentials on to pools.")
@click.option("--max-body-bytes", type=click.IntRange(1024, 1 << 30), default=16 << 20)
@click.option(
    "--max-held-bytes",
    type=click.IntRange(1 << 20, 1 << 40),
    default=512 << 20,
    help="Request bodies in memory at once.",
)
@click.option("--max-connections", type=click.IntRange(1, 1_000_000), default=4096)
@click.option(
    "--drain-delay",
    type=Number(0.0, 600.0),
    default=5.0,
    help="Seconds after SIGTERM during which requests are still taken.",
)
@click.option(
    "--drain-timeout",
    type=Number(0.0, 86400.0),
    default=300.0,
    help="Seconds that running answers then have.",
)
@click.option("--access-log/--no-access-log", default=True)
@click.option("--ui/--no-ui", default=True, help="The page for people at /ui.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info")
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="text")
def command(**given: Any) -> None:
    """Serve the pools of all clusters under one OpenAI-compatible address, until SIGTERM."""
    from isthmus.router import app

    logs.configure(given["log_level"], given["log_format"])
    options = read_options(given)
    import uvloop

    uvloop.run(app.run(options))


def read_options(given: dict[str, Any]) -> RouterOptions:
    """The options that these flags come to. Raises UserError, naming the flag."""
    from isthmus.errors import UserError
    from isthmus.router import options as known
    from isthmus.router.plan.breaker import BreakerSettings
    from isthmus.router.plan.grid import Defaults
    from isthmus.router.plan.model import Place
    from isthmus.router.plan.selector import PolicySettings
    from isthmus.router.pools import Source
    from isthmus.router.proxy import ProxySettings
    from isthmus.router.upstream import Timeouts
    from isthmus.web.sockets import parse_address

    listen = parse_address("--listen", given["listen"])
    if listen is None:
        raise UserError("--listen: there must be somewhere for clients to ask")
    grid = None
    if given["config"] is not None:
        read = known.read_grid(given["config"])
        for warning in read.warnings:
            logs.get(__name__).warning("grid", warning=warning)
        grid = read.grid
    source = None
    if given["discovery"]:
        from isthmus.api.pools import check_url

        check_url("--discovery", given["discovery"])
        source = Source(
            url=given["discovery"], token=given["discovery_token_file"], ca=given["discovery_ca_file"]
        )
    elif given["discovery_token_file"] is not None or given["discovery_ca_file"] is not None:
        raise UserError("--discovery-token-file and --discovery-ca-file need --discovery")
    return known.RouterOptions(
        listen=listen,
        metrics=parse_address("--metrics-listen", given["metrics_listen"]),
        discovery=source,
        pools_file=given["pools_file"],
        policy=PolicySettings(
            policy=given["policy"],
            grid=grid,
            defaults=Defaults(given["ttft"], given["itl"]),
            place=Place(given["region"], given["zone"]),
            spill_at=given["spill_at"],
            weights=known.read_weights(given["weight"]),
            priorities=known.read_priorities(given["priority_override"]),
            limit=given["max_concurrency"],
            max_load_age_s=given["max_load_age"],
            breaker=BreakerSettings(
                threshold=given["breaker_failures"],
                first_s=given["breaker_open"],
                longest_s=given["breaker_open_max"],
            ),
        ),
        proxy=ProxySettings(
            attempts=given["attempts"],
            total_s=given["total_timeout"],
            authorization=given["forward_authorization"],
        ),
        timeouts=Timeouts(
            connect_s=given["connect_timeout"],
            first_byte_s=given["first_byte_timeout"],
            between_s=given["between_timeout"],
            total_s=given["total_timeout"],
            idle_s=given["idle_timeout"],
        ),
        drain=known.Drain(delay_s=given["drain_delay"], timeout_s=given["drain_timeout"]),
        retry_share=given["retry_share"],
        retry_floor_per_s=given["retry_floor"],
        connections=given["max_connections"],
        body_bytes=given["max_body_bytes"],
        held_bytes=given["max_held_bytes"],
        loads=given["loads"],
        access_log=given["access_log"],
        page=given["ui"],
    )
