"""The CustomResourceDefinition of DynamoPoolRelay (PR-16, PR-17): its fields, bounds and rules.

`definition()` composes it from the words of schema.py; `isthmus crds`, the chart and tests install it. What
could never work is refused when it is created: a name whose Service could not exist, an ID with whitespace
around it, a target of another kind. The controller says the same in status for relays that another CRD let
in (poolrelay/plan/publication.py).
"""

from __future__ import annotations

from typing import Final

from isthmus.api.crd.podspec import pod_spec
from isthmus.api.crd.rules import DNS_LABEL
from isthmus.api.crd.schema import (
    Schema,
    array,
    choice,
    column,
    count,
    crd,
    root,
    rule,
    ruled,
    struct,
    text,
    version,
)
from isthmus.api.meta import Raw
from isthmus.api.names import LABEL_LIMIT
from isthmus.api.poolrelay import GRPC_PORT, MAX_CLUSTER_ID, POOL_RELAYS, RELAY_SUFFIX, SYSTEM_PORT

GROUP: Final = POOL_RELAYS.group
MAX_NAME: Final = LABEL_LIMIT - len(RELAY_SUFFIX)
"""Characters of a relay's name: its Service is named after it."""
MAX_PORT: Final = 65535


def definition() -> Raw:
    """The CRD as a new dictionary, ready to be created or applied."""
    ready = ".status.conditions[?(@.type=='Ready')]"
    served = version(
        POOL_RELAYS.version,
        schema(),
        column("Cluster", "string", ".status.clusterId"),
        column("Service", "string", ".status.serviceName"),
        column("Ready", "string", f"{ready}.status"),
        column("Reason", "string", f"{ready}.reason"),
        column("Age", "date", ".metadata.creationTimestamp"),
    )
    return crd(POOL_RELAYS, served, short="dpr")


def schema() -> Schema:
    """The OpenAPI schema of the whole object."""
    whole = root(
        "DynamoPoolRelay marks a pool of workers for use from other clusters: a relay speaks for the pool, "
        "and its Service and the pool's frontends are exported.",
        _spec(),
        _status(),
    )
    name = rule(
        f"oldSelf.hasValue() || (size(self.metadata.name) <= {MAX_NAME}"
        f" && self.metadata.name.matches('{DNS_LABEL}'))",
        message=f"metadata.name must be a DNS-1035 label of at most {MAX_NAME} characters, since the relay's "
        f"Service is named <name>{RELAY_SUFFIX}",
        path=".metadata.name",
        optional_old=True,
    )
    graph = rule(
        "!has(self.spec.targetRef) || self.spec.targetRef.kind != 'DynamoGraphDeployment'"
        " || self.spec.targetRef.name == self.metadata.name",
        message="a relay serves the DynamoGraphDeployment of its own name only",
        path=".spec.targetRef.name",
    )
    return ruled(whole, name, graph)


def _spec() -> Schema:
    container = pod_spec("", containers=0)["properties"]["containers"]["items"]["properties"]
    fields = {
        "clusterId": text(
            "Name of this cluster in its cluster set. It must be what the Multi-Cluster Services "
            "implementation calls the cluster: with mcs the value of the ClusterProperty "
            "cluster.clusterset.k8s.io, with karmada the name under which the member joined.",
            most=MAX_CLUSTER_ID,
        ),
        "clusterIdFrom": choice("Where an empty clusterId is taken from.", "ClusterProperty"),
        "targetRef": _target(),
        "image": text("The relay's image; else the one in the operator's configuration.", most=1024),
        "imagePullSecrets": array(
            "Secrets with which the image is pulled.",
            struct("A Secret.", {"name": text("Its name.", most=253)}, required=("name",)),
            most=16,
        ),
        "resources": container["resources"] | {"description": "Resources of the relay's container."},
        "replicas": count("How many relays run; they do not share work.", default=1),
        "grpcPort": _port("Port of the relay's gRPC listener.", GRPC_PORT),
        "systemPort": _port("Port of the relay's health and metrics.", SYSTEM_PORT),
        "env": container["env"] | {"description": "Environment of the relay, above what the operator sets."},
    }
    ports = rule(
        "self.grpcPort != self.systemPort",
        message="grpcPort and systemPort must differ",
        path=".systemPort",
    )
    known = rule(
        "(has(self.clusterId) && self.clusterId != '') || has(self.clusterIdFrom)",
        message="clusterId is required, unless clusterIdFrom says where it comes from",
        path=".clusterId",
    )
    trimmed = rule(
        r"!has(self.clusterId) || !self.clusterId.matches(r'^\s|\s$')",
        message="clusterId must have no whitespace around it",
        path=".clusterId",
    )
    return ruled(struct("What is wanted.", fields), ports, known, trimmed)


def _port(description: str, default: int) -> Schema:
    return count(description, default=default, least=1) | {"maximum": MAX_PORT}


def _target() -> Schema:
    fields = {
        "apiVersion": text("Group and version of the kind.", most=253),
        "kind": choice("What the pool is.", "DynamoGraphDeployment", "ModelServing"),
        "name": text("Name of the pool, in the relay's namespace.", most=253) | {"minLength": 1},
    }
    target = struct(
        "The pool, where it is not the DynamoGraphDeployment of the relay's name.",
        fields,
        required=("apiVersion", "kind", "name"),
    )
    groups = rule(
        "self.apiVersion.startsWith("
        "self.kind == 'ModelServing' ? 'workload.serving.volcano.sh/' : 'nvidia.com/')",
        message="apiVersion must be of nvidia.com for a DynamoGraphDeployment, and of "
        "workload.serving.volcano.sh for a ModelServing",
        path=".apiVersion",
    )
    return ruled(target, groups)


def _status() -> Schema:
    target = struct(
        "The pool that the rest describes.",
        {
            "kind": text("Its kind."),
            "name": text("Its name."),
            "uid": text("Its UID."),
            "generation": count("Its generation.", least=None, bits=64),
        },
    )
    condition = struct(
        "One condition.",
        {
            "type": text("Type of the condition.", most=316),
            "status": choice("Whether it holds.", "True", "False", "Unknown"),
            "observedGeneration": count("metadata.generation that it was computed from.", bits=64),
            "lastTransitionTime": text("When status last changed.") | {"format": "date-time"},
            "reason": text("Why, in one word.", most=1024),
            "message": text("Why, for people.", most=32768),
        },
        required=("type", "status", "lastTransitionTime", "reason", "message"),
    )
    fields = {
        "observedGeneration": count("metadata.generation that the rest describes.", least=None, bits=64),
        "clusterId": text("The cluster's name in effect."),
        "serviceName": text("The relay's Service, while the pool is published."),
        "observedTarget": target,
        "conditions": {
            **array("Ready says whether the relay is published and runs, and why not.", condition),
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    }
    return struct("What is; the controller writes it.", fields)
