"""What must hold for every pass of the controller, whatever happened before: checks for `World.checks`.

Each check gets the world, the view that the pass was planned on, and the plan. They judge from the objects
themselves (which pods are there, ready, how many their instance should have) wherever they can, so that they
do not repeat the planner's own reasoning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from isthmus.api.names import is_dns_label, ordinal, pod_name, role_id
from isthmus.api.percent import resolve
from isthmus.api.pods import ServingPod
from isthmus.modelserving.plan.gang import pod_group_spec
from isthmus.modelserving.plan.model import (
    Act,
    Blocked,
    CreatePod,
    CreatePodGroup,
    DeletePod,
    DeletePodGroup,
    DeleteService,
    Group,
    Plan,
    RepairPodGroup,
    State,
)
from isthmus.modelserving.plan.reconcile import plan
from isthmus.modelserving.view import View
from tests.property.modelserving.world import World


def wanted_max_unavailable(view: View) -> int:
    """How many groups a rollout may take down."""
    strategy = view.desired.spec.rollout_strategy
    rolling = strategy.rolling_update_configuration if strategy is not None else None
    return max(1, resolve(rolling.max_unavailable, view.desired.spec.replicas)) if rolling is not None else 1


def whole_instances(world: World, pods: Iterable[ServingPod]) -> dict[tuple[str, str], int]:
    """(group, role) -> instances of which every pod is there, ready and not terminating."""
    by_instance: dict[tuple[str, str, str], list[ServingPod]] = defaultdict(list)
    for pod in pods:
        labels = pod.metadata.labels
        by_instance[labels.group_name, labels.role, labels.role_id].append(pod)
    found: dict[tuple[str, str], int] = defaultdict(int)
    for (group, role, _), members in by_instance.items():
        complete = len(members) == max(world.size(pod) for pod in members)
        if complete and all(pod.ready and not pod.metadata.terminating for pod in members):
            found[group, role] += 1
    return found


def faultless_groups(world: World, pods: Iterable[ServingPod]) -> set[str]:
    """Groups that have pods, all of them ready and not terminating, in whole instances."""
    pods = list(pods)
    whole = whole_instances(world, pods)
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in pods:
        labels = pod.metadata.labels
        seen[labels.group_name, labels.role].add(labels.role_id)
    groups = {group for group, _ in seen}
    return {
        group
        for group in groups
        if all(whole.get(key, 0) == len(ids) for key, ids in seen.items() if key[0] == group)
    }


def cached_pods(view: View) -> list[ServingPod]:
    """The pods that the pass was planned on."""
    return [
        pod
        for group in view.groups.values()
        for instance in group.each()
        for pod in (*instance.live.values(), *instance.dying)
    ]


def actions_are_sound(world: World, view: View, made: Plan) -> None:
    """Names are valid, nothing is created or deleted twice, pods come from stored revisions only."""
    if isinstance(made.decision, Blocked):
        assert made.decision.reasons
        assert all(made.decision.reasons)
    if not isinstance(made.decision, Act):
        return
    created = [
        pod_name(each.group, role_id(each.template.name, each.instance), each.index)
        for each in made.decision.actions
        if isinstance(each, CreatePod)
    ]
    deleted = [each.pod.metadata.uid for each in made.decision.actions if isinstance(each, DeletePod)]
    services = [
        each.service.metadata.uid for each in made.decision.actions if isinstance(each, DeleteService)
    ]
    assert all(is_dns_label(name) for name in created)
    for names in (created, deleted, services):
        assert len(set(names)) == len(names)
    held = {pod.metadata.name for pod in cached_pods(view)}
    assert held.isdisjoint(created)
    assert made.decision.reasons


def status_is_honest(world: World, view: View, made: Plan) -> None:
    """R09, MS-101, MS-433: counts never exceed what is there, and exactly one condition is True."""
    status, desired = made.status, view.desired
    assert status.observed_generation == view.serving.metadata.generation
    going = {
        each.pod.metadata.labels.group_name
        for each in (made.decision.actions if isinstance(made.decision, Act) else ())
        if isinstance(each, DeletePod)
    }
    if not may_be_hollow(view):
        assert status.available_replicas <= len(faultless_groups(world, cached_pods(view)) - going)
    assert status.updated_replicas <= status.replicas
    assert status.available_replicas <= status.replicas
    true = [each.type for each in status.conditions if each.status == "True"]
    assert len(true) == 1 or (not true and made.problems), status.conditions
    available = status.available_replicas == status.replicas == desired.spec.replicas
    assert (true == ["Available"]) == available or made.problems


def may_be_hollow(view: View) -> bool:
    """Whether there may be groups that need no pods."""
    revisions = [view.desired.revision, *view.desired.stored.values()]
    return any(not role.replicas for revision in revisions for role in revision.roles.values())


def failures_count_once(world: World, view: View, made: Plan) -> None:
    """No pod's failure is counted twice, whatever was written and seen of the first time (decision 0013)."""
    for each in made.status.recoveries:
        assert world.counted.setdefault(each.pod_uid, each.count) == each.count, each


def status_is_a_fixed_point(world: World, view: View, made: Plan) -> None:
    """Planning again, later, on the same world with that status written, gives that status again."""
    desired = replace(view.desired, status=made.status)
    again = plan(desired, view.groups, view.revisions, world.now + 5)
    assert again.status == made.status


def budget_is_kept(world: World, view: View, made: Plan) -> None:
    """INV-1: what a rollout takes down never brings available groups below wanted - maxUnavailable."""
    if view.desired.by_role or not isinstance(made.decision, Act):
        return
    gone, replaced = set(), set()
    for each in made.decision.actions:
        if isinstance(each, DeletePod) and each.with_group:
            gone.add(each.pod.metadata.labels.group_name)
            if "replaced" in each.why:
                replaced.add(each.pod.metadata.labels.group_name)
    floor = view.desired.spec.replicas - wanted_max_unavailable(view)
    if may_be_hollow(view):
        floor -= max(0, view.desired.spec.replicas - sum(group.exists for group in view.groups.values()))
    running = {group.name for group in view.groups.values() if group.state is State.RUNNING}
    if running & replaced:
        assert len(running - gone) >= floor
    serving = {group.name for group in view.groups.values() if serves_somebody(view, group)}
    if serving & replaced:
        assert len(serving - gone) >= floor


def serves_somebody(view: View, group: Group) -> bool:
    """Whether each role that the group should have, has at least one running instance."""
    desired = view.desired
    own = desired.revision_named(group.revision) or desired.revision
    counts = {role.name: role.replicas for role in desired.spec.template.roles}
    return not group.broken and all(
        any(each.state is State.RUNNING for each in group.instances.get(role, {}).values())
        for role, template in own.roles.items()
        if counts.get(role, template.replicas)
    )


def pod_groups_are_right(world: World, view: View, made: Plan) -> None:
    """MS-96: what the pass leaves says what the present spec asks for, and no pod that belongs to a PodGroup
    is made without it."""
    if not view.desired.offer.served or not isinstance(made.decision, Act):
        return
    wanted, there = pod_group_spec(view.desired), {}
    for group in view.groups.values():
        if group.pod_group is not None:
            there[group.name] = group.pod_group.spec
    for action in made.decision.actions:
        match action:
            case CreatePodGroup(name, spec):
                assert name not in there
                there[name] = spec
            case RepairPodGroup(pod_group, spec):
                assert spec != pod_group.spec
                there[pod_group.metadata.name] = spec
            case DeletePodGroup(pod_group):
                del there[pod_group.metadata.name]
    assert all(spec == wanted for spec in there.values())
    for action in made.decision.actions:
        if isinstance(action, CreatePod):
            assert action.ganged == (action.group in there)


ALWAYS = (
    actions_are_sound,
    status_is_honest,
    status_is_a_fixed_point,
    failures_count_once,
    budget_is_kept,
    pod_groups_are_right,
)


def is_complete(world: World) -> None:
    """After everything has happened: exactly the wanted objects, ready, and a plan that does nothing."""
    spec = world.view().desired.spec
    groups: dict[str, dict[str, dict[str, set[int]]]] = defaultdict(lambda: defaultdict(dict))
    for pod in world.pods.values():
        labels = pod.metadata.labels
        assert not pod.metadata.terminating
        assert pod.metadata.name == pod_name(labels.group_name, labels.role_id, ordinal(pod.metadata.name))
        indexes = groups[labels.group_name][labels.role].setdefault(labels.role_id, set())
        indexes.add(ordinal(pod.metadata.name))
        assert len(indexes) <= world.size(pod)
    assert len(groups) <= spec.replicas
    if not may_be_hollow(world.view()):
        assert len(groups) == spec.replicas
    counts = {role.name: role.replicas for role in spec.template.roles}
    for roles in groups.values():
        for role, instances in roles.items():
            if role in counts:
                assert len(instances) == counts[role], (role, instances)
            for indexes in instances.values():
                assert indexes == set(range(max(indexes) + 1))
    alien = set(alien_pods(world))
    for name in world.pods.keys() - alien:
        pod = world.pods[name]
        members = groups[pod.metadata.labels.group_name][pod.metadata.labels.role]
        assert len(members[pod.metadata.labels.role_id]) == world.size(pod)
    services = {name for name, pod in world.pods.items() if pod.entry and world.size(pod) > 1}
    assert world.services.keys() - alien == services - alien
    with_pods = {name for name, roles in groups.items() if any(roles.values())}
    assert world.pod_groups.keys() == with_pods
    assert all(each.spec == pod_group_spec(world.view().desired) for each in world.pod_groups.values())


def alien_pods(world: World) -> Iterable[str]:
    """Pods of a role that their group should not have and that was left there: roles were rolling by
    themselves when groups began to roll as a whole, and the group is protected from that (MS-63)."""
    view = world.view()
    for group in view.groups.values():
        own = view.desired.revision_named(group.revision) or view.desired.revision
        for instance in group.each():
            if instance.role not in own.roles:
                yield from (pod.metadata.name for pod in instance.live.values())
