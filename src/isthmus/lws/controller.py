"""Reconciles LeaderWorkerSets: keeps the ModelServing of the same name in line, and their status.

runtime/controller.py calls `reconcile` with a key, which the caches of both kinds enqueue (`wake_on`). A pass
waits until the caches show what the last one wrote, does the one thing that plan.py says, and writes the
status if it differs. What the API server refuses is the user's to mend: it is told in an event, and tried
again when something changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from isthmus import logs
from isthmus.api.leaderworkerset import LEADER_WORKER_SETS, LeaderWorkerSet
from isthmus.api.meta import Key
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from isthmus.lws.plan import Create, Taken, Update, plan, status
from isthmus.runtime.cache import Cache, Change
from isthmus.runtime.controller import DONE, Again, Outcome
from isthmus.runtime.events import EventRecorder, ObjectRef
from isthmus.runtime.expect import Expectations, Seen

log = logs.get(__name__)

RETRY_S: Final = 1.0
"""Seconds to the next look where a name is not free yet."""


@dataclass(frozen=True)
class Caches:
    """What is read. LeaderWorkerSets need not be served; there are none then."""

    sets: Cache[LeaderWorkerSet]
    servings: Cache[ModelServing]


class LwsController:
    """See the module. Give `reconcile` to a runtime Controller."""

    def __init__(
        self, client: Client, caches: Caches, expectations: Expectations, recorder: EventRecorder
    ) -> None:
        self._client = client
        self._caches = caches
        self._expectations = expectations
        self._recorder = recorder
        self._seen: dict[str, Seen] = {cache.resource.name: cache for cache in (caches.sets, caches.servings)}
        self._told: dict[Key, tuple[str, str]] = {}

    def keys(self) -> list[Key]:
        """The keys of all LeaderWorkerSets."""
        return [each.key for each in self._caches.sets.values()]

    def wake_on(self, enqueue: Callable[[Key], None]) -> None:
        """Call `enqueue` with the key of each LeaderWorkerSet that a change may concern."""

        def serving_changed(change: Change[ModelServing]) -> None:
            if self._caches.sets.get(change.key) is not None:
                enqueue(change.key)

        self._caches.sets.subscribe(lambda change: enqueue(change.key))
        self._caches.servings.subscribe(serving_changed)

    async def reconcile(self, key: Key) -> Outcome:
        """One pass for one LeaderWorkerSet. Raises what failed, for the queue to retry."""
        if not self._expectations.satisfied(key, self._seen):
            return Again(self._expectations.remaining_s(key))
        lws = self._caches.sets.get(key)
        if lws is None:
            self._expectations.forget(key)
            self._told.pop(key, None)
            return DONE
        if lws.metadata.terminating:
            return DONE
        serving = self._caches.servings.get(key)
        try:
            waits = await self._step(lws, serving)
        except (Invalid, Forbidden) as error:
            self._warn(lws, "ModelServingRefused", error.message)
            waits = False
        owner = serving.metadata.controller() if serving is not None else None
        ours = serving if owner is not None and owner.uid == lws.metadata.uid else None
        await self._report(lws, ours)
        return Again(RETRY_S) if waits else DONE

    async def _step(self, lws: LeaderWorkerSet, serving: ModelServing | None) -> bool:
        """Do what there is to do; whether to look again soon."""
        namespace, name = lws.key
        match plan(lws, serving):
            case Create(body):
                try:
                    written = await self._client.create(MODEL_SERVINGS, namespace, body)
                except AlreadyExists:
                    return True
                self._expectations.wrote(lws.key, MODEL_SERVINGS.name, written.resource_version)
            case Update(patch):
                try:
                    written = await self._client.patch(
                        MODEL_SERVINGS, namespace, name, patch, kind=PatchKind.MERGE
                    )
                except (Conflict, NotFound):
                    return True
                self._expectations.wrote(lws.key, MODEL_SERVINGS.name, written.resource_version)
            case Taken(why, lasting):
                if not lasting:
                    return True
                self._warn(lws, "NameTaken", f"ModelServing {name} {why}")
                return False
            case None:
                pass
        self._told.pop(lws.key, None)
        return False

    async def _report(self, lws: LeaderWorkerSet, serving: ModelServing | None) -> None:
        wanted = status(serving)
        if wanted == lws.status:
            return
        body = {"metadata": {"uid": lws.metadata.uid}, "status": msgspec.to_builtins(wanted)}
        try:
            written = await self._client.patch(
                LEADER_WORKER_SETS, *lws.key, body, kind=PatchKind.MERGE, subresource="status"
            )
        except NotFound:
            return
        self._expectations.wrote(lws.key, LEADER_WORKER_SETS.name, written.resource_version)

    def _warn(self, lws: LeaderWorkerSet, reason: str, note: str) -> None:
        """A Warning event, once for as long as it stays the same."""
        if self._told.get(lws.key) != (reason, note):
            self._told[lws.key] = reason, note
            self._recorder.emit(
                ObjectRef.to(LEADER_WORKER_SETS, lws),
                type="Warning",
                reason=reason,
                action="Reconcile",
                note=note,
            )
