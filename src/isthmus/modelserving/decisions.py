"""The last decisions about each ModelServing, for people who ask what the operator was thinking.

Written by the controller at the end of each pass, read by the debug port. Bounded twice: RING decisions per
ModelServing, and TOTAL in all, of which those go first whose ModelServing was decided on longest ago.
A decision that repeats the one before it is not kept again, so that waiting for an hour does not wash away
how it came to that.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

from isthmus.api.meta import Key
from isthmus.api.names import pod_name, role_id, service_name
from isthmus.api.times import format_micro_time
from isthmus.modelserving.dto import Decision, PlannedAction
from isthmus.modelserving.plan.model import (
    Act,
    Action,
    Adopt,
    Blocked,
    CreatePod,
    CreatePodGroup,
    CreateService,
    DeletePod,
    DeletePodGroup,
    DeleteService,
    Done,
    DropRevision,
    PersistRevision,
    Plan,
    RepairPodGroup,
    RepairService,
)

RING: Final = 32
TOTAL: Final = 4000
"""Decisions of all ModelServings together: some kilobytes each at worst."""
MAX_ACTIONS: Final = 20
"""Actions that one decision lists; of longer ones it says how many more there were."""


class Decisions:
    """The rings. Reads give copies."""

    def __init__(self, *, ring: int = RING, total: int = TOTAL) -> None:
        self._ring = ring
        self._total = total
        self._kept = 0
        self._rings: OrderedDict[Key, deque[Decision]] = OrderedDict()

    def decisions(self, namespace: str | None, name: str | None) -> Sequence[Decision]:
        """The kept decisions, oldest first in each ModelServing, narrowed where asked."""
        return [
            decision
            for key, ring in self._rings.items()
            if (namespace is None or key[0] == namespace) and (name is None or key[1] == name)
            for decision in ring
        ]

    def note(
        self,
        key: Key,
        plan: Plan,
        *,
        observed: dict[str, str | int],
        began: float,
        took_s: float,
        error: str = "",
    ) -> None:
        """Keep what was decided; `began` in seconds since the epoch."""
        made = Decision(
            namespace=key[0],
            name=key[1],
            time=format_micro_time(began),
            observed=observed,
            planned=_planned(plan),
            outcome=f"failed: {error}" if error else _outcome(plan),
            duration_seconds=round(took_s, 6),
        )
        ring = self._rings.setdefault(key, deque(maxlen=self._ring))
        self._rings.move_to_end(key)
        if ring and _same(ring[-1], made):
            return
        self._kept += len(ring) < self._ring
        ring.append(made)
        if self._kept > self._total:
            self._drop_oldest()

    def forget(self, key: Key) -> None:
        """The ModelServing is gone."""
        self._kept -= len(self._rings.pop(key, ()))

    def _drop_oldest(self) -> None:
        key, ring = next(iter(self._rings.items()))
        ring.popleft()
        self._kept -= 1
        if not ring:
            del self._rings[key]


def _same(one: Decision, other: Decision) -> bool:
    return (one.observed, one.planned, one.outcome) == (other.observed, other.planned, other.outcome)


def _outcome(plan: Plan) -> str:
    match plan.decision:
        case Done():
            return "done: all is as wanted"
        case Blocked(reasons):
            return f"waiting: {'; '.join(reasons[:MAX_ACTIONS])}"
        case Act(reasons=reasons):
            return f"carried out: {'; '.join(reasons[:MAX_ACTIONS])}"


def _planned(plan: Plan) -> list[PlannedAction]:
    if not isinstance(plan.decision, Act):
        return []
    actions = plan.decision.actions
    shown = [describe(action) for action in actions[:MAX_ACTIONS]]
    if len(actions) > MAX_ACTIONS:
        shown.append(PlannedAction("more", f"{len(actions) - MAX_ACTIONS} actions", "not listed"))
    return shown


def describe(action: Action) -> PlannedAction:
    """One action in words."""
    match action:
        case PersistRevision(revision):
            return PlannedAction("store", f"revision {revision.name}", "it is not stored yet")
        case DropRevision(name):
            return PlannedAction("delete", f"ControllerRevision {name}", "nothing uses it")
        case Adopt(kind, name):
            return PlannedAction("adopt", f"{kind} {name}", "it has no owner")
        case CreateService(group, role, instance):
            return PlannedAction(
                "create", f"Service {service_name(group, role_id(role, instance))}", "missing"
            )
        case RepairService(service=service):
            return PlannedAction("repair", f"Service {service.metadata.name}", "its selector was changed")
        case DeleteService(service, why):
            return PlannedAction("delete", f"Service {service.metadata.name}", why)
        case CreatePodGroup(group):
            return PlannedAction("create", f"PodGroup {group}", "missing")
        case RepairPodGroup(pod_group):
            target = f"PodGroup {pod_group.metadata.name}"
            return PlannedAction("repair", target, "it is not what the spec asks for")
        case DeletePodGroup(pod_group, why):
            return PlannedAction("delete", f"PodGroup {pod_group.metadata.name}", why)
        case CreatePod(group, template, revision, instance, index):
            name = pod_name(group, role_id(template.name, instance), index)
            return PlannedAction("create", f"pod {name}", f"missing at revision {revision}")
        case DeletePod(pod, why):
            return PlannedAction("delete", f"pod {pod.metadata.name}", why)
