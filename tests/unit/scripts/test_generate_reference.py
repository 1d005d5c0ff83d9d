from __future__ import annotations

from pathlib import Path

from scripts.generate_reference import render, walk

from isthmus.api.crd.modelserving import schema

PAGE = Path(__file__).parents[3] / "docs/reference/modelserving.md"


def test_reference_must_be_what_the_definitions_say() -> None:
    assert PAGE.read_text() == render(), (
        "run: .venv/bin/python scripts/generate_reference.py > docs/reference/modelserving.md"
    )


def test_reference_must_describe_every_field_of_ours() -> None:
    page = render()
    for part in ("spec", "status"):
        for path, field, _ in walk(schema()["properties"][part], part):
            assert f"| `{path}` |" in page
            assert field.get("description"), path
