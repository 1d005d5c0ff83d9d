"""One graph as it was observed -> its Plan, as one pure function.

The controller calls `plan` in each pass, and again where a look at the API server has found strangers among
the children. A graph whose spec is no good keeps what it has: nothing is made, changed or deleted. A plan on
which nothing is left to do has no actions (G-2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from isthmus.api.dynamo.analysis import CONTAINER_MODE, ETCD, KUBERNETES, POD_MODE, Analysis, analyse
from isthmus.api.dynamo.children import DEPLOYMENTS, SERVICES, GraphChild
from isthmus.api.dynamo.graphs import DynamoGraphDeployment
from isthmus.api.dynamo.model import Finding, Graph
from isthmus.api.dynamo.names import DISCOVERY_BACKEND, DISCOVERY_MODE, component_base_name
from isthmus.api.dynamo.normalise import normalise
from isthmus.graph.plan.children import changes, is_ours, leftovers, owner_text
from isthmus.graph.plan.model import ChildName, GraphSettings, Observed, Plan
from isthmus.graph.plan.render import render


def plan(observed: Observed, settings: GraphSettings) -> Plan:
    """What to do about one graph that is not being deleted; see the module."""
    graph = observed.graph
    model = normalise(graph)
    analysis = analyse(graph.metadata, model.components, settings.discovery_backend)
    if model.problems:
        return Plan(model=model, analysis=analysis)
    wanted = render(graph, model, analysis, settings)
    kept = {*wanted, *_untouched(graph, model)}
    return Plan(
        model=model,
        analysis=analysis,
        actions=(*changes(observed, wanted), *leftovers(observed, kept)),
        conflicts=_conflicts(observed, wanted),
        warnings=(*model.warnings, *_of_discovery(graph, model, analysis, settings)),
    )


def _untouched(graph: DynamoGraphDeployment, model: Graph) -> Iterator[ChildName]:
    """What there may be of components that are not run: it stays as it is."""
    name = graph.metadata.name
    for each in model.components:
        if not each.runs:
            base = component_base_name(name, each.name)
            yield ChildName(DEPLOYMENTS.kind, base)
            yield ChildName(SERVICES.kind, base.replace(".", "-"))


def _conflicts(observed: Observed, wanted: Iterable[ChildName]) -> tuple[str, ...]:
    """Names that others hold (GD-17)."""
    strangers = observed.strangers
    return tuple(f"{name} is {strangers[name]}, and is left alone" for name in wanted if name in strangers)


def _of_discovery(
    graph: DynamoGraphDeployment, model: Graph, analysis: Analysis, settings: GraphSettings
) -> Iterator[Finding]:
    """What is odd about how the components are to find each other (GD-25, GD-26)."""
    if analysis.backend not in (KUBERNETES, ETCD):
        text = f"{analysis.backend} is unknown, and counts as {KUBERNETES}"
        yield Finding(f"metadata.annotations[{DISCOVERY_BACKEND}]", text)
    if analysis.mode not in (POD_MODE, CONTAINER_MODE):
        text = f"{analysis.mode} is unknown, and counts as {POD_MODE}"
        yield Finding(f"metadata.annotations[{DISCOVERY_MODE}]", text)
    told = any(variable["name"] == "ETCD_ENDPOINTS" for variable in model.env)
    if analysis.backend == ETCD and not settings.etcd_address and not told:
        text = "discovery by etcd needs its address, in the operator's configuration or as ETCD_ENDPOINTS"
        yield Finding("spec.env", text)


def sort_children(
    found: Iterable[tuple[ChildName, GraphChild]], uid: str
) -> tuple[dict[ChildName, GraphChild], dict[ChildName, str]]:
    """Objects that have children's names -> this graph's, and whose the others are."""
    ours: dict[ChildName, GraphChild] = {}
    others: dict[ChildName, str] = {}
    for name, child in found:
        if is_ours(child, uid):
            ours[name] = child
        else:
            others[name] = owner_text(child)
    return ours, others
