"""Helm, built once per machine from the Go module in tools/helm, as build.py does with the control plane.

`isthmus sandbox build helm` (`make helm`) calls `ensure`; the tests of charts/isthmus call `find`, which
never builds. It is the published Helm at the version that tools/helm/go.mod pins; one on PATH is passed by.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from isthmus.errors import UserError
from isthmus.sandbox import build, places
from isthmus.sandbox.compiler import Progress

FLAGS: Final = "-s -w"


def find() -> Path:
    """The program. Raises UserError where it is not built yet."""
    binary = cached()
    if not binary.exists():
        raise UserError(
            "Helm is not built yet",
            hint="run `make helm` once on this machine (`isthmus sandbox build helm`)",
        )
    return binary


def ensure(progress: Progress, environ: Mapping[str, str] | None = None) -> Path:
    """The program, built first where there is none: some minutes, once per machine. Raises UserError where it
    cannot be built."""
    env = os.environ if environ is None else environ
    binary = cached()
    build.build_once(module(), binary, what="Helm", flags=FLAGS, progress=progress, env=env)
    return binary


def module() -> Path:
    """The folder of Helm's Go module. Raises UserError outside a clone."""
    return places.clone() / "tools" / "helm"


def cached() -> Path:
    """Where the program of this clone's module lies, or will lie."""
    return places.cache_home() / f"helm-{build.key(module(), FLAGS)}" / "helm"
