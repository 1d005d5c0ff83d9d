"""Why a ModelServing is not ready, or what its rollout waits for, in plain words for a person.

`isthmus explain` calls `explain` with what app/explain.py read: the groups as the operator would see them,
and the plan that it would make. Each line stands for itself; those that begin with two spaces tell more about
the one above.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from isthmus.api.names import pod_name
from isthmus.api.pods import ServingPod
from isthmus.api.times import format_time
from isthmus.modelserving.plan import causes
from isthmus.modelserving.plan.gang import VOLCANO, is_ganged
from isthmus.modelserving.plan.model import Act, Blocked, Desired, Group, Instance, Plan, State

MAX_GROUPS: Final = 10
"""Groups that are told of one by one; the rest is counted."""
MAX_LINES: Final = 12
"""Lines about one group."""


def explain(desired: Desired, groups: Mapping[int, Group], planned: Plan) -> list[str]:
    """All there is to say, the most telling first. `planned` is what would be done now."""
    lines = [_headline(desired, planned), *_seen(desired)]
    lines += [f"Needs a person: {reason}: {text}" for reason, text in planned.problems]
    lines += _rollout(desired, groups)
    lines += _groups(desired, groups, planned)
    lines += _next(planned)
    return lines


def _headline(desired: Desired, planned: Plan) -> str:
    wanted, available = desired.spec.replicas, planned.status.available_replicas
    name = f"ModelServing {desired.namespace}/{desired.name}"
    noun = "group is" if wanted == 1 else "groups are"
    if planned.status.replicas == available == wanted:
        return f"{name} is ready: {available} of {wanted} {noun} available."
    return f"{name} is not ready: {available} of {wanted} {noun} available."


def _seen(desired: Desired) -> Iterator[str]:
    """Whether an operator keeps up, as far as the status tells."""
    status = desired.status
    if not status.observed_generation and not status.conditions:
        yield "No operator has looked at it yet: none is running, or none for this namespace."
    elif status.observed_generation < desired.generation:
        yield (
            f"The spec is at generation {desired.generation}, and the operator has acted on "
            f"{status.observed_generation} last: it is behind, or not running."
        )


def _rollout(desired: Desired, groups: Mapping[int, Group]) -> Iterator[str]:
    """How far a rollout is, and what holds it."""
    new = desired.revision.name
    there = [group for group in groups.values() if group.exists]
    old = sorted(group.ordinal for group in there if group.revision not in ("", new))
    if not old:
        return
    protected = [ordinal for ordinal in old if ordinal < desired.group_partition]
    text = f"Rollout to revision {new}: {len(there) - len(old)} of {len(there)} groups have it."
    if protected == old:
        yield f"{text} The others are kept back by the partition ({desired.group_partition})."
        return
    yield text
    if protected:
        yield f"  groups below the partition ({desired.group_partition}) are kept back"
    if desired.by_role:
        yield "  roles roll by themselves, within the maxUnavailable of each"
        return
    starting = [group for group in there if group.revision == new and group.state is not State.RUNNING]
    for group in sorted(starting, key=lambda each: each.ordinal)[:MAX_GROUPS]:
        yield f"  it waits for {group.name}, which has the new revision and is {group.state}"


def _groups(desired: Desired, groups: Mapping[int, Group], planned: Plan) -> Iterator[str]:
    waiting = [
        group
        for _, group in sorted(groups.items())
        if group.exists and (group.state is not State.RUNNING or group.failures)
    ]
    for group in waiting[:MAX_GROUPS]:
        yield f"Group {group.name} is {group.state}:"
        lines = list(dict.fromkeys(_group(desired, group)))
        yield from (f"  {line}" for line in lines[:MAX_LINES])
        if len(lines) > MAX_LINES:
            yield f"  and {len(lines) - MAX_LINES} more"
    if len(waiting) > MAX_GROUPS:
        yield f"{len(waiting) - MAX_GROUPS} more groups are not ready."
    for name, obstacle in sorted(
        (name, obstacle)
        for group in groups.values()
        if not group.exists
        for name, obstacle in group.taken.items()
    )[:MAX_GROUPS]:
        yield f"{name} cannot be made yet: that name {obstacle.why}."
    past = {each.group: each for each in planned.status.recoveries}
    for last in [each for name, each in past.items() if name not in {group.name for group in waiting}]:
        yield f"Not long ago, {causes.recovery_text(last)} (at {last.time})."


def _group(desired: Desired, group: Group) -> Iterator[str]:
    if group.broken:
        yield f"it is made again as a whole: {group.broken}"
    if group.recovery is not None:
        yield causes.recovery_text(group.recovery, group)
    failing = {each.pod: each for each in group.failures}
    for name, failure in failing.items():
        end = f"; given up at {format_time(group.recheck_at)}" if group.recheck_at is not None else ""
        yield causes.failure_text(failure) + (end if not group.broken else "")
        if desired.spec.recovery_policy == "None":
            yield f"pod {name} is left as it is, since recoveryPolicy is None"
    for instance in sorted(group.each(), key=lambda each: (each.role, each.ordinal)):
        yield from _instance(group, instance, failing, desired)
    for role, target in desired.revision.roles.items():
        have = len(group.instances.get(role, {}))
        if have < target.replicas:
            yield f"role {role} has {have} of {target.replicas} replicas"
    for name, obstacle in sorted(group.taken.items()):
        if obstacle.lasting or not name.endswith("-0"):
            yield f"{name.replace('/', ' ')} cannot be made: that name {obstacle.why}"


def _instance(group: Group, instance: Instance, failing: Collection[str], desired: Desired) -> Iterator[str]:
    """What its pods do, apart from those that failed."""
    for pod in instance.dying:
        yield f"pod {pod.metadata.name} is being deleted since {pod.metadata.deletion_timestamp}"
    for _, pod in sorted(instance.live.items()):
        if pod.metadata.name not in failing:
            yield from _pod(pod, desired)
    size = instance.template.size if instance.template is not None else 0
    for index in range(size):
        name = pod_name(group.name, instance.id, index)
        if index not in instance.live and all(name != pod.metadata.name for pod in instance.dying):
            yield f"pod {name} is missing"


def _pod(pod: ServingPod, desired: Desired) -> Iterator[str]:
    """What a pod that has not failed waits for, if it does."""
    name = pod.metadata.name
    if pod.status.phase == "Succeeded":
        yield f"pod {name} has ended well (Succeeded), and stays so"
        return
    if pod.status.phase == "Running" and pod.ready:
        return
    stuck = causes.waits(pod)
    yield from (f"pod {name}, container {container}: {reason}" for container, reason in stuck)
    unscheduled = causes.unscheduled(pod)
    if unscheduled:
        yield f"pod {name} has no node: {unscheduled}"
    elif not stuck and not pod.spec.node_name:
        scheduler = desired.spec.scheduler_name
        yield f"pod {name} has no node, and the scheduler {scheduler} says nothing about it" + (
            "; is Volcano installed?" if scheduler == VOLCANO else ""
        )
    elif not stuck and pod.status.phase != "Running":
        yield f"pod {name} is starting on node {pod.spec.node_name}"
    elif not stuck:
        unready = [each.name for each in pod.status.container_statuses if not each.ready]
        since = causes.unready_since(pod)
        which = f", container {', '.join(unready)}," if unready else ""
        yield f"pod {name}{which} runs and is not ready" + (f" since {since}" if since else " yet")


def _next(planned: Plan) -> Iterator[str]:
    match planned.decision:
        case Act(actions=actions, reasons=reasons):
            counted = Counter(type(action).__name__ for action in actions)
            what = ", ".join(f"{number} {name}" for name, number in sorted(counted.items()))
            yield f"To be done now ({what}):"
            yield from (f"  {reason}" for reason in reasons[:MAX_LINES])
            if len(reasons) > MAX_LINES:
                yield f"  and {len(reasons) - MAX_LINES} more"
        case Blocked(reasons=reasons):
            held = [each for each in reasons if not each.startswith("Groups [")]
            if held:
                yield "It waits:"
                yield from (f"  {reason}" for reason in held[:MAX_LINES])
        case _:
            yield "Nothing is left to do."
    if planned.recheck_at is not None:
        yield f"The next look without a change is at {format_time(planned.recheck_at)}."


def gang_note(desired: Desired) -> str:
    """What gang scheduling means for it, where it does not work; "" otherwise."""
    if is_ganged(desired.spec) and desired.offer.served is False:
        return "Its groups are not gang scheduled: the PodGroup API of Volcano is not installed."
    return ""
