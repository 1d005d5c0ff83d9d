"""Writes docs/conformance.md: every numbered rule, in a few words, with the tests that prove it.

`make conformance` runs it, and tests/unit/docs/test_conformance.py fails when the page is behind. Rules are
the bold heads of docs/behaviour/*.md, reasons for rules without a test are in
docs/behaviour/not-covered.toml, and proofs are the `@pytest.mark.covers(...)` marks of the tests, which are
read as syntax: nothing is imported or run. Order is that of the documents, so that the page changes only
where a rule or a test does.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/conformance.md"
DOCUMENTS = (
    ("ModelServing", "docs/behaviour/modelserving.md"),
    ("Graphs", "docs/behaviour/graph.md"),
    ("Pool relays", "docs/behaviour/poolrelay.md"),
    ("Relay", "docs/behaviour/relay.md"),
    ("Discovery service", "docs/behaviour/discovery.md"),
    ("Router", "docs/behaviour/router.md"),
    ("Faults that others had", "docs/behaviour/reports.md"),
)
REASONS = "docs/behaviour/not-covered.toml"

_NUMBER = r"(?:(?:MS|PR|GD|G|T|RL|DS|GR|PW|D)-[0-9]+|R[0-9]{2})"
RULE = re.compile(rf"\b{_NUMBER}\b")
_HEAD = re.compile(rf"^- \*\*({_NUMBER}) (.+?)\*\*(.*?)(?=\n\n|^- \*\*|\Z)", re.MULTILINE | re.DOTALL)
_ONLY_RULES = re.compile(rf"{_NUMBER}(?: {_NUMBER})*")
_RANGE = re.compile(r"([A-Z]+)-([0-9]+)\.\.([0-9]+)")


class Rule(NamedTuple):
    """One numbered rule: its number, a few words, and the document that has it in full."""

    number: str
    words: str
    document: str


def rules(root: Path = ROOT) -> dict[str, Rule]:
    """All rules by number, in the order of the documents. Raises ValueError for a number that is there
    twice."""
    found: dict[str, Rule] = {}
    for _, document in DOCUMENTS:
        for match in _HEAD.finditer((root / document).read_text("utf-8")):
            number, words, rest = match[1], match[2], match[3]
            if number in found:
                raise ValueError(f"{document}: {number} is there twice")
            outcome = " ".join(rest.split())
            if outcome.startswith("-> "):  # a corner case: the input alone would say nothing
                words = f"{words} {outcome.split('. *')[0].rstrip('.')}"
            found[number] = Rule(number, " ".join(words.split()).rstrip(".,:"), document)
    return found


def reasons(root: Path = ROOT) -> dict[str, str]:
    """Why rules have no test, by number."""
    table = tomllib.loads((root / REASONS).read_text("utf-8"))
    return {number: each["text"] for each in table["reason"] for number in _expanded(each["rules"])}


def _expanded(numbers: Iterable[str]) -> Iterator[str]:
    for number in numbers:
        if match := _RANGE.fullmatch(number):
            yield from (f"{match[1]}-{n}" for n in range(int(match[2]), int(match[3]) + 1))
        else:
            yield number


def proofs(root: Path = ROOT) -> dict[str, list[str]]:
    """Rule number to the tests that are marked with it, each as `path::name`, sorted."""
    found: dict[str, set[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        name = path.relative_to(root).as_posix()
        for test, numbers in _marked(path, root):
            for number in numbers:
                found.setdefault(number, set()).add(f"{name}::{test}")
    return {number: sorted(tests) for number, tests in found.items()}


def _marked(path: Path, root: Path) -> Iterator[tuple[str, set[str]]]:
    """(test, rules) of one file: marks of the module hold for all of its tests, a class's for its own."""
    tree = ast.parse(path.read_text("utf-8"))
    module = _Module(tree, root)
    whole = {
        number
        for node in tree.body
        if isinstance(node, ast.Assign) and any(_names(target) == "pytestmark" for target in node.targets)
        for number in module.covered(node.value)
    }
    for node in tree.body:
        yield from _tests(node, "", whole, module)


def _tests(
    node: ast.stmt, prefix: str, inherited: set[str], module: _Module
) -> Iterator[tuple[str, set[str]]]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    own = {number for decorator in node.decorator_list for number in module.covered(decorator)}
    if isinstance(node, ast.ClassDef):
        for child in node.body:
            yield from _tests(child, f"{prefix}{node.name}::", inherited | own, module)
        for child in node.body:  # a Hypothesis machine's rules have no names that pytest knows
            if isinstance(child, ast.FunctionDef) and not child.name.startswith("test"):
                extra = {n for decorator in child.decorator_list for n in module.covered(decorator)}
                if extra:
                    yield f"{prefix}{node.name}", extra
    elif node.name.startswith("test"):
        yield prefix + node.name, inherited | own


class _Module:
    """One test file: finds the rules that an expression covers, also through names that are assigned."""

    def __init__(self, tree: ast.Module, root: Path) -> None:
        self._root = root
        self._values = _assigned(tree)
        self._imported = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }

    def covered(self, expression: ast.expr) -> set[str]:
        """Rules of every `covers(...)` in `expression`, and in the cases that a name in it stands for."""
        found: set[str] = set()
        for node in ast.walk(expression):
            if isinstance(node, ast.Call) and _names(node.func).endswith("mark.covers"):
                for argument in node.args:
                    found |= self._said(argument)
            elif isinstance(node, ast.Name) and node.id in self._values:
                value = self._values[node.id]
                if any(isinstance(n, ast.Attribute) and n.attr == "covers" for n in ast.walk(value)):
                    found |= self.covered(value)
        return found

    def _said(self, argument: ast.expr) -> set[str]:
        """Rules written in an argument; of names, those written in what they stand for."""
        found = set(_written(argument))
        for node in ast.walk(argument):
            if isinstance(node, ast.Name) and (value := self._value(node.id)) is not None:
                found |= set(_written(value))
        return found

    def _value(self, name: str) -> ast.expr | None:
        if name in self._values:
            return self._values[name]
        module, original = self._imported.get(name, ("", ""))
        path = self._root / (module.replace(".", "/") + ".py")
        if not module or not path.is_file():
            return None
        return _assigned(ast.parse(path.read_text("utf-8"))).get(original)


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    values: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            values[_names(node.targets[0])] = node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            values[_names(node.target)] = node.value
    return values


def _written(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _ONLY_RULES.fullmatch(node.value)
        ):
            yield from node.value.split()


def _names(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_names(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def page(root: Path = ROOT) -> str:
    """The whole of docs/conformance.md."""
    known, proved, why = rules(root), proofs(root), reasons(root)
    covered = sum(number in proved for number in known)
    explained = sum(number in why and number not in proved for number in known)
    lines = [
        "# Conformance",
        "",
        "<!-- Made by `make conformance` (scripts/conformance.py); do not edit. -->",
        "",
        f"{len(known)} rules: {covered} have tests, {explained} have a reason for having none, "
        f"{len(known) - covered - explained} have no test yet. The rules in full are in "
        "[behaviour/](behaviour/); the tests carry their numbers as `@pytest.mark.covers(...)`.",
    ]
    for title, document in DOCUMENTS:
        link = document.removeprefix("docs/")
        lines += [
            "",
            f"## {title}",
            "",
            f"In full: [{link}]({link})",
            "",
            "| rule | in a few words | tests |",
            "|---|---|---|",
        ]
        lines += [
            f"| {rule.number} | {_cell(rule.words)} | {_tests_of(rule.number, proved, why)} |"
            for rule in known.values()
            if rule.document == document
        ]
    return "\n".join(lines) + "\n"


def _tests_of(number: str, proved: dict[str, list[str]], why: dict[str, str]) -> str:
    if number not in proved:
        return why.get(number, "no test yet")
    return "<br>".join(f"`{test.removeprefix('tests/')}`" for test in proved[number])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    """Write the page; with `--check`, say whether it is behind instead."""
    wanted = page()
    path = ROOT / PAGE
    if "--check" in sys.argv[1:]:
        behind = not path.exists() or path.read_text("utf-8") != wanted
        if behind:
            print(f"{PAGE} is behind: run `make conformance`", file=sys.stderr)
        return int(behind)
    path.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
