#!/usr/bin/env python3
"""Write charts/isthmus/crds from the CRDs' own definitions, one file each.

    make chart-crds

A test compares the committed files with what this writes.
"""

from __future__ import annotations

from pathlib import Path

from isthmus.api import crd
from isthmus.cli.crds import to_yaml

FOLDER = Path(__file__).resolve().parent.parent / "charts" / "isthmus" / "crds"
HEAD = "# Made by `make chart-crds` from src/isthmus/api/crd; do not edit.\n"


def files() -> dict[str, str]:
    """File name to content."""
    return {f"{each['metadata']['name']}.yaml": HEAD + to_yaml(each) for each in crd.definitions()}


def main() -> None:
    """Make the folder as it has to be."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted = files()
    for path in FOLDER.iterdir():
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
