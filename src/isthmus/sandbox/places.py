"""Where the sandbox keeps things on this machine: binaries in the cache, running sandboxes in the state.

`build` and `sandbox` ask here and nowhere else. The XDG variables rule where they are set; a HOME that is
unset, empty or not writable is replaced by the passwd entry and then by a folder of this user's in the
temporary directory. Neither place is ever inside the clone, where a build of 131 MB would be copied, searched
and, one day, committed. Nothing here creates a folder.
"""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from pathlib import Path
from typing import Final

from isthmus.errors import UserError

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


def clone() -> Path:
    """The root of the clone that this package runs from. Raises UserError where there is none."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "controlplane" / "go.mod").is_file():
        raise UserError(
            "the sandbox runs from a clone of the repository: its control plane's Go module is not installed",
            hint="clone the repository and run `make setup`, or set ISTHMUS_CONTROLPLANE to a built binary",
        )
    return root


def module() -> Path:
    """The folder of the control plane's Go module. Raises UserError outside a clone."""
    return clone() / "controlplane"


def cache_home() -> Path:
    """`$XDG_CACHE_HOME/isthmus` or what stands in for it."""
    return _base("XDG_CACHE_HOME", ".cache")


def state_home() -> Path:
    """`$XDG_STATE_HOME/isthmus/sandbox` or what stands in for it."""
    return _base("XDG_STATE_HOME", ".local/state") / "sandbox"


def check_name(name: str) -> str:
    """`name` itself. Raises UserError unless it is a short DNS label, since it becomes a folder's name."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"--name {name!r}: use at most 32 lower-case letters, digits and inner hyphens",
        )
    return name


def _base(variable: str, below_home: str) -> Path:
    root = Path(__file__).resolve().parents[3]
    in_clone = root if (root / "pyproject.toml").is_file() else None
    for base in (os.environ.get(variable, ""), *(f"{home}/{below_home}" for home in _homes())):
        path = Path(base)
        # The XDG rules say that a relative path must be ignored.
        if not base or not path.is_absolute():
            continue
        if in_clone is not None and path.resolve().is_relative_to(in_clone):
            continue
        if _can_be_made(path):
            return path / "isthmus"
    return Path(tempfile.gettempdir()) / f"isthmus-{os.getuid()}" / below_home.rpartition("/")[2].lstrip(".")


def _homes() -> tuple[str, ...]:
    try:
        of_passwd = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        of_passwd = ""
    return tuple(home for home in (os.environ.get("HOME", ""), of_passwd) if home)


def _can_be_made(path: Path) -> bool:
    while not path.exists():
        if path.parent == path:
            return False
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
