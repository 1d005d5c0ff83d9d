"""What others want to know of a graph, from its metadata and its components alone: `analyse` (section 13).

The graphs' planner and the relays' both call it, each with its own cut of the object, so that they cannot
disagree about who is a worker or what a Service is called. Nothing of the status is read (PR-77).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec

from isthmus.api.dynamo.names import (
    DISCOVERY_BACKEND,
    DISCOVERY_MODE,
    ENABLE_METRICS,
    component_service_name,
    dynamo_namespace,
)
from isthmus.api.meta import Frozen, ObjectMeta

FRONTEND: Final = "frontend"
PLANNER: Final = "planner"
EPP: Final = "epp"
WORKERS: Final = ("worker", "prefill", "decode")
"""Types of components that serve, in exactly this spelling (GD-8, GD-10, PR-26)."""
TYPES: Final = (FRONTEND, *WORKERS, PLANNER, EPP)
KUBERNETES: Final = "kubernetes"
ETCD: Final = "etcd"
POD_MODE: Final = "pod"
CONTAINER_MODE: Final = "container"


class GraphAnnotations(Frozen, frozen=True, kw_only=True):
    """The annotations of a graph that are read; empty where absent."""

    backend: str = msgspec.field(name=DISCOVERY_BACKEND, default="")
    mode: str = msgspec.field(name=DISCOVERY_MODE, default="")
    metrics: str = msgspec.field(name=ENABLE_METRICS, default="")


class GraphLabels(Frozen, frozen=True, kw_only=True):
    """Labels, of which none is read."""


class GraphMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata of a graph, cut down to what is read."""

    labels: GraphLabels = GraphLabels()  # type: ignore[assignment]
    annotations: GraphAnnotations = GraphAnnotations()  # type: ignore[assignment]


class Described(Protocol):
    """A component in any form."""

    @property
    def name(self) -> str:
        """As the graph calls it."""

    @property
    def type(self) -> str:
        """One of TYPES, or anything else for none."""

    @property
    def global_dynamo_namespace(self) -> bool:
        """Whether it is in the namespace that graphs share."""


class Analysis(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """See the module. `workers` and `frontends` are names of components in the order of the graph;
    `backend` and `mode` are as they were asked for, known or not (GD-25)."""

    terminating: bool
    backend: str
    mode: str
    workers: tuple[str, ...]
    frontends: tuple[str, ...]
    global_namespace: bool
    base_namespace: str
    service_names: Mapping[str, str]


def analyse(meta: GraphMeta, components: Iterable[Described], default_backend: str) -> Analysis:
    """See the module. `default_backend` is the configuration's; the graph's own annotation wins (GD-24)."""
    known = tuple(components)
    return Analysis(
        terminating=meta.terminating,
        backend=meta.annotations.backend or default_backend,
        mode=meta.annotations.mode or POD_MODE,
        workers=tuple(each.name for each in known if each.type in WORKERS),
        frontends=tuple(each.name for each in known if each.type == FRONTEND),
        global_namespace=any(each.global_dynamo_namespace for each in known),
        base_namespace=dynamo_namespace(meta.namespace, meta.name),
        service_names={each.name: component_service_name(meta.name, each.name) for each in known},
    )
