"""Actions of a plan -> requests to the API server, each with the preconditions on which it was decided.

Called by controller.py. Creating is exclusive, so that a name that somebody took meanwhile is not adopted; a
repair and a deletion carry the UID and resourceVersion that were read (GD-17). One failure keeps none of the
others from being tried. Every write is noted with the expectations, so that the next plan sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from isthmus.api.dynamo.children import ROLE_BINDINGS, GraphChild
from isthmus.api.meta import Key
from isthmus.errors import IsthmusError
from isthmus.graph.plan.model import Action, CreateChild, DeleteChild, RepairChild
from isthmus.kube.client import Client, PatchKind, Written
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.runtime.cache import Cache
from isthmus.runtime.expect import Expectations
from isthmus.runtime.writes import at_once

CONCURRENCY: Final = 8
"""Requests of one graph that may be under way at once."""
Result = Written | IsthmusError | None
"""What came of one write: the answer, the error, or None where nothing is left to do."""


class Executor:
    """See the module. `caches` are the children's, by kind."""

    def __init__(
        self, client: Client, caches: Mapping[str, Cache[GraphChild]], expectations: Expectations
    ) -> None:
        self._client = client
        self._caches = caches
        self._expectations = expectations

    async def carry_out(self, key: Key, actions: Sequence[Action]) -> list[tuple[Action, Result]]:
        """Do all of it for the graph `key`; what came of each. Raises WriteRefused where this process may not
        write any more. The RoleBinding comes when the Role is there, since the API server lets nobody bind to
        a Role that it cannot look into."""
        first = [action for action in actions if action.name.kind != ROLE_BINDINGS.kind]
        then = [action for action in actions if action.name.kind == ROLE_BINDINGS.kind]

        async def one(action: Action) -> Written | None:
            return await self._do(key, action)

        return await at_once(first, one, most=CONCURRENCY) + await at_once(then, one, most=CONCURRENCY)

    async def _do(self, key: Key, action: Action) -> Written | None:
        resource = action.resource
        match action:
            case CreateChild(_, body):
                try:
                    written = await self._client.create(resource, key[0], body)
                except Forbidden as error:
                    # The namespace is on its way out, and the graph with it: that is no failure.
                    if not error.namespace_ends:
                        raise
                    return None
            case RepairChild(_, child, body):
                try:
                    written = await self._client.patch(
                        resource, key[0], child.metadata.name, body, kind=PatchKind.MERGE
                    )
                except NotFound:
                    return None  # gone meanwhile, which the watch will show
            case DeleteChild(_, child):
                await self._delete(key, action)
                return None
        self._expectations.wrote(key, resource.name, written.resource_version)
        return written

    async def _delete(self, key: Key, action: DeleteChild) -> None:
        """Nothing is left to do where it is gone already."""
        meta = action.child.metadata
        try:
            await self._client.delete(
                action.resource, key[0], meta.name, uid=meta.uid, resource_version=meta.resource_version
            )
        except NotFound:
            return
        cache = self._caches[action.resource.kind]
        self._expectations.deleted(key, cache, (key[0], meta.name), meta.uid)
