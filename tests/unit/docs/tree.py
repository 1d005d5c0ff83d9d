"""The repository as text, for checks over all of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".go", ".mod", ".json", ".cfg", ".sh", ""}
_MADE = {".venv", "__pycache__", "dist", "build"}


@cache
def files() -> tuple[str, ...]:
    """What git has or would add, relative to ROOT; what lies there where this is no git work tree."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*") if not _MADE & {*path.parts}]
    return tuple(sorted(name for name in names if (ROOT / name).is_file()))


def texts(*below: str) -> Iterator[tuple[str, str]]:
    """(name, text) of each text file in these folders or with these names; of all where none is given."""
    for name in files():
        if Path(name).suffix not in _TEXT or (below and not name.startswith(below)):
            continue
        try:
            yield name, (ROOT / name).read_text("utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
