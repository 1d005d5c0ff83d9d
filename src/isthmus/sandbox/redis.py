"""A Redis or Valkey server for tests: the machine's own, or Debian's package unpacked into the cache.

`isthmus sandbox build redis` (`make redis`) calls `ensure`; the tests of the discovery service's shared store
call `find`, which fetches nothing. Nothing is installed, so no root is needed and nothing starts by itself:
`apt-get download` and `dpkg -x` into the cache folder, with the libraries that the machine does not have.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from isthmus.errors import UserError
from isthmus.sandbox import places

NAMES: Final = ("valkey-server", "redis-server")
PACKAGES: Final = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
WAIT_S: Final = 120


class Server(NamedTuple):
    """A program, and where its libraries are besides the machine's (None: nowhere)."""

    program: Path
    libraries: Path | None

    def environ(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment to start it in."""
        return dict(base) if self.libraries is None else {**base, "LD_LIBRARY_PATH": str(self.libraries)}


def find() -> Server:
    """The server. Raises UserError where there is none yet."""
    found = _installed() or _unpacked()
    if found is None:
        raise UserError(
            "there is no Redis or Valkey server for tests yet",
            hint="run `make redis` once on this machine (`isthmus sandbox build redis`)",
        )
    return found


def ensure() -> Server:
    """The server, fetched first where there is none. Raises UserError where it cannot be had."""
    return _installed() or _unpacked() or _fetch()


def _installed() -> Server | None:
    for name in NAMES:
        path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
        if path is not None:
            return Server(Path(path), None)
    return None


def _room() -> Path:
    return places.cache_home() / f"redis-{platform.machine()}"


def _unpacked() -> Server | None:
    program = _room() / "usr/bin/redis-server"
    if not program.exists():
        return None
    return Server(program, _room() / f"usr/lib/{platform.machine()}-linux-gnu")


def _fetch() -> Server:
    """Unpack the packages beside their place and move them there, so that no half of them is ever found."""
    hint = "install redis-server or valkey-server by the means of this machine"
    room = _room()
    room.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="redis-", dir=room.parent) as name:
        beside = Path(name) / "unpacked"
        beside.mkdir()
        try:
            _run(["apt-get", "download", "-q", *PACKAGES], Path(name))
            for package in sorted(Path(name).glob("*.deb")):
                _run(["dpkg", "-x", str(package), str(beside)], Path(name))
        except (OSError, subprocess.SubprocessError) as problem:
            output = getattr(problem, "stderr", None) or b""
            text = output.decode(errors="replace").strip().splitlines()[-1:] or [str(problem)]
            raise UserError(f"Redis cannot be fetched: {text[0][:200]}", hint=hint) from problem
        if room.exists():
            shutil.rmtree(room)
        beside.rename(room)
    found = _unpacked()
    if found is None:
        raise UserError("the packages of Redis do not have the server where it should be", hint=hint)
    return found


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=WAIT_S)
