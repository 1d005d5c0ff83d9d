"""`isthmus crds`: the CustomResourceDefinitions on stdout, for `kubectl apply --server-side -f -`.

Called through cli/main.py; the definitions come from isthmus.api.crd. Nothing is sent anywhere.
"""

from __future__ import annotations

import json

import click

from isthmus.api import crd
from isthmus.api.crd.admission import policies


@click.command()
@click.option(
    "--group",
    type=click.Choice(crd.groups()),
    help="Only the CRDs of this API group; all where it is absent.",
)
@click.option(
    "--admission",
    is_flag=True,
    help="Also the ValidatingAdmissionPolicies, which keep people from what CRDs cannot see.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def command(group: str | None, admission: bool, output: str) -> None:
    """Print the CustomResourceDefinitions.

    As a stream of YAML documents, or as a JSON List. Apply them with:

        isthmus crds | kubectl apply --server-side -f -
    """
    definitions = crd.definitions(group)
    if admission:
        definitions += policies()
    if output == "json":
        click.echo(json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}, indent=1))
        return
    for definition in definitions:
        click.echo("---")
        click.echo(to_yaml(definition), nl=False)


def to_yaml(document: object) -> str:
    """YAML without anchors, keys in the order in which they were written, as people expect of a manifest."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    text: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True)
    return text
