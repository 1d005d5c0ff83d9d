"""The pods and Services of one ServingGroup -> Group: what each role replica is and in which state.

Called by the store for each group whose objects changed, and by the dump. Everything is told by what exists
now, never by counting events (R07); the one thing that cannot be told that way, a pod that vanished without
notice, is in `Memory`. States never leave Deleting because of a pod's event (MS-444): an instance with a
dying pod stays so until it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.api.names import ordinal
from isthmus.api.pods import ServingPod, ServingService
from isthmus.modelserving.plan.model import (
    Desired,
    Facts,
    Group,
    Instance,
    Memory,
    RoleTarget,
    RoleTemplate,
    State,
)
from isthmus.modelserving.plan.recovery import failure


def observe(name: str, facts: Facts, desired: Desired, memory: Memory, now: float) -> Group:
    """The ServingGroup `name` as its objects tell it; `now` in seconds since the epoch decides only about
    grace periods."""
    members, taken, orphans = _sort_out(name, facts, desired)
    services: dict[str, ServingService] = {}
    for service in facts.services.values():
        _place_service(service, desired, services, taken, orphans)
    failing = {
        pod.metadata.uid: found
        for pods in members.values()
        for pod in pods
        if (found := failure(pod)) is not None
    }
    policy = desired.spec.recovery_policy
    grace = max(0, desired.spec.template.restart_grace_period_seconds)
    expired = {uid for uid, found in failing.items() if policy != "None" and now >= found.at + grace}
    instances: dict[str, dict[int, Instance]] = {}
    for (role, role_id), pods in members.items():
        instance = _instance(role, role_id, pods, desired, memory, expired)
        instances.setdefault(role, {})[instance.ordinal] = instance
    number = ordinal(name)
    revision = _group_revision(instances, desired)
    target = targets(number, revision, desired)
    broken = _group_broken(instances, target, desired, memory, expired)
    waits = [found.at + grace for uid, found in failing.items() if uid not in expired and policy != "None"]
    return Group(
        name=name,
        ordinal=number,
        revision=revision,
        state=_group_state(instances, target, broken),
        instances=instances,
        services=services,
        broken=broken,
        cost=sum(instance.cost for by_ordinal in instances.values() for instance in by_ordinal.values()),
        taken=taken,
        orphans=tuple(orphans),
        failures=tuple(sorted(failing.values(), key=lambda each: each.pod)),
        recheck_at=min(waits, default=None),
    )


def targets(group: int, revision: str, desired: Desired) -> dict[str, RoleTarget]:
    """What the roles of a group with this ordinal and revision should be, by name: how it is repaired and
    judged.

    Templates are the group's own until it is rolled as a whole (MS-404, MS-413); the present ones where roles
    roll by themselves and the group is not protected, and where its history is lost (MS-58). Counts come from
    the spec (MS-412).
    """
    own, label = desired.revision, desired.revision.name
    if revision and not (desired.by_role and group >= desired.group_partition):
        own, label = desired.revision_named(revision) or desired.revision, revision
    return {
        template.name: RoleTarget(template, label, _count(template, desired))
        for template in own.roles.values()
    }


def _count(template: RoleTemplate, desired: Desired) -> int:
    present = desired.revision.roles.get(template.name)
    return max(0, present.replicas if present is not None else template.replicas)


def is_current(instance: Instance, desired: Desired) -> bool | None:
    """Whether an instance has the present template of its role; None where that cannot be told (MS-72,
    MS-264)."""
    present = desired.revision.roles.get(instance.role)
    if present is None:
        return False
    if instance.hash == present.hash:
        return True
    own = desired.revision_named(instance.revision)
    template = own.roles.get(instance.role) if own is not None else None
    if template is not None:
        return template.meaning == present.meaning
    return False if instance.hash else None


def _sort_out(
    group: str, facts: Facts, desired: Desired
) -> tuple[dict[tuple[str, str], list[ServingPod]], dict[str, str], list[ServingPod | ServingService]]:
    """Owned pods by (role, role ID), unusable names with the reason, and what may be adopted."""
    members: dict[tuple[str, str], list[ServingPod]] = {}
    taken: dict[str, str] = {}
    orphans: list[ServingPod | ServingService] = []
    for name, pod in facts.pods.items():
        labels = pod.metadata.labels
        owner = pod.metadata.controller()
        if owner is None:
            fits = name.startswith(f"{group}-{labels.role_id}-") and not pod.metadata.terminating
            taken[name] = "exists and belongs to nobody"
            if fits:
                orphans.append(pod)
        elif owner.uid != desired.uid:
            taken[name] = f"belongs to {owner.kind} {owner.name} ({owner.uid})"
        else:
            members.setdefault((labels.role, labels.role_id), []).append(pod)
            if pod.metadata.terminating:
                taken[name] = "is still terminating"
    return members, taken, orphans


def _place_service(
    service: ServingService,
    desired: Desired,
    services: dict[str, ServingService],
    taken: dict[str, str],
    orphans: list[ServingPod | ServingService],
) -> None:
    name = service.metadata.name
    owner = service.metadata.controller()
    if owner is None:
        taken[name + "/service"] = "exists and belongs to nobody"
        if not service.metadata.terminating:
            orphans.append(service)
    elif owner.uid != desired.uid:
        taken[name + "/service"] = f"belongs to {owner.kind} {owner.name} ({owner.uid})"
    elif service.metadata.terminating:
        taken[name + "/service"] = "is still terminating"
    else:
        services[name] = service


def _instance(
    role: str, role_id: str, pods: list[ServingPod], desired: Desired, memory: Memory, expired: set[str]
) -> Instance:
    live = {ordinal(pod.metadata.name): pod for pod in pods if not pod.metadata.terminating}
    dying = tuple(pod for pod in pods if pod.metadata.terminating)
    first = min(pods, key=lambda pod: (pod.metadata.terminating, pod.metadata.creation_timestamp))
    labels = first.metadata.labels
    broken = _instance_broken(role_id, live.values(), dying, desired, memory, expired)
    template = _template(role, labels.revision, desired)
    if broken or (dying and not live):
        state = State.DELETING
    elif (
        template is not None
        and not dying
        and len(live) == template.size
        and all(index < template.size and _serves(pod) for index, pod in live.items())
    ):
        state = State.RUNNING
    else:
        state = State.CREATING
    return Instance(
        role=role,
        ordinal=ordinal(role_id),
        id=role_id,
        revision=labels.revision,
        hash=labels.role_template_hash,
        state=state,
        live=live,
        dying=dying,
        broken=broken,
        cost=sum(pod.deletion_cost for pod in pods),
    )


def _serves(pod: ServingPod) -> bool:
    return pod.status.phase == "Running" and pod.ready


def _template(role: str, revision: str, desired: Desired) -> RoleTemplate | None:
    """The role as the instance's own revision has it, else as it is now."""
    own = desired.revision_named(revision)
    if own is not None and role in own.roles:
        return own.roles[role]
    return desired.revision.roles.get(role)


def _instance_broken(
    role_id: str,
    live: Iterable[ServingPod],
    dying: tuple[ServingPod, ...],
    desired: Desired,
    memory: Memory,
    expired: set[str],
) -> str:
    """Why the live pods of an instance must go, or "". Under policy None only what was begun here is brought
    to an end."""
    uids = [pod.metadata.uid for pod in live]
    if not uids:
        return ""
    none = desired.spec.recovery_policy == "None"
    for pod in dying:
        if not none or pod.metadata.uid in memory.intended:
            return f"pod {pod.metadata.name} is being deleted"
    if none:
        return ""
    if not memory.lost.get(role_id, frozenset()).isdisjoint(uids):
        return "a pod of it was deleted"
    for pod in live:
        if pod.metadata.uid in expired:
            return f"pod {pod.metadata.name} failed"
    return ""


def _group_revision(instances: dict[str, dict[int, Instance]], desired: Desired) -> str:
    """The revision of a group: the present one if every instance has its template, else the oldest (MS-75,
    MS-408).

    Dying instances count, so that a protected one that is being recreated keeps its group where it is
    (MS-407)."""
    everything = [instance for by_ordinal in instances.values() for instance in by_ordinal.values()]
    if not everything:
        return ""
    names = {instance.revision for instance in everything}
    if names == {desired.revision.name}:
        return desired.revision.name
    if desired.revision.roles.keys() == instances.keys() and all(is_current(i, desired) for i in everything):
        return desired.revision.name
    older = names - {desired.revision.name} or names
    return min(older, key=lambda name: (desired.stored[name].number if name in desired.stored else 0, name))


def _group_broken(
    instances: dict[str, dict[int, Instance]],
    target: dict[str, RoleTarget],
    desired: Desired,
    memory: Memory,
    expired: set[str],
) -> str:
    """Why all that is left of a group must go, or "": its deletion was begun, or, under ServingGroupRecreate,
    a pod of an instance that is still needed vanished, is going without having been told to by us, or failed
    (MS-85)."""
    everything = [instance for by_ordinal in instances.values() for instance in by_ordinal.values()]
    live = {pod.metadata.uid for instance in everything for pod in instance.live.values()}
    if not live:
        return ""
    if any(pod.metadata.uid in memory.condemned for instance in everything for pod in instance.dying):
        return "is being deleted"
    if desired.spec.recovery_policy != "ServingGroupRecreate":
        return ""
    for role, by_ordinal in instances.items():
        for instance in by_ordinal.values():
            if any(pod.metadata.uid in expired for pod in instance.live.values()):
                return f"a pod of {instance.id} failed"
            going = [pod for pod in instance.dying if pod.metadata.uid not in memory.intended]
            if going and _lacks(role, instances, target):
                return f"pod {going[0].metadata.name} is being deleted"
    for role, survivors in memory.bereaved.items():
        if not survivors.isdisjoint(live) and _lacks(role, instances, target):
            return f"a pod of role {role} was deleted"
    return ""


def _lacks(role: str, instances: dict[str, dict[int, Instance]], target: dict[str, RoleTarget]) -> bool:
    """Whether fewer untouched instances of a role are there than needed; what was scaled away is not
    missed."""
    untouched = [
        instance
        for instance in instances.get(role, {}).values()
        if instance.live and not instance.dying and not instance.broken and _whole(instance, target)
    ]
    return role in target and len(untouched) < target[role].count


def _whole(instance: Instance, target: dict[str, RoleTarget]) -> bool:
    return len(instance.live) >= target[instance.role].template.size if instance.role in target else True


def _group_state(
    instances: dict[str, dict[int, Instance]], target: dict[str, RoleTarget], broken: str
) -> State:
    everything = [instance for by_ordinal in instances.values() for instance in by_ordinal.values()]
    if broken or (everything and not any(instance.live for instance in everything)):
        return State.DELETING
    counts_fit = all(len(instances.get(role, {})) == each.count for role, each in target.items())
    if counts_fit and all(
        i.state is State.RUNNING for role in target for i in instances.get(role, {}).values()
    ):
        return State.RUNNING
    if not counts_fit and any(instance.state is State.RUNNING for instance in everything):
        return State.SCALING
    return State.CREATING
