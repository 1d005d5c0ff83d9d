"""A graph -> the objects that run it: Deployments and Services of its components, and the rights with which
its pods find each other (section 8).

reconcile.py calls `render`. Names, labels and selectors are upstream's, so that nothing outside notices that
there are no DynamoComponentDeployments between (GD-29). Nothing depends on the order of a map.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from isthmus.api.dynamo.analysis import CONTAINER_MODE, EPP, ETCD, FRONTEND, KUBERNETES, WORKERS, Analysis
from isthmus.api.dynamo.children import (
    DEPLOYMENTS,
    HASH_ANNOTATION,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    SERVICES,
    GraphChild,
)
from isthmus.api.dynamo.graphs import GRAPHS, DynamoGraphDeployment
from isthmus.api.dynamo.model import Graph, GraphComponent
from isthmus.api.dynamo.names import (
    COMPONENT,
    COMPONENT_CLASS,
    COMPONENT_TYPE,
    DISCOVERY_BACKEND,
    DISCOVERY_ENABLED,
    DISCOVERY_MODE,
    GRAPH_LABEL,
    METRICS_ENABLED,
    NAMESPACE,
    SELECTOR,
    component_base_name,
    component_namespace,
    component_service_name,
    discovery_account,
    discovery_binding,
    discovery_role,
)
from isthmus.api.meta import Raw, Resource
from isthmus.graph.plan.model import ChildName, GraphSettings
from isthmus.graph.plan.pods import GRPC_PORT, HTTP_PORT, SYSTEM_PORT, Pods

RULES: Final = (
    {"apiGroups": [""], "resources": ["endpoints", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["nvidia.com"],
        "resources": ["dynamoworkermetadatas"],
        "verbs": ["create", "get", "list", "watch", "update", "patch", "delete"],
    },
)
"""What pods of a graph may do to find each other (GD-27). The operator must hold these rights itself to give
them."""
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class Rendered(msgspec.Struct, frozen=True, gc=False):
    """A child as it should be."""

    resource: Resource[GraphChild]
    body: Raw


def backend(analysis: Analysis) -> str:
    """The discovery backend in effect for pods: anything unknown counts as Kubernetes (GD-25)."""
    return ETCD if analysis.backend == ETCD else KUBERNETES


def render(
    graph: DynamoGraphDeployment, model: Graph, analysis: Analysis, settings: GraphSettings
) -> dict[ChildName, Rendered]:
    """See the module; in the order in which they are made. Components that are not run are left out."""
    return {
        ChildName(each.resource.kind, each.body["metadata"]["name"]): each
        for each in _render(graph, model, analysis, settings)
    }


def _render(
    graph: DynamoGraphDeployment, model: Graph, analysis: Analysis, settings: GraphSettings
) -> Iterator[Rendered]:
    meta = graph.metadata
    by_kubernetes = backend(analysis) == KUBERNETES
    running = [each for each in model.components if each.runs]
    if by_kubernetes and running:
        yield from _rights(graph, model)
    pods = Pods(
        graph.key,
        model,
        settings,
        discovery=KUBERNETES if by_kubernetes else "",
        mode=CONTAINER_MODE if analysis.mode == CONTAINER_MODE else "",
    )
    for each in running:
        labels = _labels(graph, each)
        found = {DISCOVERY_BACKEND: KUBERNETES, DISCOVERY_ENABLED: "true"} if by_kubernetes else {}
        if by_kubernetes or each.type == FRONTEND:
            name = component_service_name(meta.name, each.name)
            yield _whole(SERVICES, graph, model, name, {"spec": _service(labels, each)}, labels | found)
    for each in running:
        labels = _labels(graph, each)
        name = component_base_name(meta.name, each.name)
        spec = _deployment(graph, each, name, labels, pods, by_kubernetes=by_kubernetes)
        yield _whole(DEPLOYMENTS, graph, model, name, {"spec": spec}, labels)


def _rights(graph: DynamoGraphDeployment, model: Graph) -> Iterator[Rendered]:
    namespace, name = graph.key
    account = discovery_account(name)
    yield _whole(SERVICE_ACCOUNTS, graph, model, account, {}, {})
    yield _whole(ROLES, graph, model, discovery_role(name), {"rules": list(RULES)}, {})
    binding: Raw = {
        "subjects": [{"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": namespace}],
        "roleRef": {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": discovery_role(name)},
    }
    yield _whole(ROLE_BINDINGS, graph, model, discovery_binding(name), binding, {})


def _labels(graph: DynamoGraphDeployment, each: GraphComponent) -> dict[str, str]:
    """Those that say what a component is (section 6)."""
    namespace, name = graph.key
    return {
        COMPONENT: each.name,
        **({COMPONENT_TYPE: each.type} if each.type else {}),
        NAMESPACE: component_namespace(namespace, name, shared=each.global_dynamo_namespace),
    }


def _service(labels: Mapping[str, str], each: GraphComponent) -> Raw:
    """The selector spans generations of pods: it names no hash (GD-16)."""
    port: Raw = {"name": "system", "port": SYSTEM_PORT, "targetPort": "system", "protocol": "TCP"}
    if each.type == FRONTEND:
        port = {"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}
    elif each.type == EPP:
        port = {
            "name": "grpc",
            "port": GRPC_PORT,
            "targetPort": "grpc",
            "protocol": "TCP",
            "appProtocol": "http2",
        }
    return {"type": "ClusterIP", "selector": dict(labels), "ports": [port]}


def _deployment(
    graph: DynamoGraphDeployment,
    each: GraphComponent,
    name: str,
    labels: Mapping[str, str],
    pods: Pods,
    *,
    by_kubernetes: bool,
) -> Raw:
    annotations = graph.metadata.annotations
    of_pod = {
        **labels,
        GRAPH_LABEL: graph.metadata.name,
        SELECTOR: name,
        **({COMPONENT_CLASS: "worker"} if each.type in WORKERS else {}),
        **({} if annotations.metrics == "false" else {METRICS_ENABLED: "true"}),
        **({DISCOVERY_BACKEND: KUBERNETES, DISCOVERY_ENABLED: "true"} if by_kubernetes else {}),
    }
    raw_template = pods.pod_template(each, of_pod)
    carried = {
        key: value
        for key, value in ((DISCOVERY_BACKEND, annotations.backend), (DISCOVERY_MODE, annotations.mode))
        if value
    }
    raw_template["metadata"]["annotations"] |= carried
    return {
        "replicas": each.replicas,
        "selector": {"matchLabels": {SELECTOR: name}},
        "template": raw_template,
    }


def _whole(
    resource: Resource[GraphChild],
    graph: DynamoGraphDeployment,
    model: Graph,
    name: str,
    raw_body: Raw,
    labels: Mapping[str, str],
) -> Rendered:
    meta = graph.metadata
    raw_metadata: Raw = {
        "labels": {**model.labels, **labels, GRAPH_LABEL: meta.name},
        "annotations": dict(model.annotations),
    }
    digest = hashlib.sha256(_encode([raw_metadata, raw_body])).hexdigest()[:16]
    raw_metadata["annotations"][HASH_ANNOTATION] = digest
    return Rendered(
        resource,
        {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": name,
                "namespace": meta.namespace,
                **raw_metadata,
                "ownerReferences": [_owner(graph)],
            },
            **raw_body,
        },
    )


def _owner(graph: DynamoGraphDeployment) -> Raw:
    """The reference that makes it this graph's (GD-17)."""
    return {
        "apiVersion": GRAPHS[0].api_version,
        "kind": GRAPHS[0].kind,
        "name": graph.metadata.name,
        "uid": graph.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
