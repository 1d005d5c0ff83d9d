"""docs/conformance.md, the rules in docs/behaviour and the numbers in code, tests and documents agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import conformance

from tests.unit.docs.tree import ROOT, texts


def test_page_must_be_up_to_date() -> None:
    up_to_date = (ROOT / conformance.PAGE).read_text("utf-8") == conformance.page()
    assert up_to_date, "run `make conformance`"


def test_every_number_must_have_a_rule() -> None:
    known = conformance.rules()
    unknown = {
        f"{name}: {number}"
        for name, text in texts("src", "tests", "docs", "benchmarks", "examples", "scripts")
        for number in conformance.RULE.findall(text)
        if number not in known and not name.startswith("tests/unit/docs/")
    }
    assert not unknown, sorted(unknown)


def test_rule_with_a_test_must_have_no_reason_for_having_none() -> None:
    assert sorted(conformance.reasons().keys() & conformance.proofs().keys()) == []


def test_reason_must_be_for_a_rule() -> None:
    assert sorted(conformance.reasons().keys() - conformance.rules().keys()) == []


MARKED = """
import pytest
from tests.cases import CASES
TABLE = [pytest.param(1, marks=pytest.mark.covers("MS-5"))]
pytestmark = [pytest.mark.covers("MS-1")]

@pytest.mark.covers("MS-2", "R03")
def test_plain(): ...

@pytest.mark.covers(*sorted({rule for row in CASES for rule in row[0].split()}))
async def test_cases(): ...

@pytest.mark.parametrize("x", TABLE)
def test_table(x): ...

class TestGroup:
    @pytest.mark.covers("MS-7")
    def test_inside(self): ...

def helper(): ...
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(MARKED)
    (tmp_path / "tests" / "cases.py").write_text('CASES = [("MS-3 MS-4", "a word", "MS")]\n')
    return tmp_path


@pytest.mark.parametrize(
    ("number", "tests"),
    [
        ("MS-1", ["test_cases", "test_plain", "test_table", "TestGroup::test_inside"]),
        ("MS-2", ["test_plain"]),
        ("R03", ["test_plain"]),
        ("MS-3", ["test_cases"]),
        ("MS-4", ["test_cases"]),
        ("MS-5", ["test_table"]),
        ("MS-7", ["TestGroup::test_inside"]),
    ],
)
def test_marks_must_be_found_wherever_they_are_written(tree: Path, number: str, tests: list[str]) -> None:
    assert conformance.proofs(tree)[number] == sorted(f"tests/test_it.py::{test}" for test in tests)
