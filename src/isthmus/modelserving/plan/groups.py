"""All ServingGroups of one ModelServing -> which to create, remove and replace, then the roles of those that
stay.

Called by reconcile.py. The order matters: what is on its way out is finished first, then the count is mended,
then outdated groups are replaced within the budget, and only groups that stay are repaired. One set of
observed states serves the whole pass (R03).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from isthmus.api.names import group_name
from isthmus.modelserving.plan import numbers, rollout, scaling
from isthmus.modelserving.plan.draft import Draft
from isthmus.modelserving.plan.gang import plan_pod_group, sweep_pod_groups
from isthmus.modelserving.plan.model import Desired, Group, RoleTarget, State
from isthmus.modelserving.plan.observe import targets
from isthmus.modelserving.plan.roles import kept_revision, plan_roles
from isthmus.modelserving.plan.status import current_revision


def plan_groups(groups: Mapping[int, Group], desired: Desired, draft: Draft) -> None:
    """Add to `draft` what brings the groups, by ordinal, to what is desired."""
    present = {ordinal: group for ordinal, group in sorted(groups.items()) if group.exists}
    kept = _kept_name(present, desired, draft)
    gaps = _gaps(present, kept, desired)
    for gap in gaps:
        if gap.hollow:  # they are there as soon as they are wanted (MS-299)
            draft.hollow[gap.revision] = draft.hollow.get(gap.revision, 0) + gap.number
    surplus = _surplus(present, desired)
    for group in present.values():
        if group.state is State.DELETING:
            _make_way(group, group.broken or "is being deleted", surplus, kept, desired, draft)
        elif group.ordinal in surplus:
            draft.delete_group(group, f"scaled to {desired.spec.replicas} groups")
    if not desired.by_role:
        _replace_outdated(present, kept, desired, draft)
    for group in present.values():
        if group.name not in draft.deleting:
            target = targets(group.ordinal, group.revision, desired)
            if not group.revision:  # only Services are left of it
                target = _due(group.ordinal, kept, desired)
            plan_roles(group, target, desired, draft)
    _create_missing(gaps, groups, present, desired, draft)
    sweep_pod_groups((group for group in groups.values() if not group.exists), desired, draft)


def _surplus(present: Mapping[int, Group], desired: Desired) -> set[int]:
    """Which groups go to come down to the count; those on their way out are counted and come first
    (MS-56)."""
    candidates = [
        scaling.Candidate(group.ordinal, group.state is State.RUNNING, group.cost)
        for group in present.values()
    ]
    surplus = len(present) - desired.spec.replicas
    return set(scaling.victims(candidates, surplus, desired.group_partition))


def _replace_outdated(present: Mapping[int, Group], kept: str, desired: Desired, draft: Draft) -> None:
    """Remove outdated groups as far as the budget allows; their ordinals are filled again once they are gone
    (MS-70)."""
    members = [
        rollout.Member(
            ordinal=group.ordinal,
            available=group.state is State.RUNNING,
            serving=group.serving,
            outdated=group.revision not in ("", desired.revision.name),
            protected=group.ordinal < desired.group_partition,
        )
        for group in present.values()
        if group.name not in draft.deleting
    ]
    strategy = desired.spec.rollout_strategy
    configuration = strategy.rolling_update_configuration if strategy is not None else None
    value = configuration.max_unavailable if configuration is not None else None
    allowed = numbers.max_unavailable(value, desired.spec.replicas)
    going = rollout.replace(members, desired.spec.replicas - sum(draft.hollow.values()), allowed)
    for ordinal in going:
        why = f"is replaced by revision {desired.revision.name}"
        _make_way(present[ordinal], why, set(), kept, desired, draft)
    waiting = [m.ordinal for m in members if m.outdated and not m.protected and m.ordinal not in going]
    if waiting:
        draft.because(f"{len(waiting)} outdated groups wait: at most {allowed} may be unavailable")


def _make_way(
    group: Group, why: str, surplus: Collection[int], kept: str, desired: Desired, draft: Draft
) -> None:
    """Remove a group that is made again at its ordinal, unless it is one too many. The Services that it has
    again stay (MS-64), and so does its PodGroup for the new pods, unless it broke or the policy is to make
    groups again as a whole (MS-85)."""
    if group.ordinal in surplus or group.ordinal >= desired.spec.replicas:
        draft.delete_group(group, why)
        return
    lasting = _due(group.ordinal, kept, desired)
    if group.broken or desired.spec.recovery_policy == "ServingGroupRecreate":
        draft.delete_group(group, why, lasting)
        return
    draft.delete_group(replace(group, pod_group=None), why, lasting)
    if group.pod_group is not None:
        plan_pod_group(group, {}, desired, draft)


class _Gap(NamedTuple):
    """Missing groups that are made from the same: `number` of them, in [start, below)."""

    start: int
    below: int
    number: int
    target: dict[str, RoleTarget]
    revision: str

    @property
    def hollow(self) -> bool:
        """Whether they need no pods."""
        return not any(each.count for each in self.target.values())


def _gaps(present: Mapping[int, Group], kept: str, desired: Desired) -> list[_Gap]:
    """What is missing below the partition and above it, at the lowest free ordinals (MS-52, MS-53)."""
    gaps = []
    wanted = desired.spec.replicas
    border = min(desired.group_partition, wanted)
    limit = wanted - len(present)
    for start, below in ((0, border), (border, wanted)):
        count = min(limit, below - start - sum(start <= ordinal < below for ordinal in present))
        if count > 0:
            limit -= count
            target = _due(start, kept, desired)
            revision = next((each.revision for each in target.values()), desired.revision.name)
            gaps.append(_Gap(start, below, count, target, revision))
    return gaps


def _create_missing(
    gaps: Iterable[_Gap],
    groups: Mapping[int, Group],
    present: Mapping[int, Group],
    desired: Desired,
    draft: Draft,
) -> None:
    """Make the groups that are missing, each at the revision that is due there (MS-53)."""
    for gap in gaps:
        if gap.hollow:
            continue
        for ordinal in scaling.free_ordinals(present.keys(), gap.below, gap.number, start=gap.start):
            if draft.full or not draft.may_create:
                return
            if _begin(groups.get(ordinal), ordinal, gap.target, desired, draft):
                draft.created[ordinal] = gap.revision


def _begin(
    known: Group | None, ordinal: int, target: dict[str, RoleTarget], desired: Desired, draft: Draft
) -> bool:
    """Begin a group of which nothing is there but, it may be, others' names; whether any pod of it is
    made."""
    before = draft.pods
    name = group_name(desired.name, ordinal)
    taken = known.taken if known is not None else {}
    pod_group = known.pod_group if known is not None else None
    fresh = Group(name, ordinal, "", State.CREATING, {}, {}, taken=taken, pod_group=pod_group)
    plan_roles(fresh, target, desired, draft)
    return draft.pods > before


def _kept_name(present: Mapping[int, Group], desired: Desired, draft: Draft) -> str:
    """The revision that ordinals below the partition keep, whether its templates are still known or not."""
    kept = desired.status.current_revision or current_revision(present.values(), desired, draft)
    if kept not in desired.stored and kept != desired.revision.name:
        other = kept_revision(desired)
        return other.name if other is not None else kept
    return kept


def _due(ordinal: int, kept: str, desired: Desired) -> dict[str, RoleTarget]:
    """What a new group is made from: below the partition what the groups there are to keep, else the present
    (MS-53)."""
    return targets(ordinal, kept if ordinal < desired.group_partition else "", desired)
