"""`isthmus debug`: reads an operator's debug port and shows it to a person, or compares it with the API
server.

Called through cli/main.py. dumps.py fetches, tree.py and differences.py make something of it, and this module
prints and chooses exit codes: 0 read, 1 could not be read (or, for `diff`, differs), 2 wrong usage (or, for
`diff`, could not be compared), as diff(1) does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import click
import msgspec

from isthmus.cli.dumps import DebugClient, NotComplete, Unreadable
from isthmus.errors import UserError
from isthmus.modelserving.dto import CacheDump

DEFAULT_INTERVAL_S: Final = 2.0
SECOND_LOOK_S: Final = 1.0
"""How long a difference must last to be one: events are on their way meanwhile."""

sleep: Callable[[float], None] = time.sleep


class Target:
    """Which debug port to read, and how to say that it could not be read."""

    def __init__(self, port: int | None, url: str | None) -> None:
        if url is not None:
            self.client = DebugClient.of_url(url)
        elif port is not None:
            self.client = DebugClient(("127.0.0.1", "::1"), port)
        else:
            raise UserError(
                "which debug port? Give --port or --url, or set ISTHMUS_DEBUG_PORT",
                hint="it is the operator's --debug-port, or the local end of kubectl port-forward",
            )


def _reading(function: Callable[..., None]) -> Callable[..., None]:
    """The options of every subcommand."""
    for option in (
        click.option("--name", help="Only ModelServings of this name."),
        click.option("-n", "--namespace", help="Only ModelServings of this namespace."),
        click.option("--url", help="The debug port as http://HOST:PORT, instead of --port."),
        click.option(
            "--port",
            type=click.IntRange(1, 65535),
            envvar="ISTHMUS_DEBUG_PORT",
            help="The debug port on this machine.",
        ),
    ):
        function = option(function)
    return function


_output = click.option(
    "-o",
    "--output",
    type=click.Choice(["tree", "json"]),
    default="tree",
    show_default=True,
    help="A tree for people, or the JSON of the debug port.",
)


@click.group()
def command() -> None:
    """Read an operator's debug port.

    The operator serves it on loopback when started with --debug-port. For one that runs in a cluster:

        kubectl port-forward -n NAMESPACE POD 8070:8070
    """


@command.command()
@_reading
@_output
@click.option("--watch", is_flag=True, help="Read again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=DEFAULT_INTERVAL_S,
    show_default=True,
    help="Seconds between two readings of --watch.",
)
def cache(  # noqa: PLR0913 - one parameter per option
    port: int | None,
    url: str | None,
    namespace: str | None,
    name: str | None,
    output: str,
    watch: bool,
    interval: float,
) -> None:
    """Show what the operator's cache holds: ModelServings, groups, roles, instances and running pods.

    What is not Running is marked with "!".
    """
    client = Target(port, url).client

    def read() -> CacheDump:
        return client.cache(namespace, name)

    with _failing(1):
        if watch:
            _watch(read, output, interval)
        else:
            _show(read(), output)


@command.command()
@_reading
@_output
def decisions(
    port: int | None, url: str | None, namespace: str | None, name: str | None, output: str
) -> None:
    """Show the operator's last decisions about each ModelServing: what it saw, planned and why, and how it
    ended."""
    client = Target(port, url).client
    with _failing(1):
        dump = client.decisions(namespace, name)
        if output == "json":
            _print_json(dump)
            return
        from isthmus.cli.tree import decision_tree

        _console().print(decision_tree(dump))


@command.command()
@_reading
@click.option("--kubeconfig", help="The cluster to compare with; else as kubectl finds it.")
def diff(
    port: int | None, url: str | None, namespace: str | None, name: str | None, kubeconfig: str | None
) -> None:
    """Compare the operator's cache with what the API server says now, and print the differences.

    A difference that is gone a second later is not printed: it was on its way. The exit code is 0 where there
    is none, 1 where there are some, and 2 where the two could not be compared.
    """
    client = Target(port, url).client
    with _failing(2):
        lines = _lasting_differences(client, namespace, name, kubeconfig)
    for line in lines:
        click.echo(line)
    if lines:
        sys.exit(1)
    click.echo("no differences", err=True)


def _lasting_differences(
    client: DebugClient, namespace: str | None, name: str | None, kubeconfig: str | None
) -> list[str]:
    from isthmus.cli.compare import fetch_view
    from isthmus.cli.differences import differences

    def look() -> list[str]:
        api = asyncio.run(fetch_view(kubeconfig, namespace, name))
        return differences(client.cache(namespace, name), api)

    first = look()
    if not first:
        return []
    sleep(SECOND_LOOK_S)
    second = set(look())
    return [line for line in first if line in second]


@contextlib.contextmanager
def _failing(code: int) -> Any:
    """Turn a failure to read into a line on stderr, a hint, and this exit code."""
    try:
        yield
    except Unreadable as problem:
        click.echo(f"error: {problem}", err=True)
        if problem.hint:
            click.echo(f"hint: {problem.hint}", err=True)
        sys.exit(code)


def _show(dump: CacheDump, output: str) -> None:
    if output == "json":
        _print_json(dump)
        return
    from isthmus.cli.tree import cache_tree

    _console().print(cache_tree(dump))


def _watch(read: Callable[[], CacheDump], output: str, interval_s: float) -> None:
    """Until Ctrl-C. The first reading must succeed, unless the operator is only starting; later failures are
    shown and reading goes on, since operators restart."""
    from rich.live import Live
    from rich.text import Text

    from isthmus.cli.tree import cache_tree

    console = _console()
    redraw = output == "tree" and console.is_terminal
    started = False
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        live = stack.enter_context(Live(console=console, auto_refresh=False)) if redraw else None
        while True:
            try:
                dump = read()
                started = True
            except Unreadable as problem:
                if not started and not isinstance(problem, NotComplete):
                    raise
                if live is not None:
                    live.update(Text(str(problem), style="bold red"), refresh=True)
                else:
                    click.echo(str(problem), err=True)
            else:
                if live is not None:
                    live.update(cache_tree(dump), refresh=True)
                elif output == "json":
                    click.echo(json.dumps(msgspec.to_builtins(dump)))
                else:
                    console.print(cache_tree(dump), "")
            sleep(interval_s)


def _print_json(dump: Any) -> None:
    """Indented, and ASCII only: JSON lets control characters of upper planes through, terminals obey them."""
    click.echo(json.dumps(msgspec.to_builtins(dump), indent=2))


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)
