"""docs/relay.md says what the code does: flags, environment and metrics."""

from __future__ import annotations

import ast
import re

import click

from isthmus.cli.relay import command
from tests.unit.docs.tree import ROOT, texts

PAGE = (ROOT / "docs" / "relay.md").read_text("utf-8")
METRIC = re.compile(r"^isthmus_relay_[a-z_]+$")


def test_flags_and_their_environment_must_be_in_the_table() -> None:
    table = PAGE.split("## Flags", 1)[1].split("\n## ", 1)[0]
    rows = [row.split("|")[1:3] for row in re.findall(r"^\| `--.*$", table, re.MULTILINE)]
    flags = {flag for cells in rows for flag in re.findall(r"`(--[a-z-]+)`", cells[0])}
    names = {name for cells in rows for name in re.findall(r"`([A-Z_]+)`", cells[1])}
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    assert flags == {name for option in options for name in option.opts if name.startswith("--")}
    said = [option.envvar for option in options if option.envvar]
    assert names == {name for each in said for name in ([each] if isinstance(each, str) else each)}


def test_metrics_must_be_in_the_table() -> None:
    documented = set(re.findall(r"^\| `(isthmus_relay_[a-z_]+)` \|", PAGE, re.MULTILINE))
    made = {
        node.value
        for name, text in texts("src/")
        if name.endswith(".py")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and METRIC.match(node.value)
    }
    assert documented == made
