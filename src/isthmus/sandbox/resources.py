"""What the sandbox reads of the API, and where it lives: pods, nodes, CRDs and what bootstrap.py makes.

Only the fields that the simulated node and the bootstrap look at are decoded. Production code has its own
Resources for pods; these belong to the sandbox.
"""

from __future__ import annotations

from typing import Final

import msgspec

from isthmus.api.meta import Frozen, Object, Resource


class Container(Frozen, frozen=True, kw_only=True):
    """spec.containers[] and spec.initContainers[]."""

    name: str
    image: str = ""


class PodSpec(Frozen, frozen=True, kw_only=True):
    """spec of a pod. What a real process needs besides is in manifest.py."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    termination_grace_period_seconds: int | None = None


class ContainerStatus(Frozen, frozen=True, kw_only=True):
    """status.containerStatuses[]."""

    name: str
    restart_count: int = 0


class PodStatus(Frozen, frozen=True, kw_only=True):
    """status of a pod."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Object, frozen=True, kw_only=True):
    """A pod as the simulated node sees it."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Condition(Frozen, frozen=True, kw_only=True):
    """status.conditions[]."""

    type: str
    status: str


class ConditionsStatus(Frozen, frozen=True, kw_only=True):
    """A status of which only the conditions matter. A CRD that is new has null there."""

    conditions: tuple[Condition, ...] | None = None


class WithConditions(Object, frozen=True, kw_only=True):
    """A CRD, and anything else whose conditions are waited for."""

    status: ConditionsStatus = ConditionsStatus()

    def is_true(self, condition: str) -> bool:
        """Whether a condition is there and True."""
        return any(each.type == condition and each.status == "True" for each in self.status.conditions or ())


class NodeObject(Object, frozen=True, kw_only=True):
    """A Node: its annotations carry the faults of the whole node."""


PODS: Final = Resource(group="", version="v1", plural="pods", kind="Pod", type=Pod)
BINDINGS: Final = Resource(group="", version="v1", plural="bindings", kind="Binding", type=Object)
NODES: Final = Resource(
    group="", version="v1", plural="nodes", kind="Node", type=NodeObject, namespaced=False
)
NAMESPACES: Final = Resource(
    group="", version="v1", plural="namespaces", kind="Namespace", type=Object, namespaced=False
)
SERVICE_ACCOUNTS: Final = Resource(
    group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", type=Object
)
CRDS: Final = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    type=WithConditions,
    namespaced=False,
)
CLUSTER_ROLES: Final = Resource(
    group="rbac.authorization.k8s.io",
    version="v1",
    plural="clusterroles",
    kind="ClusterRole",
    type=Object,
    namespaced=False,
)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    group="rbac.authorization.k8s.io",
    version="v1",
    plural="clusterrolebindings",
    kind="ClusterRoleBinding",
    type=Object,
    namespaced=False,
)
