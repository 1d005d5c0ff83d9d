"""Actions of a plan -> requests to the API server, each with the preconditions on which it was decided.

Called by controller.py: first the exports, then the children. Creating is exclusive, so that a name that
somebody took meanwhile is not adopted (PR-60); a repair and a deletion carry the UID and resourceVersion that
were read (PR-63, PR-67). One failure keeps none of the others from being tried (PR-76). Every write is noted
with the expectations, so that the next plan sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from isthmus.api.meta import Key, ObjectMeta, Resource
from isthmus.api.poolrelay import RELAY_ROLE_BINDINGS, service_exports
from isthmus.errors import IsthmusError
from isthmus.kube.client import Client, PatchKind, Written
from isthmus.kube.errors import AlreadyExists, Forbidden, NotFound
from isthmus.poolrelay.plan.model import (
    ChildAction,
    CreateChild,
    CreateExport,
    DeleteChild,
    DeleteExport,
    ExportAction,
    RelaySettings,
    RepairChild,
    RepairExport,
)
from isthmus.poolrelay.store import Caches
from isthmus.runtime.cache import AnyCache
from isthmus.runtime.expect import Expectations
from isthmus.runtime.writes import at_once

FIELD_MANAGER: Final = "isthmus-poolrelay"
"""Who applies repairs; it never changes, since fields belong to a manager by name (T-108)."""
CONCURRENCY: Final = 8
"""Requests of one relay that may be under way at once."""

Result = Written | IsthmusError | None
"""What came of one write: the answer, the error, or None for a deletion that was done."""


class Executor:
    """See the module."""

    def __init__(
        self, client: Client, caches: Caches, expectations: Expectations, settings: RelaySettings
    ) -> None:
        self._client = client
        self._caches = caches
        self._expectations = expectations
        self._exports = service_exports(settings.export_version)

    async def export(self, key: Key, actions: Sequence[ExportAction]) -> list[tuple[ExportAction, Result]]:
        """Do all of it for the relay `key`; what came of each. Raises WriteRefused where this process may not
        write any more."""
        return await at_once(actions, lambda action: self._export(key, action), most=CONCURRENCY)

    async def make(self, key: Key, actions: Sequence[ChildAction]) -> list[tuple[ChildAction, Result]]:
        """The same for the relay's children. The RoleBinding comes when the Role is there, since the API
        server lets nobody bind to a Role that it cannot look into."""
        first = [action for action in actions if action.resource != RELAY_ROLE_BINDINGS]
        then = [action for action in actions if action.resource == RELAY_ROLE_BINDINGS]

        async def one(action: ChildAction) -> Written | None:
            return await self._child(key, action)

        return await at_once(first, one, most=CONCURRENCY) + await at_once(then, one, most=CONCURRENCY)

    async def _export(self, key: Key, action: ExportAction) -> Written | None:
        match action:
            case CreateExport(_, body):
                return self._noted(key, self._exports, await self._create(key, self._exports, body))
            case RepairExport(export, body):
                written = await self._client.apply(
                    self._exports, key[0], export.metadata.name, body, field_manager=FIELD_MANAGER, force=True
                )
                return self._noted(key, self._exports, written)
            case DeleteExport(export):
                meta, cache = export.metadata, self._caches.exports
                assert cache is not None
                await self._delete(key, self._exports, cache, meta)
                return None

    async def _child(self, key: Key, action: ChildAction) -> Written | None:
        match action:
            case CreateChild(resource, body):
                return self._noted(key, resource, await self._create(key, resource, body))
            case RepairChild(resource, child, body):
                written = await self._client.patch(
                    resource, key[0], child.metadata.name, body, kind=PatchKind.MERGE
                )
                return self._noted(key, resource, written)
            case DeleteChild(resource, child):
                meta, cache = child.metadata, self._caches.children[resource.kind]
                await self._delete(key, resource, cache, meta)
                return None

    async def _create(self, key: Key, resource: Resource[Any], body: dict[str, Any]) -> Written | None:
        """None where the namespace is on its way out, and the relay with it: that is no failure."""
        try:
            return await self._client.create(resource, key[0], body)
        except Forbidden as error:
            if not error.namespace_ends:
                raise
            return None

    async def _delete(self, key: Key, resource: Resource[Any], cache: AnyCache, meta: ObjectMeta) -> None:
        await self._client.delete(
            resource, key[0], meta.name, uid=meta.uid, resource_version=meta.resource_version
        )
        self._expectations.deleted(key, cache, (key[0], meta.name), meta.uid)

    def _noted(self, key: Key, resource: Resource[Any], written: Written | None) -> Written | None:
        if written is not None:
            self._expectations.wrote(key, resource.name, written.resource_version)
        return written


def is_settled(action: ExportAction | ChildAction, result: Result) -> bool:
    """Whether a write needs no other try: it was done, or somebody has done it before (PR-61, PR-68)."""
    if isinstance(result, AlreadyExists):
        return isinstance(action, CreateExport)
    if isinstance(result, NotFound):
        return isinstance(action, DeleteExport | DeleteChild)
    return not isinstance(result, IsthmusError)
