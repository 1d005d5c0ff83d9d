"""A graph or a ModelServing -> the Pool that a relay serves: all that is read of it, whatever its kind.

store.py calls one of these for each look at a relay. Of a ModelServing the Services that there are count, not
those that its spec lets expect: replicas keep their numbers when others go, so that only the Services
themselves say which entries there are. Its health is not asked for: like a graph's, it is told by the relay's
own process and by endpoints, and is no reason to withdraw (PR-77).
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.api.dynamo.analysis import KUBERNETES, POD_MODE, Analysis, analyse
from isthmus.api.pods import ServingService
from isthmus.api.poolgraph import POOL_GRAPHS, PoolGraph
from isthmus.api.poolrelay import SERVING_TARGETS, Target
from isthmus.poolrelay.plan.model import GRAPH_KIND, SERVING_KIND, Frontend, Pool
from isthmus.poolrelay.plan.ownership import is_ours


def graph_pool(graph: PoolGraph, default_backend: str) -> Pool:
    """A graph as a pool: its ways in are the Services of its components of type frontend, whatever their
    names (PR-38). `default_backend` is the configuration's (PR-25)."""
    meta = graph.metadata
    found = analyse(meta, graph.spec.all, default_backend)
    return Pool(
        api_version=graph.api_version or POOL_GRAPHS[0].api_version,
        kind=GRAPH_KIND,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        terminating=found.terminating,
        unsupported=_unsupported(graph, found),
        shared=found.global_namespace,
        has_workers=bool(found.workers),
        frontends=tuple(Frontend(each, found.service_names[each]) for each in found.frontends),
        namespaces=(found.base_namespace,),
    )


def _unsupported(graph: PoolGraph, found: Analysis) -> str:
    """Why a relay could not see this graph's workers: it knows Kubernetes discovery by pods alone."""
    if graph.spec.problem:
        return f"its spec cannot be read: {graph.spec.problem}"
    if found.backend != KUBERNETES:
        return f"its discovery backend is {found.backend}; a relay needs kubernetes"
    if found.mode != POD_MODE:
        return f"its discovery mode is {found.mode}; a relay needs pod"
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
