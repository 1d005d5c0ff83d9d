"""The `isthmus` command: a group whose subcommands are imported only when they are called.

Each row of COMMANDS names the module that holds a click command called `command`. A UserError from anywhere
below becomes one line on stderr (and a hint on a second) with exit code 2, never a traceback. Importing
everything for `isthmus operator` would cost it memory that its users pay for.
"""

from __future__ import annotations

import importlib
import sys
from typing import Final

import click

from isthmus import __version__
from isthmus.errors import UserError

COMMANDS: Final = {
    "operator": ("isthmus.cli.operator", "Reconcile ModelServings in a cluster."),
    "relay": ("isthmus.cli.relay", "Speak for one pool of workers."),
    "discovery": ("isthmus.cli.discovery", "Join the pools of every cluster into one list."),
    "router": ("isthmus.cli.router", "Serve the pools of all clusters under one address."),
    "debug": ("isthmus.cli.debug", "Read an operator's debug port."),
    "explain": ("isthmus.cli.explain", "Say why something is not ready, or what it waits for."),
    "plan": ("isthmus.cli.plan", "Print what a manifest makes and how an update goes, without a cluster."),
    "pool": ("isthmus.cli.pool", "Look at pools and what other clusters get of them."),
    "crds": ("isthmus.cli.crds", "Print the CustomResourceDefinitions."),
    "sandbox": ("isthmus.cli.sandbox", "Run real control planes on this machine."),
}


class LazyGroup(click.Group):
    """A click group that knows its commands' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name` and return its `command`; None where there is no such
        subcommand."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands from COMMANDS, so that `--help` imports none of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="isthmus")
def cli() -> None:
    """Isthmus takes LLM serving from one Kubernetes cluster to many."""


def main() -> None:
    """Run the command line; the console script's entry point."""
    try:
        cli.main()
    except UserError as error:
        click.echo(f"error: {error}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
