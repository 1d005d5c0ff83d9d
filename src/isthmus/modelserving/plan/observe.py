"""The pods and Services of one ServingGroup -> Group: what each role replica is and in which state.

Called by the store for each group whose objects changed, and by the dump. Everything is told by what exists
now, never by counting events (R07); the one thing that cannot be told that way, a pod that vanished without
notice, is in `Memory`. States never leave Deleting because of a pod's event (MS-444): an instance with a
dying pod stays so until it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from isthmus.api.meta import Object
from isthmus.api.modelserving import MODEL_SERVINGS, Recovery
from isthmus.api.names import ordinal, pod_name, role_id
from isthmus.api.podgroups import PodGroup
from isthmus.api.pods import ServingPod, ServingService
from isthmus.modelserving.plan import backoff
from isthmus.modelserving.plan.desired import same_template
from isthmus.modelserving.plan.model import (
    Desired,
    Facts,
    Failure,
    Group,
    Instance,
    Memory,
    Obstacle,
    RoleTarget,
    RoleTemplate,
    State,
)
from isthmus.modelserving.plan.recovery import failure


def observe(
    name: str, facts: Facts, desired: Desired, memory: Memory, now: float, past: Recovery | None = None
) -> Group:
    """The ServingGroup `name` as its objects tell it. `now` in seconds since the epoch decides only about
    grace periods and about waits; `past` is what the status says of its last recovery."""
    members, services, taken, orphans = _sort_out(name, facts, desired)
    pod_group = _pod_group(name, facts, desired, taken, orphans)
    failing = _failures(members.values(), memory, now)
    leave_alone = desired.spec.recovery_policy == "None"
    grace = max(0, desired.spec.template.restart_grace_period_seconds)
    pods_by_uid = {pod.metadata.uid: pod for pods in members.values() for pod in pods}
    ends = (
        {}
        if leave_alone
        else {each.uid: backoff.due(each, pods_by_uid[each.uid], grace, past) for each in failing}
    )
    expired = {uid for uid, end in ends.items() if now >= end}
    given_up = ((each, pods_by_uid[each.uid]) for each in failing if each.uid in expired)
    instances: dict[str, dict[int, Instance]] = {}
    for (role, id_), pods in members.items():
        instance = _instance(role, id_, pods, desired, memory, expired)
        instances.setdefault(role, {})[instance.ordinal] = instance
    number = ordinal(name)
    revision = _group_revision(instances, desired)
    target = targets(number, revision, desired)
    broken = _group_broken(instances, target, desired, memory, expired)
    return Group(
        name=name,
        ordinal=number,
        revision=revision,
        state=_group_state(instances, target, broken),
        instances=instances,
        services=services,
        serving=not broken and _serving(instances, target),
        broken=broken,
        cost=sum(instance.cost for by_ordinal in instances.values() for instance in by_ordinal.values()),
        taken=taken,
        orphans=tuple(sorted(orphans, key=lambda each: each.metadata.name)),
        failures=failing,
        recheck_at=min((end for uid, end in ends.items() if uid not in expired), default=None),
        recovery=backoff.recovery(past, name, given_up, now),
        pod_group=pod_group,
    )


def targets(group: int, revision: str, desired: Desired) -> dict[str, RoleTarget]:
    """What the roles of a group with this ordinal and revision should be, by name: how it is repaired and
    judged.

    Templates are the group's own until it is rolled as a whole (MS-404, MS-413); the present ones where roles
    roll by themselves and the group is not protected, and where its history is lost (MS-58). Counts come from
    the spec (MS-412).
    """
    own = desired.revision_named(revision) if revision and not desired.by_role else None
    own = own or desired.revision
    return {
        template.name: RoleTarget(template, own.name, _count(template, desired))
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
    if instance.template is not None:
        return same_template(instance.template, present)
    return False if instance.hash else None


def _sort_out(
    group: str, facts: Facts, desired: Desired
) -> tuple[
    dict[tuple[str, str], list[ServingPod]],
    dict[str, ServingService],
    dict[str, Obstacle],
    list[ServingPod | ServingService | PodGroup],
]:
    """Owned pods by (role, role ID), owned Services by name, names that cannot be used, and what may be
    adopted."""
    members: dict[tuple[str, str], list[ServingPod]] = {}
    services: dict[str, ServingService] = {}
    taken: dict[str, Obstacle] = {}
    orphans: list[ServingPod | ServingService | PodGroup] = []
    for name, pod in facts.pods.items():
        labels = pod.metadata.labels
        if _owned(pod, desired) and _fits(group, pod):
            members.setdefault((labels.role, labels.role_id), []).append(pod)
            if pod.metadata.terminating:
                taken[name] = _TERMINATING
        else:
            taken[name] = _obstacle(group, pod, desired)
            if taken[name] is _FREE:
                orphans.append(pod)
    for name, service in facts.services.items():
        if _owned(service, desired) and _fits(group, service) and not service.metadata.terminating:
            services[name] = service
        else:
            taken[name + "/service"] = _obstacle(group, service, desired)
            if taken[name + "/service"] is _FREE:
                orphans.append(service)
    return members, services, taken, orphans


def _pod_group(
    group: str,
    facts: Facts,
    desired: Desired,
    taken: dict[str, Obstacle],
    orphans: list[ServingPod | ServingService | PodGroup],
) -> PodGroup | None:
    """The PodGroup of a group, if there is one that is ours and stays; else why its name cannot be used."""
    found = facts.pod_groups.get(group)
    if found is None or (_owned(found, desired) and not found.metadata.terminating):
        return found
    obstacle = taken[group + "/podgroup"] = _obstacle(group, found, desired)
    if obstacle is _FREE:
        orphans.append(found)
    return None


_TERMINATING = Obstacle("is still terminating")
_FREE = Obstacle("has no owner and is being adopted")


def _owned(obj: Object, desired: Desired) -> bool:
    owner = obj.metadata.controller()
    return owner is not None and owner.uid == desired.uid


def _fits(group: str, obj: ServingPod | ServingService | PodGroup) -> bool:
    """Whether an object has the name that its labels stand for; else somebody changed its labels."""
    if isinstance(obj, PodGroup):
        return obj.metadata.name == group
    labels, number = obj.metadata.labels, ordinal(obj.metadata.labels.role_id)
    if number < 0 or not labels.role or labels.role_id != role_id(labels.role, number):
        return False
    index = ordinal(obj.metadata.name) if isinstance(obj, ServingPod) else 0
    return obj.metadata.name == pod_name(group, labels.role_id, index)


def _obstacle(group: str, obj: ServingPod | ServingService | PodGroup, desired: Desired) -> Obstacle:
    """Why the name of an object that is none of ours, or not any more, cannot be used."""
    owner = obj.metadata.controller()
    if obj.metadata.terminating:
        return _TERMINATING
    if owner is None and _fits(group, obj):
        return _FREE
    if owner is None:
        return Obstacle("exists and belongs to nobody", lasting=True)
    if owner.uid == desired.uid:
        return Obstacle("has labels that are not its own", lasting=True)
    if (owner.kind, owner.name) == (MODEL_SERVINGS.kind, desired.name):
        return Obstacle(f"was made for a former ModelServing {owner.name}, and is being collected")
    return Obstacle(f"belongs to {owner.kind} {owner.name} ({owner.uid})", lasting=True)


def _failures(members: Iterable[list[ServingPod]], memory: Memory, now: float) -> tuple[Failure, ...]:
    """The pods that have failed, by name, each with the time from which its grace runs: when it was first
    seen so, where that is known, since a container that ends again and again would move it on for ever; now,
    where its status does not say when."""
    found = [failure(pod, memory.calm) for pods in members for pod in pods]
    timed = [
        replace(each, at=min(memory.failing.get(each.uid, now), now if each.at is None else each.at))
        for each in found
        if each is not None
    ]
    return tuple(sorted(timed, key=lambda each: each.pod))


def _instance(
    role: str, id_: str, pods: list[ServingPod], desired: Desired, memory: Memory, expired: set[str]
) -> Instance:
    live = {ordinal(pod.metadata.name): pod for pod in pods if not pod.metadata.terminating}
    dying = tuple(
        sorted((pod for pod in pods if pod.metadata.terminating), key=lambda pod: pod.metadata.name)
    )
    first = min(pods, key=_seniority)
    labels = first.metadata.labels
    broken = _instance_broken(id_, live.values(), dying, desired, memory, expired)
    template = _template(role, labels.revision, labels.role_template_hash, desired)
    size = template.size if template is not None else len(live)
    if broken or (dying and not live):
        state = State.DELETING
    elif len(live) == size == max(live, default=-1) + 1 and all(_serves(pod) for pod in live.values()):
        state = State.RUNNING
    else:
        state = State.CREATING
    return Instance(
        role=role,
        ordinal=ordinal(id_),
        id=id_,
        revision=labels.revision,
        hash=labels.role_template_hash,
        template=template,
        state=state,
        live=live,
        dying=dying,
        broken=broken,
        cost=sum(pod.deletion_cost for pod in pods),
    )


def _serves(pod: ServingPod) -> bool:
    return pod.status.phase == "Running" and pod.ready


def _seniority(pod: ServingPod) -> tuple[bool, str, int]:
    """The order in which the pods of an instance speak for it: live ones, then the oldest, then the entry."""
    return pod.metadata.terminating, pod.metadata.creation_timestamp, ordinal(pod.metadata.name)


def _template(role: str, revision: str, hash_: str, desired: Desired) -> RoleTemplate | None:
    """What pods with these labels were made from: the present template where the hash says so, else what
    their own revision holds."""
    present = desired.revision.roles.get(role)
    own = desired.revision_named(revision)
    template = own.roles.get(role) if own is not None else None
    if present is not None and hash_ == present.hash and (template is None or template.hash != hash_):
        return present
    return template


def _instance_broken(
    id_: str,
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
    if not memory.lost.get(id_, frozenset()).isdisjoint(uids):
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
    present = desired.revision
    if not everything:
        return ""
    if all(instance.revision == present.name for instance in everything):
        return present.name
    complete = all(role in instances for role, template in present.roles.items() if template.replicas > 0)
    if complete and all(is_current(instance, desired) for instance in everything):
        return present.name
    left = {_left(instance, desired) for instance in everything if instance.revision != present.name}
    return min(left, key=lambda name: (desired.stored[name].number if name in desired.stored else 0, name))


def _left(instance: Instance, desired: Desired) -> str:
    """The revision that an instance is leaving: the newest one before the present that has its template. Its
    own label may be older, where updates since then did not touch its role."""
    own = desired.stored.get(instance.revision)
    if own is None or instance.template is None:
        return instance.revision
    alike = [
        each
        for each in desired.stored.values()
        if each.name != desired.revision.name
        and (template := each.roles.get(instance.role)) is not None
        and same_template(template, instance.template)
    ]
    return max(alike, key=lambda each: (each.number, each.name), default=own).name


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
    for instance in everything:
        failed = any(pod.metadata.uid in expired for pod in instance.live.values())
        going = any(pod.metadata.uid not in memory.intended for pod in instance.dying)
        if (failed or going) and _lacks(instance.role, instances, target):
            return f"a pod of {instance.id} {'failed' if failed else 'is being deleted'}"
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


def _serving(instances: dict[str, dict[int, Instance]], target: dict[str, RoleTarget]) -> bool:
    """Whether each role that has any instances wanted has at least one that runs."""
    return all(
        any(instance.state is State.RUNNING for instance in instances.get(role, {}).values())
        for role, each in target.items()
        if each.count
    )


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
