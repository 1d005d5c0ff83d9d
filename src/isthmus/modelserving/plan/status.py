"""Groups and what a plan does to them -> the status that people and autoscalers read.

Called by reconcile.py at the end of each plan. Counts follow what is about to happen as well as what is
there: a group that this pass takes down is not available any more (MS-432, R09). Conditions are always
written afresh; only the time of the last transition is kept while the status of a condition stays the same
(MS-433).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from msgspec.structs import replace

from isthmus.api import labels as keys
from isthmus.api.modelserving import Condition, ModelServing, Status
from isthmus.api.times import format_time
from isthmus.modelserving.plan.backoff import kept
from isthmus.modelserving.plan.causes import MAX_LISTED, not_ready
from isthmus.modelserving.plan.draft import Draft
from isthmus.modelserving.plan.model import Desired, Group, State
from isthmus.modelserving.plan.roles import role_partition


def status(groups: Mapping[int, Group], desired: Desired, draft: Draft, now: float) -> Status:
    """The status as of this plan (MS-100 to MS-105); `now` in seconds since the epoch."""
    present = [group for group in groups.values() if group.exists]
    staying = [group for group in present if group.name not in draft.deleting]
    available = [group for group in staying if is_available(group, draft)]
    new = desired.revision.name
    outdated = [group for group in staying if group.revision not in ("", new)]
    begun = Counter(draft.created.values())
    begun.update(draft.hollow)
    updated = sum(group.revision == new for group in staying) + begun[new]
    behind = len(outdated) + begun.total() - begun[new]
    replicas = len(present) + begun.total()
    wanted = desired.spec.replicas
    serving = len(available) + sum(draft.hollow.values())
    complete = replicas == serving == updated == wanted
    draft.recoveries = kept(groups, desired)
    return Status(
        observed_generation=desired.generation,
        replicas=replicas,
        current_replicas=updated if complete and not desired.group_partition else behind,
        updated_replicas=updated,
        available_replicas=serving,
        current_revision=current_revision(present, desired, draft),
        update_revision=new,
        label_selector=label_selector(desired),
        conditions=_conditions(groups, available, outdated, desired, draft, now),
        recoveries=draft.recoveries,
    )


def is_available(group: Group, draft: Draft) -> bool:
    """Whether every role of a group that stays is complete and ready, and stays so in this pass."""
    return group.state is State.RUNNING and group.name not in draft.disturbed


def current_revision(present: Iterable[Group], desired: Desired, draft: Draft) -> str:
    """The revision that is being left (MS-102). It stays while anything has it, dying groups included, and
    while an ordinal below the partition that is to keep it is missing (MS-405); then the commonest old one,
    the newest of those."""
    new, present = desired.revision.name, list(present)
    used = Counter(group.revision for group in present if group.revision)
    used.update(draft.created.values())
    used.update(draft.hollow)
    if any(instance.revision == new for group in present for instance in group.each()):
        used[new] += 1  # a role that rolls by itself may have it in a group that is older, after going back
    current = desired.status.current_revision
    if current and (current in used or (current in desired.stored and _owes(present, desired, draft))):
        return current
    old = {name: count for name, count in used.items() if name != new}

    def rank(name: str) -> tuple[int, int, str]:
        return old[name], desired.stored[name].number if name in desired.stored else 0, name

    return max(old, key=rank) if old else new


def _owes(present: list[Group], desired: Desired, draft: Draft) -> bool:
    """Whether something below a partition is missing, which is to come back as it was: a group, or an
    instance of a role that rolls by itself (MS-405, MS-407)."""
    known = {group.ordinal for group in present if group.revision} | draft.created.keys()
    protected = range(min(desired.group_partition, desired.spec.replicas))
    if any(ordinal not in known for ordinal in protected):
        return True
    for role, template in desired.revision.roles.items():
        partition = min(role_partition(role, template.replicas, desired), template.replicas)
        if partition and len(present) < desired.spec.replicas:
            return True
        if any(n not in group.instances.get(role, {}) for group in present for n in range(partition)):
            return True
    return False


def label_selector(desired: Desired) -> str:
    """The scale selector: one pod of each group, so that averages divide by groups (MS-103, MS-113)."""
    first = next(iter(desired.revision.roles), "")
    pairs = {keys.ENTRY: "true", keys.NAME: desired.name, keys.ROLE_ID: f"{first}-0", keys.ROLE: first}
    return ",".join(f"{key}={value}" for key, value in pairs.items())


def _conditions(
    groups: Mapping[int, Group],
    available: list[Group],
    outdated: list[Group],
    desired: Desired,
    draft: Draft,
    now: float,
) -> tuple[Condition, ...]:
    ready = {group.ordinal for group in available}
    present = [group.ordinal for group in groups.values() if group.exists]
    waiting = sorted({*present, *draft.created} - ready)
    there = len(present) + len(draft.created) + sum(draft.hollow.values())
    missing = desired.spec.replicas - there
    updating = len(outdated) > desired.group_partition
    board = _Board(desired.status, desired.generation, now)
    if not waiting and missing <= 0:
        board.set("Available", True, "AllGroupsReady", "All Serving groups are ready")
        board.set("Progressing", False, "AllGroupsReady", "All Serving groups are ready")
        board.set("UpdateInProgress", False, "AllGroupsReady", "All Serving groups are ready")
    else:
        message = not_ready(groups, waiting, missing, desired.name, draft)
        reason = "GroupsUpdating" if updating else "GroupProgressing"
        board.set("Available", False, reason, message)
        board.set("Progressing", not updating, reason, message)
        board.set("UpdateInProgress", updating, reason, message)
    if draft.problems:
        reason = next(iter(draft.problems))[0]
        message = "; ".join(text for _, text in islice(draft.problems, MAX_LISTED))
        board.set("Progressing", False, reason, message[:4096])
    return board.conditions


def with_problem(status: Status, desired: Desired, reason: str, message: str, now: float) -> Status:
    """The same status, with Progressing False for a reason that keeps the controller from going on
    (MS-422)."""
    board = _Board(desired.status, desired.generation, now)
    for condition in status.conditions:
        board.keep(condition)
    board.set("Progressing", False, reason, message)
    return replace(status, conditions=board.conditions)


def refused(serving: ModelServing, reason: str, message: str, now: float) -> Status:
    """The status of a ModelServing whose spec cannot be acted on: counts stay as they were last known."""
    board = _Board(serving.status, serving.metadata.generation, now)
    for condition in serving.status.conditions:
        board.keep(condition)
    board.set("Progressing", False, reason, message)
    return replace(
        serving.status, observed_generation=serving.metadata.generation, conditions=board.conditions
    )


class _Board:
    """Conditions being written. Progressing and UpdateInProgress appear when they are first true and stay
    from then on."""

    def __init__(self, old: Status, generation: int, now: float) -> None:
        self._old = {condition.type: condition for condition in old.conditions}
        self._new: dict[str, Condition] = {}
        self._generation = generation
        self._now = format_time(now)

    def keep(self, condition: Condition) -> None:
        self._new[condition.type] = condition

    def set(self, kind: str, true: bool, reason: str, message: str) -> None:
        old = self._old.get(kind)
        if old is None and not true and kind != "Available" and reason in ("AllGroupsReady", *_PROGRESS):
            return
        value = "True" if true else "False"
        since = old.last_transition_time if old is not None and old.status == value else self._now
        self._new[kind] = Condition(
            type=kind,
            status=value,
            reason=reason,
            message=message,
            last_transition_time=since or self._now,
            observed_generation=self._generation,
        )

    @property
    def conditions(self) -> tuple[Condition, ...]:
        foreign = [old for kind, old in self._old.items() if kind not in self._new]
        return (*self._new.values(), *foreign)


_PROGRESS = ("GroupsUpdating", "GroupProgressing")
