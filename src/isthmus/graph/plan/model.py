"""The words that the graphs' planner, controller and executor share: what is seen, what is to be done.

store.py fills `Observed` from the caches; reconcile.py turns it into a `Plan`; executor.py carries the
actions out. Everything is frozen; nothing here computes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from isthmus.api.dynamo.analysis import KUBERNETES, Analysis
from isthmus.api.dynamo.children import GraphChild
from isthmus.api.dynamo.graphs import DynamoGraphDeployment
from isthmus.api.dynamo.model import Finding, Graph
from isthmus.api.meta import Key, Raw, Resource


class GraphSettings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the operator's configuration says about graphs: the default discovery backend, and addresses of
    which pods are told. `conflict_recheck_s`: how soon to look again whether a stranger has left a name, or
    whether what was refused is now taken, which no watch shows."""

    discovery_backend: str = KUBERNETES
    nats_address: str = ""
    etcd_address: str = ""
    model_express_url: str = ""
    prometheus_endpoint: str = ""
    conflict_recheck_s: float = 15.0


class ChildName(NamedTuple):
    """Which child: kind and name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Observed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One graph and all that its plan depends on, at one instant.

    `children` are this graph's own; `strangers` have a child's name and are not: whose they are, for people.
    `futile` are the (UID, resourceVersion) of children on which a repair has changed nothing.
    """

    graph: DynamoGraphDeployment
    children: Mapping[ChildName, GraphChild] = {}
    strangers: Mapping[ChildName, str] = {}
    futile: frozenset[tuple[str, str]] = frozenset()

    @property
    def key(self) -> Key:
        """(namespace, name) of the graph."""
        return self.graph.key

    @property
    def uid(self) -> str:
        """The graph's."""
        return self.graph.metadata.uid


class CreateChild(msgspec.Struct, frozen=True, gc=False):
    """POST a child whose name is free."""

    resource: Resource[GraphChild]
    body: Raw

    @property
    def name(self) -> ChildName:
        """Of the child."""
        return ChildName(self.resource.kind, self.body["metadata"]["name"])


class RepairChild(msgspec.Struct, frozen=True, gc=False):
    """Merge into a child of ours what it lacks, only if it is still as it was read."""

    resource: Resource[GraphChild]
    child: GraphChild
    body: Raw

    @property
    def name(self) -> ChildName:
        """Of the child."""
        return ChildName(self.resource.kind, self.child.metadata.name)


class DeleteChild(msgspec.Struct, frozen=True, gc=False):
    """DELETE a child of ours, only if it is still as it was read."""

    resource: Resource[GraphChild]
    child: GraphChild

    @property
    def name(self) -> ChildName:
        """Of the child."""
        return ChildName(self.resource.kind, self.child.metadata.name)


Action = CreateChild | RepairChild | DeleteChild


class Plan(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What to do about one graph now. `conflicts` are names that others hold; `warnings` are what people
    should know of a graph that is run."""

    model: Graph
    analysis: Analysis
    actions: tuple[Action, ...] = ()
    conflicts: tuple[str, ...] = ()
    warnings: tuple[Finding, ...] = ()
