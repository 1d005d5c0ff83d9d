"""All ServingGroups of one ModelServing -> which to create, remove and replace, then the roles of those that
stay.

Called by reconcile.py. The order matters: what is on its way out is finished first, then the count is mended,
then outdated groups are replaced within the budget, and only groups that stay are repaired. One set of
observed states serves the whole pass (R03).
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus.api.names import group_name
from isthmus.modelserving.plan import numbers, rollout, scaling
from isthmus.modelserving.plan.draft import Draft
from isthmus.modelserving.plan.model import Desired, Group, RoleTarget, State
from isthmus.modelserving.plan.observe import targets
from isthmus.modelserving.plan.roles import kept_revision, plan_roles


def plan_groups(groups: Mapping[int, Group], desired: Desired, draft: Draft) -> None:
    """Add to `draft` what brings the groups, by ordinal, to what is desired."""
    present = {ordinal: group for ordinal, group in groups.items() if group.exists}
    for group in present.values():
        if group.state is State.DELETING:
            draft.delete_group(group, group.broken or "is being deleted")
    _remove_surplus(present, desired, draft)
    if not desired.by_role:
        _replace_outdated(present, desired, draft)
    for group in sorted(present.values(), key=lambda each: each.ordinal):
        if group.name not in draft.deleting:
            plan_roles(group, targets(group.ordinal, group.revision, desired), desired, draft)
    _create_missing(groups, present, desired, draft)


def _remove_surplus(present: Mapping[int, Group], desired: Desired, draft: Draft) -> None:
    """Remove groups down to the count; those on their way out are counted and come first (MS-56)."""
    candidates = [
        scaling.Candidate(group.ordinal, _running(group, draft), group.cost) for group in present.values()
    ]
    surplus = len(present) - desired.spec.replicas
    for ordinal in scaling.victims(candidates, surplus, desired.group_partition):
        if present[ordinal].name not in draft.deleting:
            draft.delete_group(present[ordinal], f"scaled to {desired.spec.replicas} groups")


def _replace_outdated(present: Mapping[int, Group], desired: Desired, draft: Draft) -> None:
    """Remove outdated groups as far as the budget allows; their ordinals are filled again once they are gone
    (MS-70)."""
    members = [
        rollout.Member(
            ordinal=group.ordinal,
            available=_running(group, draft),
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
    going = rollout.replace(members, desired.spec.replicas, allowed)
    for ordinal in going:
        draft.delete_group(present[ordinal], f"is replaced by revision {desired.revision.name}")
    waiting = [m.ordinal for m in members if m.outdated and not m.protected and m.ordinal not in going]
    if waiting:
        draft.because(f"{len(waiting)} outdated groups wait: at most {allowed} may be unavailable")


def _create_missing(
    groups: Mapping[int, Group], present: Mapping[int, Group], desired: Desired, draft: Draft
) -> None:
    """Make the groups that are missing, at the lowest free ordinals, each at the revision that is due there
    (MS-53)."""
    for ordinal in scaling.missing_ordinals(present.keys(), desired.spec.replicas):
        if draft.full or not draft.may_create:
            return
        name = group_name(desired.name, ordinal)
        target = _due(ordinal, desired)
        draft.created[ordinal] = next((each.revision for each in target.values()), desired.revision.name)
        if not any(each.count for each in target.values()):
            draft.hollow.add(ordinal)
            continue
        taken = groups[ordinal].taken if ordinal in groups else {}
        orphans = groups[ordinal].orphans if ordinal in groups else ()
        empty = Group(name, ordinal, "", State.CREATING, {}, {}, taken=taken, orphans=orphans)
        plan_roles(empty, target, desired, draft)


def _due(ordinal: int, desired: Desired) -> dict[str, RoleTarget]:
    """What a new group is made from: below the partition what the groups there are to keep, else the present
    (MS-53)."""
    kept = desired.status.current_revision
    if ordinal >= desired.group_partition or not kept:
        return targets(ordinal, "", desired)
    if kept not in desired.stored and kept != desired.revision.name:
        other = kept_revision(desired)
        kept = other.name if other is not None else kept
    return targets(ordinal, kept, desired)


def _running(group: Group, draft: Draft) -> bool:
    return group.state is State.RUNNING and group.name not in draft.deleting
