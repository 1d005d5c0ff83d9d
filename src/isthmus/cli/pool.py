"""`isthmus pool check`: what would be exported of a pool, under which names, and what stands in the way.

Called through cli/main.py. The check itself is the controller's plan (app/poolcheck.py); this module reads
the arguments and shows the answer, as text or as JSON. Exit codes: 0 nothing stands in the way, 1 something
does, 2 it could not be checked.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from isthmus.cli.manifests import documents as read_documents
from isthmus.errors import UserError

if TYPE_CHECKING:
    from isthmus.app.poolcheck import Question
    from isthmus.poolrelay.plan.check import Check
    from isthmus.poolrelay.plan.model import RelaySettings

STATES: Final = {
    "exported": "exported",
    "create": "will be exported",
    "repair": "exported, will be put right",
    "withdraw": "exported, will be withdrawn",
    "foreign": "somebody else's",
    "terminating": "being deleted",
    "impossible": "cannot be exported",
    "withheld": "not exported",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Look at pools and what other clusters get of them."""


@command.command()
@click.argument("name", default="")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="Check the manifests in this file (repeatable; - for stdin) instead of a cluster.",
)
@click.option("-n", "--namespace", default="", help="Of the pool; else the kubeconfig's, or default.")
@click.option(
    "--implementation",
    type=click.Choice(["mcs", "karmada"]),
    help="What exports are for, where --config does not say.  [default: mcs]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="The operator's configuration file.",
)
@click.option("--cluster-id", default="", help="To suppose where there is no relay yet.")
@click.option("--kubeconfig", default="", help="Kubeconfig file; else in-cluster, $KUBECONFIG or home.")
@click.option(
    "--context", "context_name", default="", help="Context of the kubeconfig; else its current one."
)
@click.option("--discovery", default="", help="Ask this discovery service too whether the pool is there.")
@click.option(
    "--discovery-token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file with its bearer token.",
)
@click.option(
    "--discovery-ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file with its CA, as PEM.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def check(name: str, files: tuple[Path, ...], output: str, **options: Any) -> None:
    """Say what would be exported of the pool NAME, and what stands in the way; with --discovery, also whether
    it has arrived there.

    NAME is that of the DynamoPoolRelay, which is its graph's too; with -f it may be left out where the files
    have one pool only. Exits with 1 where something stands in the way.
    """
    found = _of_files(name, files, options) if files else _of_cluster(name, options)
    if options["discovery"]:
        found = _arrived(found, options)
    if output == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=1))
    else:
        click.echo("\n".join(_lines(found)))
    sys.exit(_exit_code(found))


def _arrived(found: Check, options: dict[str, Any]) -> Check:
    from isthmus.app import poolcheck
    from isthmus.relay.options import DiscoveryOptions

    discovery = DiscoveryOptions(
        url=options["discovery"],
        token_file=options["discovery_token_file"],
        ca_file=options["discovery_ca_file"],
    )
    return asyncio.run(poolcheck.arrived(found, discovery))


def _exit_code(found: Check) -> int:
    """A discovery service that could not be asked is a part that could not be checked."""
    from isthmus.poolrelay.plan.arrival import UNREACHABLE

    if any(finding.reason == UNREACHABLE for finding in found.findings):
        return 2
    return 1 if found.findings else 0


def _of_files(name: str, files: tuple[Path, ...], options: dict[str, Any]) -> Check:
    from isthmus.app import poolcheck

    documents = [document for path in files for document in read_documents(path)]
    question = _question(name or poolcheck.only_name(documents), options["namespace"] or "default", options)
    return poolcheck.of_documents(documents, question)


def _of_cluster(name: str, options: dict[str, Any]) -> Check:
    from isthmus.app import poolcheck
    from isthmus.kube import config
    from isthmus.kube.client import Client

    if not name:
        raise UserError("name the pool, or give manifests with -f")
    settings = config.load(options["kubeconfig"] or None, options["context_name"] or None)
    question = _question(name, options["namespace"] or settings.namespace or "default", options)

    async def ask() -> Check:
        async with Client(settings, user_agent="isthmus-pool-check") as client:
            return await poolcheck.of_cluster(client, question)

    return asyncio.run(ask())


def _question(name: str, namespace: str, options: dict[str, Any]) -> Question:
    from isthmus.app.poolcheck import Question

    return Question(namespace, name, _settings(options), options["cluster_id"])


def _settings(options: dict[str, Any]) -> RelaySettings:
    """The operator's settings: its file's, else what is most common. An image is taken for granted where no
    file says that there is none."""
    from isthmus.api.configuration import MultiCluster, OperatorConfiguration, Relay
    from isthmus.app import configfile
    from isthmus.app.poolrelay import settings_of

    path, implementation = options["config_file"], options["implementation"]
    if path is None:
        configuration = OperatorConfiguration(
            multi_cluster=MultiCluster(mcs_implementation=implementation or "mcs"), relay=Relay(image="-")
        )
        return settings_of(configuration)
    configuration = configfile.read(path)
    if implementation and configuration.multi_cluster.mcs_implementation != implementation:
        raise UserError(
            f"--implementation {implementation}: --config has"
            f' "{configuration.multi_cluster.mcs_implementation}"'
        )
    return settings_of(configuration)


def _lines(found: Check) -> Iterator[str]:
    state = "published" if found.published else "not published"
    known = f", cluster ID {found.cluster_id}" if found.cluster_id else ""
    yield f"pool {found.namespace}/{found.name}: {state}{known}"
    if found.exports:
        width = max(len(export.name) for export in found.exports)
        for export in found.exports:
            of = f"  ({', '.join(export.of)})" if export.of else ""
            yield f"  {export.name:<{width}}  {STATES[export.state]}{of}"
    if found.arrived is not None:
        yield f"  discovery service: {'there' if found.arrived else 'not there'}"
    for finding in found.findings:
        yield f"in the way: {finding.reason}: {finding.text}"
    for note in found.notes:
        yield f"note: {note}"
    if not found.findings:
        yield "nothing stands in the way"
