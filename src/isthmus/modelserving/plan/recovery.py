"""Whether a pod has failed, told from its status alone.

Called by observe.py. A failure is a pod that ended (phase Failed), or one that is not ready because a
container of it ended; a pod that merely turns unready is left to become ready again (MS-403), also if it
restarted long ago (MS-418), and an init container that needed several attempts and then succeeded is none.
Each failure carries the time at which it happened, so that a grace period neither starts again when this
process does nor needs a timer of its own (MS-431).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from isthmus.api.pods import ContainerStatus, ServingPod, Terminated
from isthmus.api.times import parse_time
from isthmus.modelserving.plan.model import Failure

CLOCK_SLACK_S = 2.0
"""Kubelets write whole seconds, and set Ready to False up to a second after the container ended."""


def failure(pod: ServingPod, calm: Mapping[str, int]) -> Failure | None:
    """Why `pod` counts as failed, or None while it does not (MS-81). Terminating pods never do. `calm` is
    `Memory.calm`."""
    if pod.metadata.terminating:
        return None
    phase = pod.status.phase
    if phase == "Failed":
        return _failed(pod)
    if phase in ("Running", "Pending") and not (phase == "Running" and pod.ready):
        return _crashed(pod, calm)
    return None


def _failed(pod: ServingPod) -> Failure:
    status = pod.status
    name, ended = _latest_end([*status.init_container_statuses, *status.container_statuses])
    at = _latest(ended.finished_at if ended else None, _unready_since(pod))
    if ended is not None and ended.exit_code != 0 and not status.reason:
        reason, message = ended.reason or "Error", status.message or _describe(ended)
        return Failure(pod.metadata.name, pod.metadata.uid, at, reason, message, name)
    return Failure(pod.metadata.name, pod.metadata.uid, at, status.reason or "Failed", status.message)


def _crashed(pod: ServingPod, calm: Mapping[str, int]) -> Failure | None:
    restarted = [each for each in pod.status.container_statuses if each.restart_count > 0]
    restarted += [
        each for each in pod.status.init_container_statuses if each.restart_count > 0 and not _over(each)
    ]
    if not restarted:
        return None
    waiting = any(not each.ready and (each.state.waiting or each.state.terminated) for each in restarted)
    looping = any(each.restart_count > 1 and not each.ready for each in restarted)
    if not waiting and calm.get(pod.metadata.uid) == pod.restarts:
        return None  # it has been ready since its last restart
    name, ended = _latest_end(restarted)
    since = _unready_since(pod)
    if ended is None:  # no record of how: all that can be said is that it restarted and is not ready
        at = _seconds(since)
        return Failure(pod.metadata.name, pod.metadata.uid, at, "Restarted", "", restarted[0].name, looping)
    at, unready_at = _seconds(ended.finished_at), _seconds(since)
    if not waiting and at is not None and unready_at is not None and at < unready_at - CLOCK_SLACK_S:
        return None
    reason = ended.reason or "Restarted"
    return Failure(pod.metadata.name, pod.metadata.uid, at, reason, _describe(ended), name, looping)


def _over(init_container: ContainerStatus) -> bool:
    """Whether an init container has done its work."""
    ended = init_container.state.terminated
    return ended is not None and ended.exit_code == 0


def _unready_since(pod: ServingPod) -> str | None:
    condition = pod.ready_condition
    return condition.last_transition_time if condition is not None else None


def _latest_end(containers: Iterable[ContainerStatus]) -> tuple[str, Terminated | None]:
    """The last end of a container, a failing one before others, and which it was."""
    ends = [
        (ended.exit_code != 0, _seconds(ended.finished_at) or 0.0, index, container.name, ended)
        for index, container in enumerate(containers)
        for ended in (container.state.terminated, container.last_state.terminated)
        if ended is not None
    ]
    if not ends:
        return "", None
    *_, name, ended = max(ends, key=lambda each: each[:3])
    return name, ended


def _describe(ended: Terminated) -> str:
    return ended.message or f"exit code {ended.exit_code}"


def _latest(*times: str | None) -> float | None:
    return max((at for at in map(_seconds, times) if at is not None), default=None)


def _seconds(time: str | None) -> float | None:
    """Seconds since the epoch; None where there is no time or it cannot be read."""
    try:
        return parse_time(time) if time else None
    except ValueError:
        return None
