"""Tells people about relays: the status, only when it differs from what is there, and events.

Called by controller.py in each pass. The status patch carries the relay's UID, so that it never lands on a
successor of the same name. Telling never makes a pass fail: events are queued, and a relay that is gone has
nobody left to tell (PR-83).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from isthmus.api.meta import Key
from isthmus.api.poolrelay import POOL_RELAYS, DynamoPoolRelay, RelayStatus
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.errors import NotFound
from isthmus.poolrelay.plan.model import Event
from isthmus.runtime.events import EventRecorder, ObjectRef
from isthmus.runtime.expect import Expectations


class Reporter:
    """See the module."""

    def __init__(self, client: Client, expectations: Expectations, recorder: EventRecorder) -> None:
        self._client = client
        self._expectations = expectations
        self._recorder = recorder

    def tell(self, relay: DynamoPoolRelay, events: Iterable[Event]) -> None:
        """Queue the events about `relay`."""
        regarding = ObjectRef.to(POOL_RELAYS, relay)
        for event in events:
            self._recorder.emit(
                regarding,
                type=event.type,
                reason=event.reason,
                action=event.action,
                note=event.note,
                related=ObjectRef(*event.related),
            )

    async def write(self, relay: DynamoPoolRelay, status: RelayStatus) -> None:
        """Store `status` if it differs. Raises what the client raises, except NotFound."""
        if status == relay.status:
            return
        key: Key = relay.key
        try:
            written = await self._client.patch(
                POOL_RELAYS,
                *key,
                patch(relay, status),
                kind=PatchKind.MERGE,
                subresource="status",
            )
        except NotFound:
            return
        self._expectations.wrote(key, POOL_RELAYS.name, written.resource_version)


def patch(relay: DynamoPoolRelay, status: RelayStatus) -> bytes:
    """The merge patch that makes the stored status this one: what is empty is null."""
    fields = {field.encode_name: None for field in msgspec.structs.fields(RelayStatus)}
    fields |= msgspec.to_builtins(status)
    return msgspec.json.encode({"metadata": {"uid": relay.metadata.uid}, "status": fields})
