"""A graph or a ModelServing -> the Pool that a relay serves: all that is read of it, whatever its kind.

store.py calls one of these for each look at a relay. Of a ModelServing the Services that there are count, not
those that its spec lets expect: replicas keep their numbers when others go, so that only the Services
themselves say which entries there are. Its health is not asked for: like a graph's, it is told by the relay's
own process and by endpoints, and is no reason to withdraw (PR-77).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from isthmus.api.pods import ServingService
from isthmus.api.poolgraph import POOL_GRAPHS, PoolGraph, component_service_name, dynamo_namespace
from isthmus.api.poolrelay import SERVING_TARGETS, Target
from isthmus.poolrelay.plan.model import GRAPH_KIND, SERVING_KIND, Frontend, Pool
from isthmus.poolrelay.plan.ownership import is_ours

WORKERS: Final = frozenset({"worker", "prefill", "decode"})
"""Types of components that serve (PR-26)."""
FRONTEND: Final = "frontend"


def graph_pool(graph: PoolGraph, default_backend: str) -> Pool:
    """A graph as a pool: its ways in are the Services of its components of type frontend, whatever their
    names (PR-38). `default_backend` is the configuration's (PR-25)."""
    meta, components = graph.metadata, graph.spec.all
    return Pool(
        api_version=graph.api_version or POOL_GRAPHS[0].api_version,
        kind=GRAPH_KIND,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        terminating=meta.terminating,
        unsupported=_unsupported(graph, default_backend),
        shared=any(each.global_dynamo_namespace for each in components),
        has_workers=any(each.type in WORKERS for each in components),
        frontends=tuple(
            Frontend(each.name, component_service_name(meta.name, each.name))
            for each in components
            if each.type == FRONTEND
        ),
        namespaces=(dynamo_namespace(meta.namespace, meta.name),),
    )


def _unsupported(graph: PoolGraph, default_backend: str) -> str:
    """Why a relay could not see this graph's workers: it knows Kubernetes discovery by pods alone."""
    if graph.spec.problem:
        return f"its spec cannot be read: {graph.spec.problem}"
    backend = graph.metadata.annotations.backend or default_backend
    if backend != "kubernetes":
        return f"its discovery backend is {backend}; a relay needs kubernetes"
    mode = graph.metadata.annotations.mode or "pod"
    if mode != "pod":
        return f"its discovery mode is {mode}; a relay needs pod"
    return ""


def serving_pool(serving: Target, services: Iterable[ServingService]) -> Pool:
    """A ModelServing as a pool: its ways in are the headless Services of its role replicas, each of which
    leads to an entry pod. Those of a former ModelServing of the name, or on their way out, are none of it."""
    meta = serving.metadata
    ways_in = [
        Frontend(
            f"{service.metadata.labels.group_name}/{service.metadata.labels.role_id}", service.metadata.name
        )
        for service in services
        if is_ours(service, meta.uid) and not service.metadata.terminating
    ]
    return Pool(
        api_version=SERVING_TARGETS.api_version,
        kind=SERVING_KIND,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        terminating=meta.terminating,
        frontends=tuple(sorted(ways_in)),
    )
