"""`isthmus explain`: why something is not ready, or what its rollout waits for, in plain words.

Called through cli/main.py. What is said comes from app/explain.py, with the operator's own planner, and from
the operator's debug port where one is named; this module reads the arguments and prints. Exit codes: 0 all is
as wanted, 1 it is not, 2 it could not be told.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from isthmus.cli.dumps import DebugClient, Unreadable, visible
from isthmus.clock import SystemClock
from isthmus.errors import IsthmusError, UserError

if TYPE_CHECKING:
    from isthmus.app.explain import Explained

TIMEOUT_S: Final = 10.0
"""How long one request to the API server may take, with its repeats."""
DECISIONS: Final = 3
"""The last decisions of the operator that are shown."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Say why something is not ready, or what it waits for."""


@command.command()
@click.argument("name")
@click.option("-n", "--namespace", default="", help="Else the kubeconfig's, or default.")
@click.option(
    "--debug-address",
    envvar="ISTHMUS_DEBUG_ADDRESS",
    default="",
    metavar="HOST:PORT",
    help="An operator's debug port: say what it believes and decided as well.",
)
@click.option("--kubeconfig", default="", help="Kubeconfig file; else in-cluster, $KUBECONFIG or home.")
@click.option("--context", default="", help="Context of the kubeconfig; else its current one.")
def modelserving(name: str, namespace: str, debug_address: str, kubeconfig: str, context: str) -> None:
    """Explain the ModelServing NAME from its objects in the cluster, as the operator sees them.

    Works without an operator. Exits with 0 where all is as wanted, and with 1 where it is not.
    """
    debug = _debug_client(debug_address)
    try:
        found, namespace = _look(name, namespace, kubeconfig, context)
    except UserError:
        raise
    except IsthmusError as problem:
        click.echo(f"error: cannot read from the API server: {visible(str(problem))}", err=True)
        for line in _heard(debug, namespace or "default", name):
            click.echo(line)
        sys.exit(2)
    for line in [*found.lines, *_heard(debug, namespace, name)]:
        click.echo(visible(line))
    sys.exit(0 if found.ready else 1)


def _debug_client(address: str) -> DebugClient | None:
    if not address:
        return None
    host, _, port = address.rpartition(":")
    return DebugClient.of_url(address if "//" in address else f"http://{host or '127.0.0.1'}:{port}")


def _look(name: str, namespace: str, kubeconfig: str, context: str) -> tuple[Explained, str]:
    from isthmus.app.explain import look
    from isthmus.kube import config
    from isthmus.kube.client import Client

    settings = config.load(kubeconfig or None, context or None)
    where = namespace or settings.namespace or "default"

    async def ask() -> Explained:
        async with Client(settings, user_agent="isthmus-explain", timeout_s=TIMEOUT_S) as client:
            return await look(client, where, name, SystemClock().now())

    return asyncio.run(ask()), where


def _heard(debug: DebugClient | None, namespace: str, name: str) -> Iterator[str]:
    """What the operator itself says, where it can be asked."""
    if debug is None:
        return
    try:
        decisions = debug.decisions(namespace, name).get(f"{namespace}/{name}", [])
        groups = debug.cache(namespace, name).get(f"{namespace}/{name}")
    except Unreadable as problem:
        yield f"The operator cannot be asked: {problem}."
        return
    if groups is None:
        yield "The operator does not know it: it watches other namespaces, or another cluster."
        return
    states = [f"{group} {each.status}" for group, each in groups.items() if each.status != "Running"]
    if states:
        more = f" and {len(states) - 10} more" if len(states) > 10 else ""
        yield f"The operator sees {', '.join(states[:10])}{more}."
    if not decisions:
        yield "The operator has decided nothing about it: it does not lead, or has just started."
        return
    yield "The operator decided last:"
    for decision in decisions[-DECISIONS:]:
        yield f"  {decision.time}  {decision.outcome}"
