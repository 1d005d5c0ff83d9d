"""Programs besides the control plane, each built once per machine from a Go module of its own.

Helm for the tests of the chart; Cilium's and Karmada's parts of the Multi-Cluster Services API for the tests
and the demo over several clusters. `isthmus sandbox build NAME` calls `ensure`; who runs one calls `find`,
which never builds. They are the published programs at the versions that go.mod pins: one on PATH is passed
by. How they are built, and where they lie, is as for the control plane (build.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from isthmus.errors import UserError
from isthmus.sandbox import build, places
from isthmus.sandbox.compiler import Extract, Job, Progress

FLAGS: Final = "-s -w"


class Program(NamedTuple):
    """`folder` is below the clone's root; `extracts` are files of modules that are kept beside the binary."""

    name: str
    what: str
    folder: str
    extracts: tuple[Extract, ...] = ()

    def find(self) -> Path:
        """The binary. Raises UserError where it is not built yet."""
        binary = self.cached()
        if not binary.exists():
            raise UserError(
                f"{self.what} is not built yet",
                hint=f"run `isthmus sandbox build {self.name}` once on this machine",
            )
        return binary

    def ensure(self, progress: Progress, environ: Mapping[str, str] | None = None) -> Path:
        """The binary, built first where there is none: some minutes, once per machine. Raises UserError where
        it cannot be built."""
        binary = self.cached()
        build.build_once(
            self.job(), binary, progress=progress, env=os.environ if environ is None else environ
        )
        return binary

    def job(self) -> Job:
        """What there is to build. Raises UserError outside a clone."""
        return Job(places.clone() / self.folder, self.what, FLAGS, self.extracts)

    def cached(self) -> Path:
        """Where the binary of this clone's module lies, or will lie."""
        return places.cache_home() / f"{self.name}-{build.key(self.job())}" / self.name

    def extract(self, path: str) -> Path:
        """Where a file or folder of `extracts` lies."""
        return self.find().parent / path


HELM: Final = Program("helm", "Helm", "tools/helm")
CILIUM: Final = Program("cilium", "Cilium's Multi-Cluster Services API", "controlplane/cilium")
KARMADA: Final = Program(
    "karmada",
    "Karmada",
    "controlplane/karmada",
    (
        Extract("github.com/karmada-io/karmada", "charts/karmada/_crds/bases"),
        Extract("github.com/karmada-io/karmada", "artifacts/deploy/webhook-configuration.yaml"),
    ),
)
ALL: Final = {each.name: each for each in (HELM, CILIUM, KARMADA)}
