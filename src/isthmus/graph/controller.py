"""Reconciles DynamoGraphDeployments: looks, plans, carries out, reports; one pass per key at a time.

runtime/controller.py calls `reconcile` with a key. A pass waits until the caches show what the last one
wrote; reads the caches and nothing else, except where a child is to be made: whether a stranger has its name
(GD-17). What failed is said in status and raised for the queue to retry with backoff: no error here is final.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from isthmus.api.dynamo.children import GraphChild
from isthmus.api.dynamo.graphs import DynamoGraphDeployment
from isthmus.api.meta import Key
from isthmus.clock import Clock
from isthmus.errors import IsthmusError
from isthmus.graph.executor import Executor, Result
from isthmus.graph.plan.model import (
    Action,
    ChildName,
    CreateChild,
    GraphSettings,
    Observed,
    Plan,
    RepairChild,
)
from isthmus.graph.plan.reconcile import plan, sort_children
from isthmus.graph.plan.status import status
from isthmus.graph.report import Reporter, notes
from isthmus.graph.store import Caches, Store
from isthmus.kube.client import Client, Written
from isthmus.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, WriteRefused
from isthmus.runtime.controller import DONE, Again, Outcome
from isthmus.runtime.events import EventRecorder
from isthmus.runtime.expect import Expectations, Seen

State = tuple[str, str]
"""(UID, resourceVersion) of an object."""
_NOTHING: Final[frozenset[State]] = frozenset()


class GraphController:
    """See the module. Give `reconcile` to a runtime Controller."""

    def __init__(  # noqa: PLR0913 - what it connects
        self,
        client: Client,
        caches: Caches,
        store: Store,
        expectations: Expectations,
        recorder: EventRecorder,
        clock: Clock,
        settings: GraphSettings,
    ) -> None:
        self._client = client
        self._store = store
        self._expectations = expectations
        self._clock = clock
        self._settings = settings
        self._executor = Executor(client, caches.children, expectations)
        self._reporter = Reporter(client, caches.graphs.resource, expectations, recorder)
        self._seen: dict[str, Seen] = {cache.resource.name: cache for cache in caches.written}
        self._futile: dict[Key, frozenset[State]] = {}

    async def reconcile(self, key: Key) -> Outcome:
        """One pass for one graph; see the module. Raises what failed, for the queue to retry."""
        if not self._expectations.satisfied(key, self._seen):
            return Again(self._expectations.remaining_s(key))
        graph = self._store.graph(key)
        if graph is None:
            self._expectations.forget(key)
            self._reporter.forget(key)
            self._futile.pop(key, None)
            return DONE
        if graph.metadata.terminating:
            return DONE
        observed, planned, errors = await self._plan(key, graph)
        results = await self._executor.carry_out(key, planned.actions)
        self._learn_futile(key, observed, results)
        errors += [result for _, result in results if isinstance(result, IsthmusError)]
        self._reporter.tell(graph, notes(planned))
        told = [_text(error) for error in errors if not isinstance(error, Conflict | AlreadyExists)]
        try:
            await self._reporter.write(graph, status(observed, planned, told, self._clock.now()))
        except WriteRefused:
            raise
        except IsthmusError as error:
            errors.append(error)
        if errors:
            raise ExceptionGroup(f"{len(errors)} parts of graph {key[0]}/{key[1]} failed", errors)
        return Again(self._settings.conflict_recheck_s) if planned.conflicts else DONE

    async def _plan(
        self, key: Key, graph: DynamoGraphDeployment
    ) -> tuple[Observed, Plan, list[IsthmusError]]:
        """What was seen, the plan, and why some children could not be looked for: it leaves these out."""
        observed = self._store.observe(graph, self._futile.get(key, _NOTHING))
        planned = plan(observed, self._settings)
        missing = [action for action in planned.actions if isinstance(action, CreateChild)]
        if not missing:
            return observed, planned, []
        found, unseen = await self._look(key, missing)
        ours, strangers = sort_children(found.items(), observed.uid)
        observed = replace(observed, children={**observed.children, **ours}, strangers=strangers)
        planned = plan(observed, self._settings)
        certain = tuple(action for action in planned.actions if action.name not in unseen)
        return observed, replace(planned, actions=certain), list(unseen.values())

    async def _look(
        self, key: Key, missing: Sequence[CreateChild]
    ) -> tuple[dict[ChildName, GraphChild], dict[ChildName, IsthmusError]]:
        """The objects that have the names of missing children: one without our label is in no cache. Also why
        some cannot be seen."""
        found: dict[ChildName, GraphChild] = {}
        unseen: dict[ChildName, IsthmusError] = {}

        async def get(action: CreateChild) -> None:
            try:
                found[action.name] = await self._client.get(action.resource, key[0], action.name.name)
            except NotFound:
                pass
            except IsthmusError as error:
                unseen[action.name] = error

        await asyncio.gather(*(get(action) for action in missing))
        return found, unseen

    def _learn_futile(self, key: Key, observed: Observed, results: Sequence[tuple[Action, Result]]) -> None:
        """Remember on which states of children a repair changes nothing, as where the API server writes a
        value in its own way: to repair again would be a write at rest (G-2)."""
        before = self._futile.pop(key, _NOTHING)
        states = {_state(child) for child in observed.children.values()}
        after = (before & states) | {
            _state(action.child)
            for action, result in results
            if isinstance(action, RepairChild)
            and isinstance(result, Written)
            and result.resource_version == action.child.metadata.resource_version
        }
        if after:
            self._futile[key] = frozenset(after)


def _state(child: GraphChild) -> State:
    return child.metadata.uid, child.metadata.resource_version


def _text(error: IsthmusError) -> str:
    return error.message if isinstance(error, ApiError) else str(error)
