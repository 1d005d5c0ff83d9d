"""What the sandbox's user `operator` may do: what the operator needs, and nothing else.

bootstrap.py gives every cluster these as a ClusterRole, so that a call that the operator is not entitled to
in production fails here first. Pure data: API group, resources, verbs. A test holds them equal to
examples/operator/rbac.yaml, except that there the lease is in one namespace and here in any.
"""

from __future__ import annotations

from typing import Any, Final

from isthmus.sandbox.settings import OPERATOR

ROLE: Final = "isthmus-operator"

OPERATOR_RULES: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    ("workload.serving.volcano.sh", ("modelservings",), ("get", "list", "watch", "create", "patch")),
    ("workload.serving.volcano.sh", ("modelservings/status",), ("patch",)),
    ("workload.serving.volcano.sh", ("modelservings/finalizers",), ("update",)),
    ("", ("pods", "services"), ("get", "list", "watch", "create", "delete", "patch")),
    ("apps", ("controllerrevisions",), ("get", "list", "watch", "create", "delete", "patch")),
    (
        "scheduling.volcano.sh",
        ("podgroups",),
        ("get", "list", "watch", "create", "delete", "patch"),
    ),
    ("leaderworkerset.x-k8s.io", ("leaderworkersets",), ("get", "list", "watch")),
    ("leaderworkerset.x-k8s.io", ("leaderworkersets/status",), ("patch",)),
    ("leaderworkerset.x-k8s.io", ("leaderworkersets/finalizers",), ("update",)),
    ("nvidia.com", ("dynamopoolrelays", "dynamographdeployments"), ("list", "watch")),
    ("nvidia.com", ("dynamopoolrelays/status", "dynamographdeployments/status"), ("patch",)),
    ("nvidia.com", ("dynamopoolrelays/finalizers", "dynamographdeployments/finalizers"), ("update",)),
    ("", ("serviceaccounts",), ("get", "list", "watch", "create", "patch")),
    ("apps", ("deployments",), ("get", "list", "watch", "create", "delete", "patch")),
    ("rbac.authorization.k8s.io", ("roles", "rolebindings"), ("get", "list", "watch", "create", "patch")),
    ("", ("endpoints",), ("get", "list", "watch")),
    ("discovery.k8s.io", ("endpointslices",), ("get", "list", "watch")),
    (
        "nvidia.com",
        ("dynamoworkermetadatas",),
        ("get", "list", "watch", "create", "update", "patch", "delete"),
    ),
    ("multicluster.x-k8s.io", ("serviceexports",), ("get", "list", "watch", "create", "delete", "patch")),
    ("about.k8s.io", ("clusterproperties",), ("get", "list", "watch")),
    ("events.k8s.io", ("events",), ("create", "patch")),
    ("coordination.k8s.io", ("leases",), ("get", "list", "watch", "create", "patch")),
)


def operator_role() -> dict[str, Any]:
    """The ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ROLE},
        "rules": [
            {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
            for group, resources, verbs in OPERATOR_RULES
        ],
    }


def binding(user: str, role: str) -> dict[str, Any]:
    """A ClusterRoleBinding of one user to one ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{role}:{user}"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
    }


def operator_binding() -> dict[str, Any]:
    """The binding of the user `operator` to its role."""
    return binding(OPERATOR, ROLE)
