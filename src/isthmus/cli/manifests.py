"""Reads manifests from files for the command line: YAML or JSON, several in one file, Lists taken apart.

plan.py and pool.py call `documents`. What cannot be read is a UserError that names the file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isthmus.errors import UserError


def documents(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file, those of Lists one by one."""
    import yaml

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text("utf-8")
        documents = list(yaml.safe_load_all(text))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"-f {path}: {' '.join(str(error).split())}") from error
    for document in documents:
        for each in document.get("items", [document]) if isinstance(document, dict) else [document]:
            if each is None:
                continue
            if not (isinstance(each, dict) and isinstance(each.get("metadata"), dict) and "kind" in each):
                raise UserError(f"-f {path}: has something that is no object of Kubernetes")
            yield each
