"""Reconciles ModelServings: looks, plans, carries out, reports; one pass per key at a time, level-triggered.

runtime/controller.py calls `reconcile` with a key. A pass waits until the caches show what the last one
wrote, so that it never decides on a view that is behind its own writes; plans on one snapshot; carries the
plan out; then writes the status and tells the events, also when something failed (MS-422). Nothing is written
for a ModelServing that is being deleted (MS-417). Time comes from the clock, decisions from plan/, facts from
the store: this module only connects them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from msgspec.structs import replace

from isthmus import logs
from isthmus.api.meta import Key
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing
from isthmus.api.names import pod_name
from isthmus.clock import Clock
from isthmus.errors import IsthmusError
from isthmus.kube.client import Client
from isthmus.kube.errors import ApiError, Conflict, Invalid
from isthmus.modelserving.decisions import Decisions
from isthmus.modelserving.executor import ApiGone, Executor
from isthmus.modelserving.gangapi import GangApi
from isthmus.modelserving.news import News
from isthmus.modelserving.plan.causes import recovery_text
from isthmus.modelserving.plan.gang import in_cluster, is_ganged
from isthmus.modelserving.plan.model import Act, Plan, State
from isthmus.modelserving.plan.reconcile import plan
from isthmus.modelserving.plan.status import refused, with_problem
from isthmus.modelserving.report import StatusWriter
from isthmus.modelserving.store import Caches, Store
from isthmus.modelserving.view import View
from isthmus.runtime.controller import DONE, Again, Outcome
from isthmus.runtime.events import EventRecorder, ObjectRef
from isthmus.runtime.expect import Expectations, Seen

log = logs.get(__name__)

_REASONS = {State.CREATING: "RoleCreating", State.RUNNING: "RoleRunning", State.DELETING: "RoleDeleting"}


API_RETRY_S = 5.0
"""Seconds to the next look where the PodGroup API is going, or is not known well enough, if nothing is heard
of it before."""


class _Told:
    """What people have been told about one ModelServing: the states of its instances, None before its first
    pass, and its problems. A successor of the same name begins anew."""

    __slots__ = ("news", "problems", "states", "uid")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.news = News()
        self.states: dict[tuple[str, str], State] | None = None
        self.problems: tuple[tuple[str, str], ...] = ()


class ModelServingController:
    """See the module. Give `reconcile` to a runtime Controller."""

    def __init__(  # noqa: PLR0913 - what a pass goes through
        self,
        client: Client,
        caches: Caches,
        store: Store,
        expectations: Expectations,
        recorder: EventRecorder,
        clock: Clock,
        gang: GangApi,
    ) -> None:
        self.decisions = Decisions()
        self._store = store
        self._expectations = expectations
        self._recorder = recorder
        self._clock = clock
        self._gang = gang
        self._executor = Executor(client, caches, store, expectations, gang)
        self._status = StatusWriter(client, expectations, clock)
        self._told: dict[Key, _Told] = {}
        self._seen: dict[str, Seen] = {cache.resource.name: cache for cache in caches.all}

    async def reconcile(self, key: Key) -> Outcome:
        """One pass for one ModelServing; see the module. Raises what failed, for the queue to retry."""
        if not self._expectations.satisfied(key, self._seen):
            return Again(self._expectations.remaining_s(key))
        offer = await self._gang.offer()
        view = self._store.view(key, self._clock.now())
        if view is None:
            self._forget(key)
            return DONE
        if view.serving.metadata.terminating:
            return DONE
        if isinstance(view, View):
            return await self._act(key, replace(view, desired=in_cluster(view.desired, view.serving, offer)))
        return await self._refuse(key, view.serving, view.problem)

    async def _act(self, key: Key, view: View) -> Outcome:
        began, began_mono = self._clock.now(), self._clock.monotonic()
        planned = plan(view.desired, view.groups, view.revisions, began)
        failed: list[IsthmusError] = []
        told = planned.status.recoveries != view.serving.status.recoveries
        if told:  # before the pods that failed go, so that a restart neither forgets nor repeats it
            await self._status.write(view.serving, planned.status)
        if isinstance(planned.decision, Act):
            failed = await self._executor.carry_out(view.desired, planned.decision.actions)
        self._store.settle(key, view.groups)
        gone = [error for error in failed if isinstance(error, ApiGone)]
        failed = [error for error in failed if not isinstance(error, ApiGone)]
        serious = [error for error in failed if not isinstance(error, Conflict)]
        self._tell(key, view, planned, serious)
        self.decisions.note(
            key,
            planned,
            observed=_in_short(view),
            began=began,
            took_s=self._clock.monotonic() - began_mono,
            error="; ".join(str(error) for error in failed[:3]),
        )
        status = planned.status
        if view.problems:
            status = with_problem(status, view.desired, "InvalidSpec", "; ".join(view.problems), began)
        if serious:
            status = with_problem(status, view.desired, "ActionFailed", _text(serious), began)
        deferred_s = None
        if not told or status is not planned.status:
            deferred_s = await self._status.write(view.serving, status)
        if failed:
            raise ExceptionGroup(f"{len(failed)} actions failed", failed)
        waits = [] if planned.recheck_at is None else [max(0.0, planned.recheck_at - self._clock.now())]
        waits += [
            wait_s
            for wait_s in (deferred_s, self._told_of(view.serving).news.remaining_s(self._clock.monotonic()))
            if wait_s is not None
        ]
        if gone or (view.desired.offer.served is None and is_ganged(view.desired.spec)):
            waits.append(API_RETRY_S)
        return Again(min(waits)) if waits else DONE

    async def _refuse(self, key: Key, serving: ModelServing, problem: str) -> Outcome:
        """Report a spec that cannot be acted on, in that object alone; its pods are left as they are."""
        self._warn(self._told_of(serving), ObjectRef.to(MODEL_SERVINGS, serving), [("InvalidSpec", problem)])
        with contextlib.suppress(Invalid):  # some specs make the API server refuse even their status
            await self._status.write(serving, refused(serving, "InvalidSpec", problem, self._clock.now()))
        return DONE

    def _tell(self, key: Key, view: View, planned: Plan, failed: list[IsthmusError]) -> None:
        """Events for what changed since the last pass (MS-106), and for what a person must mend."""
        regarding, told = ObjectRef.to(MODEL_SERVINGS, view.serving), self._told_of(view.serving)
        told.news.note(_changes(told, view, planned))
        for message in told.news.take(planned.states.values(), self._clock.monotonic()):
            group, role_id = message.replicas[0]
            self._recorder.emit(
                regarding,
                type="Normal",
                reason=_REASONS[message.state],
                action="Reconcile",
                note=message.note,
                related=ObjectRef("v1", "Pod", key[0], pod_name(group, role_id, 0)),
            )
        for last in planned.status.recoveries:
            if last.reason and last not in view.serving.status.recoveries:
                self._recorder.emit(
                    regarding,
                    type="Warning",
                    reason="PodFailed",
                    action="Reconcile",
                    note=recovery_text(last),
                    related=ObjectRef("v1", "Pod", key[0], last.pod),
                )
        problems = [*planned.problems]
        if view.problems:
            problems.append(("InvalidSpec", "; ".join(view.problems)))
        if failed:
            problems.append(("ActionFailed", _text(failed)))
        self._warn(told, regarding, problems)

    def _warn(self, told: _Told, regarding: ObjectRef, problems: Sequence[tuple[str, str]]) -> None:
        """Warning events for problems that the last pass did not have, not once more for each pass."""
        known, told.problems = told.problems, tuple(problems)
        for reason, message in problems:
            if (reason, message) not in known:
                self._recorder.emit(
                    regarding, type="Warning", reason=reason, action="Reconcile", note=message
                )

    def _told_of(self, serving: ModelServing) -> _Told:
        told = self._told.get(serving.key)
        if told is None or told.uid != serving.metadata.uid:
            told = self._told[serving.key] = _Told(serving.metadata.uid)
        return told

    def _forget(self, key: Key) -> None:
        self._told.pop(key, None)
        self._expectations.forget(key)
        self._status.forget(key)
        self._executor.forget(key)
        self.decisions.forget(key)


def _changes(told: _Told, view: View, planned: Plan) -> dict[tuple[str, str], State]:
    before = told.states
    if before is None:  # a restart is no news: what was there already is where the telling begins
        before = {
            (group.name, instance.id): instance.state
            for group in view.groups.values()
            for instance in group.each()
        }
    told.states = planned.states
    return {each: state for each, state in planned.states.items() if before.get(each) is not state}


def _in_short(view: View) -> dict[str, str | int]:
    counts: dict[str, str | int] = {
        "generation": view.desired.generation,
        "revision": view.desired.revision.name,
        "replicas": view.desired.spec.replicas,
        "pods": sum(len(i.live) for group in view.groups.values() for i in group.each()),
    }
    for state in State:
        number = sum(1 for group in view.groups.values() if group.exists and group.state is state)
        if number:
            counts[f"groups{state}"] = number
    return counts


def _text(errors: list[IsthmusError]) -> str:
    """One line for people: the distinct messages, the first few of them."""
    texts = dict.fromkeys(error.message if isinstance(error, ApiError) else str(error) for error in errors)
    shown = list(texts)[:3]
    more = f"; and {len(texts) - len(shown)} more" if len(texts) > len(shown) else ""
    return "; ".join(shown)[:1000] + more
