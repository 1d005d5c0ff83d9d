"""One ServingGroup's roles -> what to create, repair, roll and remove in it.

Called by groups.py for each group that stays. Per role: what is broken goes, then the count is mended, then
outdated instances roll where roles roll by themselves, then pods and Services that are missing come back. An
instance is made as a whole, at an ordinal whose names are all free (MS-67); each keeps to its own revision
until it is replaced (MS-404).
"""

from __future__ import annotations

from isthmus.api.names import ordinal as index_of
from isthmus.api.names import pod_name, role_id, service_name
from isthmus.modelserving.plan import numbers, rollout, scaling
from isthmus.modelserving.plan.draft import Draft
from isthmus.modelserving.plan.gang import plan_pod_group
from isthmus.modelserving.plan.model import (
    Desired,
    Group,
    Instance,
    Obstacle,
    RepairService,
    Revision,
    RoleTarget,
    State,
)
from isthmus.modelserving.plan.objects import service_selector
from isthmus.modelserving.plan.observe import is_current


def plan_roles(group: Group, target: dict[str, RoleTarget], desired: Desired, draft: Draft) -> None:
    """Add to `draft` what brings the roles of `group` to `target`. `group` may hold nothing yet."""
    claimed: set[str] = set()
    plan_pod_group(group, target, desired, draft)
    for role, each in target.items():
        kept, surplus = _settle_count(group, role, each, desired, draft)
        if desired.by_role:
            kept = _roll(group, each, kept, desired, draft)
        going = group.instances.get(role, {}).keys() - {instance.ordinal for instance in kept} - surplus
        for ordinal in going:
            if _for_new(each, ordinal, desired).has_service_of(ordinal):  # it is made again
                claimed.add(service_name(group.name, role_id(role, ordinal)))
        for instance in kept:
            _repair(group, each, instance, desired, draft, claimed)
        for ordinal in scaling.missing_ordinals(group.instances.get(role, {}).keys(), each.count):
            if draft.full:
                draft.disturbed.add(group.name)
                break
            _create(group, _for_new(each, ordinal, desired), ordinal, draft, claimed)
    for role, by_ordinal in group.instances.items():
        if role not in target:
            _leave_or_remove(group, by_ordinal, desired, draft, claimed)
    for name, service in group.services.items():
        if name not in claimed:
            draft.delete_service(service, "no role replica needs it")


def _settle_count(
    group: Group, role: str, target: RoleTarget, desired: Desired, draft: Draft
) -> tuple[list[Instance], set[int]]:
    """Remove what is broken and what is too much; return the instances that stay, and the ordinals of those
    too many (MS-60 to MS-62)."""
    staying: dict[int, Instance] = {}
    for instance in group.instances.get(role, {}).values():
        if instance.state is State.DELETING:
            draft.delete_instance(group, instance, instance.broken or "is being deleted")
        else:
            staying[instance.ordinal] = instance
    protected = role_partition(target.template.name, target.count, desired)
    candidates = [scaling.Candidate(i.ordinal, i.state is State.RUNNING, i.cost) for i in staying.values()]
    surplus = scaling.victims(candidates, len(staying) - target.count, protected)
    for ordinal in surplus:
        draft.delete_instance(group, staying.pop(ordinal), f"{role} is scaled to {target.count}")
    return list(staying.values()), set(surplus)


def _roll(
    group: Group, target: RoleTarget, kept: list[Instance], desired: Desired, draft: Draft
) -> list[Instance]:
    """Remove outdated instances as far as the role's budget allows; return those that stay (MS-71 to
    MS-73)."""
    protected = role_partition(target.template.name, target.count, desired)
    members = [
        rollout.Member(
            ordinal=instance.ordinal,
            available=instance.state is State.RUNNING,
            serving=instance.state is State.RUNNING,
            outdated=is_current(instance, desired) is False,
            protected=instance.ordinal < protected,
        )
        for instance in kept
    ]
    allowed = numbers.max_unavailable(target.template.max_unavailable, target.count, unset=target.count)
    going = set(rollout.replace(members, target.count, allowed))
    for instance in kept:
        if instance.ordinal in going:
            draft.delete_instance(group, instance, f"{instance.role} has a new template")
    if any(member.outdated and not member.protected and member.ordinal not in going for member in members):
        draft.because(f"{group.name}: replicas of {target.template.name} wait for their turn")
    return [instance for instance in kept if instance.ordinal not in going]


def _leave_or_remove(
    group: Group, by_ordinal: dict[int, Instance], desired: Desired, draft: Draft, claimed: set[str]
) -> None:
    """Instances of a role that the group should not have: they go at once where roles roll by themselves
    (MS-74), and otherwise stay until the whole group is replaced (MS-63)."""
    for instance in by_ordinal.values():
        if instance.state is State.DELETING:
            draft.delete_instance(group, instance, instance.broken or "is being deleted")
        elif desired.by_role:
            draft.delete_instance(group, instance, f"role {instance.role} was removed")
        else:
            draft.states[group.name, instance.id] = instance.state
            claimed.add(service_name(group.name, instance.id))


def _repair(
    group: Group, target: RoleTarget, instance: Instance, desired: Desired, draft: Draft, claimed: set[str]
) -> None:
    """Bring back the pods that an instance misses, each from the instance's own template (MS-59). Where that
    is lost, nobody knows how many there were: only gaps are filled, from the target's."""
    known = instance.template
    template, revision = (
        (known, instance.revision) if known is not None else (target.template, target.revision)
    )
    size = known.size if known is not None else max(instance.live, default=0) + 1
    draft.states[group.name, instance.id] = instance.state
    needed = template.has_service and (known is not None or size > 1)
    if needed or (known is None and service_name(group.name, instance.id) in group.services):
        _claim_service(group, instance.role, instance.ordinal, draft, claimed)
    for index in range(size):
        if index in instance.live:
            continue
        draft.disturbed.add(group.name)
        if draft.full:
            break
        name = pod_name(group.name, instance.id, index)
        if name in group.taken:
            _blocked(name, group.taken[name], draft)
        elif draft.may_create_in(group.name):
            draft.create_pod(group.name, template, revision, instance.ordinal, index)
            draft.because(f"create {name}: it is missing")
    for index, pod in instance.live.items():
        if not 0 <= index < size:
            draft.delete_pod(pod, f"{instance.role} has {size} pods")


def _create(group: Group, target: RoleTarget, ordinal: int, draft: Draft, claimed: set[str]) -> None:
    """Make an instance that does not exist, if all its names are free; one that is too large for a pass is
    finished in the next ones."""
    instance_id = role_id(target.template.name, ordinal)
    draft.disturbed.add(group.name)
    blocked = [
        name
        for name in group.taken
        if name == pod_name(group.name, instance_id, index_of(name)) and index_of(name) < target.template.size
    ]
    for name in blocked:
        _blocked(name, group.taken[name], draft)
    if blocked or not draft.may_create_in(group.name):
        return
    draft.states[group.name, instance_id] = State.CREATING
    draft.because(f"create {group.name}/{instance_id}")
    if target.template.has_service:
        _claim_service(group, target.template.name, ordinal, draft, claimed)
    for index in range(target.template.size):
        if draft.full:
            break
        draft.create_pod(group.name, target.template, target.revision, ordinal, index)


def _claim_service(group: Group, role: str, ordinal: int, draft: Draft, claimed: set[str]) -> None:
    """See that an instance's Service exists with the right selector (MS-32, R13)."""
    name = service_name(group.name, role_id(role, ordinal))
    claimed.add(name)
    service = group.services.get(name)
    if service is not None:
        if service.spec.selector != service_selector(group.name, role, role_id(role, ordinal)):
            draft.actions.append(RepairService(group.name, role, ordinal, service))
            draft.because(f"repair the selector of Service {name}")
    elif name + "/service" in group.taken:
        _blocked(f"Service {name}", group.taken[name + "/service"], draft)
    elif draft.may_create_in(group.name):
        draft.create_service(group.name, role, ordinal)


def _for_new(target: RoleTarget, ordinal: int, desired: Desired) -> RoleTarget:
    """What a new instance is made from: below the role's partition, the template that it is to keep
    (MS-76)."""
    if ordinal >= role_partition(target.template.name, target.count, desired):
        return target
    kept = kept_revision(desired)
    template = kept.roles.get(target.template.name) if kept is not None else None
    if kept is None or template is None:
        return target
    return RoleTarget(template, kept.name, target.count)


def kept_revision(desired: Desired) -> Revision | None:
    """The revision that protected ordinals keep: the current one, or, where that is not known any more, the
    newest stored one that is not the present one; None where there is no other (MS-76, MS-446)."""
    current = desired.status.current_revision
    if current == desired.revision.name:
        return None
    if current in desired.stored:
        return desired.stored[current]
    others = [each for each in desired.stored.values() if each.name != desired.revision.name]
    return max(others, key=lambda each: (each.number, each.name), default=None)


def role_partition(role: str, count: int, desired: Desired) -> int:
    """Ordinals of the role below this are protected; only where roles roll by themselves (MS-62)."""
    if not desired.by_role:
        return 0
    present = desired.revision.roles.get(role)
    return numbers.partition(present.partition, count) if present is not None else 0


def _blocked(name: str, obstacle: Obstacle, draft: Draft) -> None:
    draft.because(f"{name} {obstacle.why}")
    if obstacle.lasting:
        draft.problem("NameTaken", f"{name} {obstacle.why}")
