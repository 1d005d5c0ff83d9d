"""Writes a ModelServing's status: only when it changed, and never more often than people can read it.

Called by controller.py at the end of each pass, and before it deletes for a failure. News goes out at once:
a condition, a generation or revision, a problem, a recovery, less availability. Counts that only grow, and
texts, wait until STATUS_SPACING_S after the last write, since a thousand pods becoming ready one by one
are not a thousand messages. The patch carries the UID, so that it never lands on a successor of the same
name; the status is this controller's alone, so that it needs no resourceVersion.
"""

from __future__ import annotations

import msgspec

from isthmus.api.meta import Key
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing, Status
from isthmus.clock import Clock
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.errors import NotFound
from isthmus.runtime.expect import Expectations

STATUS_SPACING_S = 5.0
"""Seconds between two writes of one status when neither is urgent."""


class StatusWriter:
    """See the module. Holds one time per ModelServing whose status it wrote."""

    def __init__(self, client: Client, expectations: Expectations, clock: Clock) -> None:
        self._client = client
        self._expectations = expectations
        self._clock = clock
        self._written: dict[Key, float] = {}

    async def write(self, serving: ModelServing, status: Status) -> float | None:
        """Write `status` if it differs from what `serving` has. Returns in how many seconds to come again
        where that is put off, else None. Raises what the client raises, except NotFound: then there is nobody
        left to tell."""
        if status == serving.status:
            return None
        key, now = serving.key, self._clock.monotonic()
        due = self._written.get(key, now) + STATUS_SPACING_S
        if key in self._written and now < due and not is_urgent(serving.status, status):
            return due - now
        try:
            written = await self._client.patch(
                MODEL_SERVINGS,
                key[0],
                key[1],
                patch(serving, status),
                kind=PatchKind.MERGE,
                subresource="status",
            )
        except NotFound:
            return None
        self._written[key] = now
        self._expectations.wrote(key, MODEL_SERVINGS.name, written.resource_version)
        return None

    def forget(self, key: Key) -> None:
        """The ModelServing is gone."""
        self._written.pop(key, None)


def is_urgent(old: Status, new: Status) -> bool:
    """Whether people must hear of it at once: all but counts that grow and texts that change."""
    return (
        new.available_replicas < old.available_replicas
        or new.observed_generation != old.observed_generation
        or (new.current_revision, new.update_revision) != (old.current_revision, old.update_revision)
        or new.recoveries != old.recoveries
        or _gist(new) != _gist(old)
    )


def _gist(status: Status) -> list[tuple[str, str, str]]:
    return [(each.type, each.status, each.reason) for each in status.conditions]


def patch(serving: ModelServing, status: Status) -> bytes:
    """The merge patch that makes the stored status this one: what is zero or empty is absent (MS-8), so null
    here."""
    fields = {field.encode_name: None for field in msgspec.structs.fields(Status)}
    fields |= msgspec.to_builtins(status)
    return msgspec.json.encode({"metadata": {"uid": serving.metadata.uid}, "status": fields})
