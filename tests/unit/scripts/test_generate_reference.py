from __future__ import annotations

import pytest
from scripts.generate_reference import FOLDER, PAGES, render, walk


@pytest.mark.parametrize("page", PAGES)
def test_reference_must_be_what_the_definitions_say(page: str) -> None:
    up_to_date = (FOLDER / f"{page}.md").read_text() == render(page)
    assert up_to_date, "run: .venv/bin/python scripts/generate_reference.py"


@pytest.mark.parametrize("page", PAGES)
def test_reference_must_describe_every_field_of_ours(page: str) -> None:
    text = render(page)
    for part in ("spec", "status"):
        for path, field, _ in walk(PAGES[page]()["properties"][part], part):
            assert f"| `{path}` |" in text
            assert field.get("description"), path
