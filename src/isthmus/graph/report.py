"""Tells people about graphs: the status, only when it differs from what is there, and Warning events.

Called by controller.py in each pass. The status patch carries the graph's UID, so that it never lands on a
successor of the same name. An event is told once for as long as it stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from isthmus.api.dynamo.graphs import DynamoGraphDeployment, GraphStatus
from isthmus.api.meta import Key, Resource
from isthmus.graph.plan.model import Plan
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.errors import NotFound
from isthmus.runtime.events import EventRecorder, ObjectRef
from isthmus.runtime.expect import Expectations


class Note(NamedTuple):
    """A Warning: its reason, and what is said."""

    reason: str
    text: str


def notes(planned: Plan) -> tuple[Note, ...]:
    """What people should know of a graph, beside its status."""
    model = planned.model
    return (
        *(Note("InvalidSpec", str(each)) for each in model.problems),
        *(Note("OwnershipConflict", each) for each in planned.conflicts),
        *(Note("UnsupportedField", str(each)) for each in model.refusals),
        *(Note("FieldWithoutEffect", str(each)) for each in planned.warnings),
    )


class Reporter:
    """See the module. `resource` is graphs in the version in which they are watched."""

    def __init__(
        self,
        client: Client,
        resource: Resource[DynamoGraphDeployment],
        expectations: Expectations,
        recorder: EventRecorder,
    ) -> None:
        self._client = client
        self._resource = resource
        self._expectations = expectations
        self._recorder = recorder
        self._told: dict[Key, tuple[str, tuple[Note, ...]]] = {}

    def tell(self, graph: DynamoGraphDeployment, found: Iterable[Note]) -> None:
        """Queue those events about `graph` that are new since the last pass."""
        uid, known = self._told.pop(graph.key, ("", ()))
        told = tuple(found)
        if told:
            self._told[graph.key] = graph.metadata.uid, told
        for note in told:
            if note not in known or uid != graph.metadata.uid:
                self._recorder.emit(
                    ObjectRef.to(self._resource, graph),
                    type="Warning",
                    reason=note.reason,
                    action="Reconcile",
                    note=note.text,
                )

    def forget(self, key: Key) -> None:
        """The graph is gone."""
        self._told.pop(key, None)

    async def write(self, graph: DynamoGraphDeployment, status: GraphStatus) -> None:
        """Store `status` if it differs. Raises what the client raises, except NotFound."""
        if status == graph.status:
            return
        try:
            written = await self._client.patch(
                self._resource, *graph.key, patch(graph, status), kind=PatchKind.MERGE, subresource="status"
            )
        except NotFound:
            return
        self._expectations.wrote(graph.key, self._resource.name, written.resource_version)


def patch(graph: DynamoGraphDeployment, status: GraphStatus) -> bytes:
    """The merge patch that makes the stored status this one: what is empty is null, and so are components
    that are gone."""
    fields: dict[str, Any] = {field.encode_name: None for field in msgspec.structs.fields(GraphStatus)}
    fields |= msgspec.to_builtins(status)
    for field, old in (("components", graph.status.components), ("services", graph.status.services)):
        if fields[field] is not None:
            fields[field] = {**dict.fromkeys(old), **fields[field]}
    return msgspec.json.encode({"metadata": {"uid": graph.metadata.uid}, "status": fields})
