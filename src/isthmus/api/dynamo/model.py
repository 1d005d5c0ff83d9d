"""The one internal model of a graph, whatever version and form it was written in.

normalise.py makes it; the graphs' planner renders from it. Two manifests that mean the same in the two
versions give equal models (G-1). A template is a plain dictionary with `metadata` and `spec`, of which the
parts that are touched here have been seen to have their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from isthmus.api.meta import Raw

MAX_COMPONENTS = 25
MAIN = "main"
"""The container that is the component; all others are sidecars."""


class Finding(NamedTuple):
    """Something about one field, for people."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Refusal(NamedTuple):
    """A part that is not run here: told in status with this reason (GD-40)."""

    path: str
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class GraphComponent(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A component. `path` is where it is in the manifest. One that is not `runs` keeps its name and what
    there is of it, and gets no change."""

    name: str
    path: str
    type: str = ""
    replicas: int = 1
    raw_template: Raw = {}
    global_dynamo_namespace: bool = False
    shared_memory: str = "8Gi"
    frontend_sidecar: str = ""
    runs: bool = True


class Graph(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A graph. With `problems` nothing of it can be made; `refusals` are parts that are not run, `warnings`
    parts without effect."""

    components: tuple[GraphComponent, ...] = ()
    env: tuple[Raw, ...] = ()
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    priority_class: str = ""
    problems: tuple[Finding, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[Finding, ...] = ()
