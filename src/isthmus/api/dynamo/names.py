"""Names that come of a DynamoGraphDeployment, and the keys of its labels and annotations.

The one place that knows them: the graphs' planner makes objects of these names, relays export Services by
them and watch these Dynamo namespaces (GD-11 to GD-15, GD-20, PR-38, PR-114). No name is ever taken apart.
"""

from __future__ import annotations

from typing import Final

GRAPH_LABEL: Final = "nvidia.com/dynamo-graph-deployment-name"
COMPONENT: Final = "nvidia.com/dynamo-component"
COMPONENT_TYPE: Final = "nvidia.com/dynamo-component-type"
COMPONENT_CLASS: Final = "nvidia.com/dynamo-component-class"
NAMESPACE: Final = "nvidia.com/dynamo-namespace"
SELECTOR: Final = "nvidia.com/selector"
METRICS_ENABLED: Final = "nvidia.com/metrics-enabled"
DISCOVERY_BACKEND: Final = "nvidia.com/dynamo-discovery-backend"
DISCOVERY_ENABLED: Final = "nvidia.com/dynamo-discovery-enabled"
DISCOVERY_MODE: Final = "nvidia.com/dynamo-kube-discovery-mode"
ENABLE_METRICS: Final = "nvidia.com/enable-metrics"
"""An annotation of graphs; `"false"` leaves the label METRICS_ENABLED off their pods."""

GLOBAL_NAMESPACE: Final = "dynamo"
"""The Dynamo namespace that graphs share which ask for it (GD-20)."""


def component_base_name(graph: str, component: str) -> str:
    """Name of a component's Deployment. It may be no valid name."""
    return f"{graph}-{component.lower()}"


def component_service_name(graph: str, component: str) -> str:
    """Name of a component's Service; also of its export (PR-38). It may be no valid name."""
    return component_base_name(graph, component).lower().replace(".", "-")


def dynamo_namespace(namespace: str, graph: str) -> str:
    """The name under which the workers of a graph find each other, without the hash of a rollout."""
    return f"{namespace}-{graph}".replace(".", "-")


def component_namespace(namespace: str, graph: str, *, shared: bool) -> str:
    """The same for one component: `shared` where it asks for the global one."""
    return GLOBAL_NAMESPACE if shared else dynamo_namespace(namespace, graph)


def discovery_account(graph: str) -> str:
    """Name of the ServiceAccount with which a graph's pods find each other."""
    return f"{graph}-k8s-service-discovery"


def discovery_role(graph: str) -> str:
    """Name of its Role."""
    return f"{discovery_account(graph)}-role"


def discovery_binding(graph: str) -> str:
    """Name of its RoleBinding."""
    return f"{discovery_account(graph)}-binding"
