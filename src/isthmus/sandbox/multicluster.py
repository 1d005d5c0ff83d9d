"""CRDs of the Multi-Cluster Services API and of the About API, as clusters that have these serve them.

The demo, the benchmark and the tests give them to `Sandbox.start(crds=...)` or apply them later. They are
written from what the published APIs say (SIG Multicluster's mcs-api v0.5 and about-api): the names, versions,
fields and bounds that a client can notice. `versions` chooses which are served, in an order of which the last
is stored, since older installations serve v1alpha1 only. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from isthmus.api.crd import schema
from isthmus.api.meta import Raw

BOTH: Final = ("v1alpha1", "v1beta1")
MCS_GROUP: Final = "multicluster.x-k8s.io"
ABOUT_GROUP: Final = "about.k8s.io"

_AGE: Final = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def definitions(versions: Sequence[str] = BOTH) -> list[Raw]:
    """All three."""
    return [service_exports(versions), service_imports(versions), cluster_properties(versions)]


def service_exports(versions: Sequence[str] = BOTH) -> Raw:
    """ServiceExport: the Service of this name is to be consumed in other clusters."""
    spec = schema.struct(
        "What goes to the import besides the Service.",
        {
            "exportedAnnotations": schema.mapping("Annotations.", {"type": "string"}),
            "exportedLabels": schema.mapping("Labels.", {"type": "string"}),
        },
    )
    status = schema.struct("What the implementation says.", {"conditions": _conditions()})
    return _definition(
        MCS_GROUP,
        "ServiceExport",
        short=("svcex", "svcexport"),
        properties={"spec": spec, "status": status},
        versions=versions,
        columns=(_AGE,),
    )


def service_imports(versions: Sequence[str] = BOTH) -> Raw:
    """ServiceImport: a Service that other clusters export."""
    port = schema.struct(
        "A port of the Service.",
        {
            "name": schema.text("Its name."),
            "port": schema.count("Its number."),
            "protocol": schema.text("Its protocol."),
            "appProtocol": schema.text("What is spoken on it."),
        },
        required=("port",),
    )
    addresses: Raw = schema.array("Its addresses.", {"type": "string"}, most=2)
    timeout = schema.struct("By client address.", {"timeoutSeconds": schema.count("Seconds.")})
    spec = schema.struct(
        "The imported Service.",
        {
            "ports": schema.array("Its ports.", port),
            "ips": addresses,
            "ipFamilies": schema.array("Their families.", {"type": "string"}, most=2),
            "type": schema.choice("With or without addresses.", "ClusterSetIP", "Headless"),
            "sessionAffinity": schema.text("ClientIP or None."),
            "sessionAffinityConfig": schema.struct("Bounds of the affinity.", {"clientIP": timeout}),
            "internalTrafficPolicy": schema.text("Cluster or Local."),
            "trafficDistribution": schema.text("A preference between endpoints."),
        },
        required=("ports", "type"),
    )
    cluster = schema.struct("An exporter.", {"cluster": schema.text("Its name.")}, required=("cluster",))
    clusters: Raw = {
        "type": "array",
        "description": "The clusters that export it.",
        "items": cluster,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["cluster"],
    }
    status = schema.struct("Where it comes from.", {"clusters": clusters, "conditions": _conditions()})
    return _definition(
        MCS_GROUP,
        "ServiceImport",
        short=("svcim", "svcimport"),
        properties={"spec": spec, "status": status},
        versions=versions,
        columns=(
            {"name": "Type", "type": "string", "jsonPath": ".spec.type"},
            {"name": "IP", "type": "string", "jsonPath": ".spec.ips"},
            _AGE,
        ),
    )


def cluster_properties(versions: Sequence[str] = BOTH) -> Raw:
    """ClusterProperty: what a cluster says about itself, as its name in the cluster set."""
    spec = schema.struct(
        "The property.", {"value": {"type": "string", "description": "Its value.", "minLength": 1}}
    )
    raw = _definition(
        ABOUT_GROUP,
        "ClusterProperty",
        short=(),
        properties={
            "spec": spec | {"required": ["value"]},
            "status": {"type": "object", "description": "Nothing."},
        },
        versions=versions,
        columns=({"name": "value", "type": "string", "jsonPath": ".spec.value"}, _AGE),
    )
    raw["spec"]["scope"] = "Cluster"
    # An API server takes no definition in a group below k8s.io without this.
    raw["metadata"]["annotations"] = {
        "api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/3084"
    }
    return raw


def _conditions() -> Raw:
    condition = schema.struct(
        "A condition.",
        {
            "type": schema.text("What it speaks of.", most=316),
            "status": schema.choice("Whether it holds.", "True", "False", "Unknown"),
            "reason": schema.text("A word for machines.", most=1024),
            "message": schema.text("A text for people.", most=32768),
            "lastTransitionTime": schema.text("When it changed.") | {"format": "date-time"},
            "observedGeneration": schema.count("Of which generation it speaks.", bits=64),
        },
        required=("lastTransitionTime", "message", "reason", "status", "type"),
    )
    return {
        "type": "array",
        "description": "How it is.",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


def _definition(
    group: str,
    kind: str,
    *,
    short: Sequence[str],
    properties: Raw,
    versions: Sequence[str],
    columns: Sequence[Raw],
) -> Raw:
    singular = kind.lower()
    plural = f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
    names = {"plural": plural, "singular": singular, "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names | ({"shortNames": list(short)} if short else {}),
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == versions[-1],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(columns),
                }
                for version in versions
            ],
        },
    }
