"""Reconciles DynamoPoolRelays: looks, plans, carries out, reports; one pass per key at a time.

runtime/controller.py calls `reconcile` with a key. A pass waits until the caches show what the last one
wrote; reads the caches and nothing else, except where a child is to be made (whether a stranger has its name)
and where the cluster's ID has not been listed; then does exports, events, children and status in this order,
each although an earlier one failed (section 17). What failed is raised for the queue to retry with backoff:
no error here is final (PR-22).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from isthmus import logs
from isthmus.api.meta import Key, Resource
from isthmus.api.poolrelay import (
    CLUSTER_PROPERTIES,
    PROPERTY_NAME,
    DynamoPoolRelay,
    RelayChild,
    ServiceExport,
    pool_relay_name,
)
from isthmus.clock import Clock
from isthmus.errors import IsthmusError, WorldError
from isthmus.kube.client import Client, Written
from isthmus.kube.errors import ApiError, NotFound, WriteRefused
from isthmus.poolrelay.executor import Executor, Result, is_settled
from isthmus.poolrelay.plan import warnings
from isthmus.poolrelay.plan.model import (
    CreateChild,
    ExportAction,
    Observed,
    Plan,
    Property,
    PropertyState,
    RelaySettings,
    RepairExport,
    Unreadable,
)
from isthmus.poolrelay.plan.reconcile import plan, sort_children
from isthmus.poolrelay.plan.status import status
from isthmus.poolrelay.report import Reporter
from isthmus.poolrelay.store import Caches, Store
from isthmus.runtime.controller import DONE, Again, Outcome
from isthmus.runtime.events import EventRecorder
from isthmus.runtime.expect import Expectations, Seen

log = logs.get(__name__)

State = tuple[str, str]
"""(UID, resourceVersion) of an object."""
_NOTHING: Final[frozenset[State]] = frozenset()


class IdUnreadable(WorldError):
    """The cluster's own ID cannot be read now; everything else of the pass has been done (PR-89)."""


class PoolRelayController:
    """See the module. Give `reconcile` to a runtime Controller."""

    def __init__(  # noqa: PLR0913 - what it connects
        self,
        client: Client,
        caches: Caches,
        store: Store,
        expectations: Expectations,
        recorder: EventRecorder,
        clock: Clock,
        settings: RelaySettings,
    ) -> None:
        self._client = client
        self._store = store
        self._expectations = expectations
        self._clock = clock
        self._settings = settings
        self._executor = Executor(client, caches, expectations, settings)
        self._reporter = Reporter(client, expectations, recorder)
        self._seen: dict[str, Seen] = {cache.resource.name: cache for cache in caches.written}
        self._futile: dict[Key, frozenset[State]] = {}
        self._noted: dict[Key, tuple[str, ...]] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """One pass for one relay; see the module. Raises what failed, for the queue to retry."""
        if not self._expectations.satisfied(key, self._seen):
            return Again(self._expectations.remaining_s(key))
        relay = self._store.relay(key)
        if relay is None:
            self._forget(key)
            return DONE
        if relay.metadata.terminating:
            return DONE
        observed, planned, unseen = await self._plan(key, relay)
        self._note(key, planned.notes)
        errors = await self._exports(key, observed, planned)
        self._reporter.tell(relay, planned.events)
        if not planned.hold:
            errors += await self._workload(key, observed, planned, unseen)
        if planned.unread:
            errors.append(IdUnreadable(f"cannot read the cluster's ID: {planned.unread}"))
        if errors:
            raise ExceptionGroup(f"{len(errors)} parts of relay {key[0]}/{key[1]} failed", errors)
        return DONE if planned.recheck_s is None else Again(planned.recheck_s)

    async def _plan(self, key: Key, relay: DynamoPoolRelay) -> tuple[Observed, Plan, list[IsthmusError]]:
        """What was seen, the plan, and why some children could not be looked for: it leaves these out."""
        observed = self._store.observe(relay, self._futile.get(key, _NOTHING))
        if observed.cluster is PropertyState.UNKNOWN:
            observed = replace(observed, cluster=await self._ask_cluster())
        planned = plan(observed, self._settings)
        missing = [action for action in planned.children if isinstance(action, CreateChild)]
        if not missing:
            return observed, planned, []
        found, unseen = await self._look(observed.key, missing)
        ours, strangers = sort_children(found, observed.uid)
        observed = replace(
            observed, children={**observed.children, **ours}, strangers=(*observed.strangers, *strangers)
        )
        planned = plan(observed, self._settings)
        certain = tuple(action for action in planned.children if action.resource.kind not in unseen)
        return observed, replace(planned, children=certain), list(unseen.values())

    async def _ask_cluster(self) -> Property:
        """The cluster's ID from the API server, while the cache cannot say (PR-88, PR-89)."""
        for resource in CLUSTER_PROPERTIES:
            try:
                return await self._client.get(resource, "", PROPERTY_NAME)
            except NotFound:
                continue
            except IsthmusError as error:
                return Unreadable(str(error))
        return PropertyState.ABSENT

    async def _look(
        self, key: Key, missing: Sequence[CreateChild]
    ) -> tuple[dict[str, RelayChild], dict[str, IsthmusError]]:
        """The objects, by kind, that have the names of missing children: one without our label is in no cache
        (PR-20). Also, by kind, why it cannot be seen."""
        found: dict[str, RelayChild] = {}
        unseen: dict[str, IsthmusError] = {}

        async def get(resource: Resource[RelayChild]) -> None:
            try:
                found[resource.kind] = await self._client.get(resource, key[0], pool_relay_name(key[1]))
            except NotFound:
                pass
            except IsthmusError as error:
                unseen[resource.kind] = error

        await asyncio.gather(*(get(action.resource) for action in missing))
        return found, unseen

    async def _exports(self, key: Key, observed: Observed, planned: Plan) -> list[IsthmusError]:
        """Carry out the exports' part and tell how it went; return what failed."""
        results = await self._executor.export(key, planned.exports)
        self._learn_futile(key, observed, results)
        failed = []
        for action, result in results:
            if _futile_state(action, result) is not None:
                continue
            events = warnings.of_write(action, result, key[0], self._settings)
            self._reporter.tell(observed.relay, events)
            if not is_settled(action, result):
                assert isinstance(result, IsthmusError)
                failed.append(result)
        return failed

    async def _workload(
        self, key: Key, observed: Observed, planned: Plan, failed: list[IsthmusError]
    ) -> list[IsthmusError]:
        """Carry out the children's part and write the status; return what failed, here and before."""
        results = await self._executor.make(key, planned.children)
        failed += [
            result
            for action, result in results
            if isinstance(result, IsthmusError) and not is_settled(action, result)
        ]
        wanted = status(observed, planned, [_text(error) for error in failed], self._clock.now())
        try:
            await self._reporter.write(observed.relay, wanted)
        except WriteRefused:
            raise
        except IsthmusError as error:
            failed.append(error)
        return failed

    def _learn_futile(
        self, key: Key, observed: Observed, results: Sequence[tuple[ExportAction, Result]]
    ) -> None:
        """Remember on which states of exports an apply changes nothing, as where the API server drops a spec
        that its schema does not know: to apply again would be a write at rest (PR-71)."""
        before = self._futile.pop(key, _NOTHING)
        there = {_state(export) for export in observed.exports.values()}
        found = (_futile_state(action, result) for action, result in results)
        after = (before & there) | {state for state in found if state is not None}
        if after:
            self._futile[key] = after

    def _note(self, key: Key, notes: tuple[str, ...]) -> None:
        """One line in the log for each thing worth knowing, when it is new."""
        known = self._noted.pop(key, ())
        if notes:
            self._noted[key] = notes
        for note in notes:
            if note not in known:
                log.info(note, relay=key)

    def _forget(self, key: Key) -> None:
        self._expectations.forget(key)
        self._futile.pop(key, None)
        self._noted.pop(key, None)


def _state(export: ServiceExport) -> State:
    return export.metadata.uid, export.metadata.resource_version


def _futile_state(action: ExportAction, result: Result) -> State | None:
    """The state of an export that an apply was accepted for and left as it was; else None."""
    if not isinstance(action, RepairExport) or not isinstance(result, Written):
        return None
    state = _state(action.export)
    return state if result.resource_version == state[1] else None


def _text(error: IsthmusError) -> str:
    return error.message if isinstance(error, ApiError) else str(error)
