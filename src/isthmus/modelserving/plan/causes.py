"""Why groups are not ready, for people: the failing pod, its container and the reason.

Called by status.py for the conditions' message, and by `isthmus explain` for one group or pod. Texts are a
function of what is there, in the order of ordinals and names, and hold no count or time that moves on by
itself, so that the same state always gives the same message.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from isthmus.api.modelserving import Recovery
from isthmus.api.names import group_name
from isthmus.api.pods import ServingPod
from isthmus.api.times import format_time, parse_time
from isthmus.modelserving.plan.draft import Draft
from isthmus.modelserving.plan.model import Failure, Group, Instance, State

MAX_DETAIL: Final = 200
"""Characters of a kubelet's message that a cause repeats."""
MAX_LISTED: Final = 20
"""Ordinals and causes named in one message; the rest is counted."""
STARTING_S: Final = 60.0
"""Seconds of a pod's life in which it is not worth telling that it is not ready."""
_PULLING: Final = ("ErrImagePull", "ImagePullBackOff")


def not_ready(
    groups: Mapping[int, Group],
    waiting: list[int],
    missing: int,
    serving: str,
    draft: Draft,
) -> str:
    """Which groups are not ready and why. Texts change only with what they tell, and are in the order of
    ordinals, so that the same state always gives the same message."""
    text = f"Groups {_listed(waiting)} are not ready" if waiting else f"{missing} groups are missing"
    past = {each.group: each for each in draft.recoveries}
    found: list[str] = []
    for ordinal in waiting:
        group, last = groups.get(ordinal), past.get(group_name(serving, ordinal))
        if group is not None:
            found += causes(group, draft)
        if last is not None:
            found.append(recovery_text(last, group))
    if not found:
        return text
    more = f"; and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    return f"{text}: {'; '.join(found[:MAX_LISTED])}{more}"[:4096]


def causes(group: Group, draft: Draft) -> list[str]:
    """Why a group is not ready: pods that failed, then what its other pods wait for, by name."""
    if group.name in draft.deleting:
        return [f"{group.name} is being deleted" + (f": {group.broken}" if group.broken else "")]
    if group.failures:
        return [failure_text(each) for each in islice(group.failures, MAX_LISTED + 1)]
    instances = sorted(group.each(), key=lambda each: (each.role, each.ordinal))
    return [cause for instance in instances for cause in _instance_causes(instance)]


def recovery_text(last: Recovery, group: Group | None = None) -> str:
    """What a group went through, and when it is recovered again if that waits."""
    why = f"pod {last.pod}" + (f", container {last.container}" if last.container else "")
    why += f": {last.reason}" + (f": {last.message}" if last.message else "")
    again = ""
    if group is not None and group.failures and group.recheck_at is not None:
        again = f", and not again before {format_time(group.recheck_at)}"
    if last.count > 1:
        return f"{last.group} was recovered {last.count} times in a row{again}, last because of {why}"
    return f"{last.group} was recovered{f' once{again},' if again else ''} because of {why}"


def failure_text(failure: Failure) -> str:
    """The pod that failed, its container, why, and what it said."""
    where = f"pod {failure.pod}" + (f", container {failure.container}" if failure.container else "")
    loop = "CrashLoopBackOff: " if failure.looping else ""
    message = f": {failure.message[:MAX_DETAIL]}" if failure.message else ""
    return f"{where}: {loop}{failure.reason}{message}"


def _instance_causes(instance: Instance) -> list[str]:
    if instance.state is State.RUNNING:
        return []
    if instance.state is State.DELETING:
        return [f"{instance.id} is being deleted" + (f": {instance.broken}" if instance.broken else "")]
    found = []
    for _, pod in sorted(instance.live.items()):
        found += [
            f"pod {pod.metadata.name}, container {container}: {reason}" for container, reason in waits(pod)
        ]
        if pod.status.phase == "Succeeded":
            found.append(f"pod {pod.metadata.name} has ended (Succeeded)")
        reason = unscheduled(pod)
        if reason:
            found.append(f"pod {pod.metadata.name}: {reason}")
        since = unready_since(pod)
        if since:
            found.append(f"pod {pod.metadata.name} is not ready since {since}")
    return found


def waits(pod: ServingPod) -> list[tuple[str, str]]:
    """(container, reason) for those that cannot start."""
    found = []
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = container.state.waiting
        if waiting is None or waiting.reason in ("", "ContainerCreating", "PodInitializing"):
            continue
        reason, message = waiting.reason, waiting.message
        if reason in _PULLING:  # a kubelet says the one and the other in turn; no news
            reason, message = "ImagePullBackOff", message.rpartition("ErrImagePull: ")[2]
        found.append((container.name, f"{reason}: {message[:MAX_DETAIL]}" if message else reason))
    return found


def unscheduled(pod: ServingPod) -> str:
    """Why the scheduler finds no node for a pod, in its own words, or ""."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            detail = f": {condition.message[:MAX_DETAIL]}" if condition.message else ""
            return f"{condition.reason or 'Unscheduled'}{detail}"
    return ""


def unready_since(pod: ServingPod) -> str:
    """Since when a pod that runs is not ready, where it has been there for longer than starting takes, or
    ""."""
    ready = pod.ready_condition
    if pod.status.phase != "Running" or ready is None or ready.status == "True" or waits(pod):
        return ""
    since = ready.last_transition_time or ""
    try:
        lived = parse_time(since) - parse_time(pod.metadata.creation_timestamp)
    except ValueError:
        return ""
    return since if lived >= STARTING_S else ""


def _listed(ordinals: list[int]) -> str:
    """`[0 2]`, as upstream writes lists (MS-104); long ones are cut."""
    more = f" and {len(ordinals) - MAX_LISTED} more" if len(ordinals) > MAX_LISTED else ""
    return f"[{' '.join(str(each) for each in ordinals[:MAX_LISTED])}{more}]"
