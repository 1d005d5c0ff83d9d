"""Whether a pod has failed, told from its status alone.

Called by observe.py. A failure is a pod that ended (phase Failed), or one that is not ready because a
container of it ended; a pod that merely turns unready is left to become ready again (MS-403), also if it
restarted long ago (MS-418). Each failure carries the time at which it happened, so that a grace period
neither starts again when this process does nor needs a timer of its own (MS-431).
"""

from __future__ import annotations

from isthmus.api.pods import ContainerStatus, ServingPod, Terminated
from isthmus.api.times import parse_time
from isthmus.modelserving.plan.model import Failure

CLOCK_SLACK_S = 2.0
"""Kubelets write whole seconds, and set Ready to False up to a second after the container ended."""


def failure(pod: ServingPod) -> Failure | None:
    """Why `pod` counts as failed, or None while it does not (MS-81). Terminating pods never do."""
    if pod.metadata.terminating:
        return None
    phase = pod.status.phase
    if phase == "Failed":
        return _failed(pod)
    if phase in ("Running", "Pending") and not (phase == "Running" and pod.ready):
        return _crashed(pod)
    return None


def _failed(pod: ServingPod) -> Failure:
    ended = _latest_end(pod)
    reason = pod.status.reason or (ended.reason if ended else "") or "Failed"
    message = pod.status.message or (ended.message if ended else "")
    condition = pod.ready_condition
    times = [ended.finished_at if ended else None, condition.last_transition_time if condition else None]
    return Failure(pod.metadata.name, max(_seconds(time) for time in times), reason, message)


def _crashed(pod: ServingPod) -> Failure | None:
    containers = [*pod.status.container_statuses, *pod.status.init_container_statuses]
    restarted = [container for container in containers if container.restart_count > 0]
    if not restarted:
        return None
    ended = _latest_end(pod)
    condition = pod.ready_condition
    unready_since = _seconds(condition.last_transition_time if condition else None)
    if ended is None:
        # A status without the termination record: all that can be said is that it restarted and is not ready.
        return Failure(pod.metadata.name, unready_since, "ContainerRestarted", "")
    at = _seconds(ended.finished_at)
    if at < unready_since - CLOCK_SLACK_S and not _waiting(restarted):
        return None
    return Failure(pod.metadata.name, at, ended.reason or "ContainerRestarted", _describe(ended))


def _waiting(containers: list[ContainerStatus]) -> bool:
    """Whether one of them has ended and has not come back yet, as in CrashLoopBackOff."""
    return any(not c.ready and (c.state.waiting or c.state.terminated) for c in containers)


def _latest_end(pod: ServingPod) -> Terminated | None:
    ends = [
        ended
        for container in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        for ended in (container.state.terminated, container.last_state.terminated)
        if ended is not None and (container.restart_count > 0 or ended.exit_code != 0)
    ]
    return max(ends, key=lambda ended: _seconds(ended.finished_at), default=None)


def _describe(ended: Terminated) -> str:
    return ended.message or f"exit code {ended.exit_code}"


def _seconds(time: str | None) -> float:
    """Seconds since the epoch; 0 where there is no time or it cannot be read, which is longer ago than any
    grace."""
    try:
        return parse_time(time) if time else 0.0
    except ValueError:
        return 0.0
