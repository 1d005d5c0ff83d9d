"""What a graph is made of: ServiceAccount, Role, RoleBinding, Deployments, Services, as far as they are
compared.

kube/ decodes into these; graph/ plans on them; they are never written back. Of a Deployment its counts, the
hash of what was rendered and the parts that can drift are kept, as the JSON that the API server gave.
"""

from __future__ import annotations

from sys import intern
from typing import Final

import msgspec

from isthmus.api.decode import OptionalRaw, own_raw, settle
from isthmus.api.dynamo.names import GRAPH_LABEL
from isthmus.api.meta import Frozen, Object, ObjectMeta, Resource, shared_owner

HASH_ANNOTATION: Final = "isthmus.dev/rendered-hash"
"""On every child: a hash of what was rendered, so that a change of what is wanted is noticed (GD-39)."""


class ChildLabels(Frozen, frozen=True, kw_only=True):
    """The one label of a child that is read."""

    graph: str = msgspec.field(name=GRAPH_LABEL, default="")


class ChildAnnotations(Frozen, frozen=True, kw_only=True):
    """The one annotation of a child that is read."""

    hash: str = msgspec.field(name=HASH_ANNOTATION, default="")


class ChildMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata of a child. The objects of one graph share the texts that name it."""

    labels: ChildLabels = ChildLabels()  # type: ignore[assignment]
    annotations: ChildAnnotations = ChildAnnotations()  # type: ignore[assignment]

    def __post_init__(self) -> None:
        settle(self, "namespace", intern(self.namespace))
        if self.owner_references:
            settle(self, "owner_references", tuple(shared_owner(owner) for owner in self.owner_references))


class ChildStatus(Frozen, frozen=True, kw_only=True):
    """status, as far as a Deployment has it (GD-47)."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0


_NO_STATUS: Final = ChildStatus()


class GraphChild(Object, frozen=True, kw_only=True):
    """See the module."""

    metadata: ChildMeta
    spec: OptionalRaw = None
    rules: OptionalRaw = None
    subjects: OptionalRaw = None
    status: ChildStatus = _NO_STATUS

    def __post_init__(self) -> None:
        own_raw(self, "spec", "rules", "subjects")
        if self.status == _NO_STATUS:
            settle(self, "status", _NO_STATUS)


def _child(group: str, version: str, plural: str, kind: str) -> Resource[GraphChild]:
    return Resource(group=group, version=version, plural=plural, kind=kind, type=GraphChild)


_RBAC: Final = "rbac.authorization.k8s.io"
SERVICE_ACCOUNTS: Final = _child("", "v1", "serviceaccounts", "ServiceAccount")
ROLES: Final = _child(_RBAC, "v1", "roles", "Role")
ROLE_BINDINGS: Final = _child(_RBAC, "v1", "rolebindings", "RoleBinding")
SERVICES: Final = _child("", "v1", "services", "Service")
DEPLOYMENTS: Final = _child("apps", "v1", "deployments", "Deployment")
GRAPH_CHILDREN: Final = (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, SERVICES, DEPLOYMENTS)
"""The kinds of children, in the order in which they are made."""
