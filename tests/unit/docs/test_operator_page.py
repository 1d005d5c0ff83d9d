"""docs/operator.md and examples/operator say what the code does: flags, metrics and rights."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml

from isthmus.cli.operator import command
from isthmus.sandbox.rbac import OPERATOR_RULES
from tests.unit.docs.tree import ROOT, texts

PAGE = (ROOT / "docs" / "operator.md").read_text("utf-8")
ROW = re.compile(r"^\| `([^`]+)` \|(.*?)\|", re.MULTILINE)
METRIC = re.compile(
    r"^(?:isthmus(?!_relay_)|workqueue|controller_runtime|rest_client|leader_election)_[a-z_]+$"
)
"""The operator's; those of services are in their own pages."""


def default_of(option: click.Option) -> str:
    if option.multiple:
        return ""
    if isinstance(option.default, bool):
        return str(option.default).lower()
    return str(option.default) or '""'


def test_flags_must_be_in_the_table_with_their_defaults() -> None:
    documented = {name: value.strip(" `") for name, value in ROW.findall(PAGE) if name.startswith("--")}
    options = {
        next(name for name in option.opts if name.startswith("--")): default_of(option)
        for option in command.params
        if isinstance(option, click.Option)
    }
    assert documented == options


@pytest.mark.covers("MS-117")
def test_metrics_must_be_in_the_table() -> None:
    documented = {name for name, _ in ROW.findall(PAGE) if METRIC.match(name)}
    made = {
        node.value
        for name, text in texts("src/")
        if name.endswith(".py")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and METRIC.match(node.value)
    }
    assert documented == made


def rights(*names: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for name in names
        for document in yaml.safe_load_all((ROOT / "examples" / "operator" / name).read_text("utf-8"))
        if document["kind"] in ("Role", "ClusterRole")
        for each in document["rules"]
        for group in each["apiGroups"]
        for resource in each["resources"]
        for verb in each["verbs"]
    }


def documented_rights() -> Iterator[tuple[str, str, str]]:
    table = PAGE.split("## Rights", 1)[1].split("\n## ", 1)[0]
    for row in re.findall(r"^\|(.*?)\|(.*?)\|(.*?)\|.*\|$", table, re.MULTILINE)[2:]:
        group, resources, verbs = (cell.strip() for cell in row)
        yield from ((group, one, verb) for one in resources.split(", ") for verb in verbs.split(", "))


@pytest.mark.covers("MS-118", "MS-429")
@pytest.mark.parametrize("manifest", ["rbac.yaml", "rbac-namespaced.yaml"])
def test_manifests_must_grant_exactly_the_rights_of_the_table(manifest: str) -> None:
    documented = set(documented_rights())
    if manifest == "rbac-namespaced.yaml":  # only an operator of the whole cluster looks for others' claims
        documented -= {("coordination.k8s.io", "leases", verb) for verb in ("list", "watch")}
    assert rights(manifest) == documented


def test_rights_must_be_among_those_of_the_sandboxs_operator() -> None:
    granted = {
        (group, one, verb)
        for group, resources, verbs in OPERATOR_RULES
        for one in resources
        for verb in verbs
    }
    assert rights("rbac.yaml") <= granted


def test_deployment_must_call_the_operator_with_flags_that_there_are() -> None:
    documents: list[Any] = list(
        yaml.safe_load_all((ROOT / "examples" / "operator" / "deployment.yaml").read_text("utf-8"))
    )
    (container,) = documents[0]["spec"]["template"]["spec"]["containers"]
    subcommand, *arguments = container["args"]
    assert subcommand == "operator"
    command.make_context("operator", arguments)
