"""What holds for the repository as a whole: documents that lead somewhere, modules that say what they are."""

from __future__ import annotations

import ast
import re
from urllib.parse import unquote

import pytest

from tests.unit.docs.tree import ROOT, files, texts

MODULES = [name for name in files() if name.startswith("src/isthmus/") and name.endswith(".py")]
DOCUMENTS = [name for name in files() if name.endswith(".md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
    )
)
MACHINE = re.compile(r"(?<![\w.~-])/(?:work|root|home/[a-z]\w*|Users/\w+|tmp/\w+)/\w")


def docstring_lines(module: str) -> int:
    text = ast.get_docstring(ast.parse((ROOT / module).read_text("utf-8"))) or ""
    return len(text.splitlines())


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("__init__.py")])
def test_module_must_say_in_3_to_10_lines_what_it_is(module: str) -> None:
    assert 3 <= docstring_lines(module) <= 10


def test_readme_must_show_both_commands_first() -> None:
    opening = (ROOT / "README.md").read_text("utf-8").split("\n## ", 1)[0]
    assert "make demo" in opening
    assert "make test" in opening


@pytest.mark.parametrize("document", DOCUMENTS)
def test_relative_links_must_lead_to_a_file(document: str) -> None:
    text = CODE.sub("", (ROOT / document).read_text("utf-8"))
    targets = [link.partition("#")[0] for link in LINK.findall(text) if "://" not in link and link[0] != "#"]
    broken = [link for link in targets if not ((ROOT / document).parent / unquote(link)).exists()]
    assert not broken


def test_no_file_must_name_a_package_registry() -> None:
    found = [(name, host) for name, text in texts() for host in HOSTS if host in text]
    assert not found


def test_no_file_must_name_a_path_of_one_machine() -> None:
    found = [(name, match[0]) for name, text in texts() for match in MACHINE.finditer(text)]
    assert not found


def test_every_invariant_must_be_written_down() -> None:
    known = set(
        re.findall(r"^\| (INV-[0-9]+) \|", (ROOT / "docs/invariants.md").read_text("utf-8"), re.MULTILINE)
    )
    cited = {
        number
        for _, text in texts("src/", "tests/", "docs/")
        for number in re.findall(r"\bINV-[0-9]+\b", text)
    }
    assert cited <= known


def test_functions_and_tests_of_invariants_must_exist() -> None:
    table = (ROOT / "docs/invariants.md").read_text("utf-8").split("|---|", 1)[1]
    for path, name in re.findall(r"`([\w/]+\.py)::(\w+)`", table):
        file = next(
            (root / path for root in (ROOT / "src/isthmus", ROOT / "tests") if (root / path).is_file()), None
        )
        assert file is not None, path
        tree = ast.parse(file.read_text("utf-8"))
        names = {
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in names, f"{path}::{name}"
