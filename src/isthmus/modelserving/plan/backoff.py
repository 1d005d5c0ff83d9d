"""When a ServingGroup that failed is recovered, how long one that keeps failing is left alone, and what is
kept of it.

Called by observe.py with the failures of one group, and by status.py for what stays in the status. What is
known of former recoveries is in the status alone (`Recovery`, one per group at most), written before anything
is deleted, so that a restart neither forgets one nor counts one twice. A failure repeats another where its
pod was made after the last recovery, at the same revision, and did not last; only repeated ones wait, and
only they count up. Pods that are older than the last recovery have had none of their own, and get it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from isthmus.api.modelserving import Recovery
from isthmus.api.names import group_name, ordinal
from isthmus.api.pods import ServingPod
from isthmus.api.times import format_time, parse_time
from isthmus.modelserving.plan.model import Desired, Failure, Group

FIRST_S: Final = 10.0
"""Seconds between the first recovery and the second; each further wait is twice as long."""
MOST_S: Final = 300.0
"""Seconds that are waited at most, as a kubelet does between restarts."""
QUIET_S: Final = 600.0
"""Seconds after a recovery from which a failure begins a new count."""
MAX_RECOVERIES: Final = 50
"""Groups of which the status keeps the last recovery."""
MAX_MESSAGE: Final = 200
"""Characters of a termination message that are kept."""


def delay_s(count: int) -> float:
    """Seconds after the last of `count` recoveries before which there is no other."""
    return min(MOST_S, FIRST_S * 2.0 ** min(count - 1, 10))


def due(failure: Failure, pod: ServingPod, grace_s: float, past: Recovery | None) -> float:
    """When `pod` is given up for this failure, whose time is known, in seconds since the epoch: after its
    grace (MS-83), and after the wait where the failure repeats what `past` says of its group."""
    at = failure.at or 0.0
    if past is None or pod.metadata.uid == past.pod_uid or not _repeats(failure, pod, past):
        return at + grace_s
    return max(at + grace_s, _time(past) + delay_s(past.count))


def recovery(
    past: Recovery | None, group: str, given_up: Iterable[tuple[Failure, ServingPod]], now: float
) -> Recovery | None:
    """What is known of the recoveries of `group` once these pods are given up: `past`, unless one of them is
    a failure that counts. Of several the earliest does, then the first by name."""
    failures = sorted(given_up, key=lambda each: (each[0].at or 0.0, each[0].pod))
    if past is not None and any(pod.metadata.uid == past.pod_uid for _, pod in failures):
        return past
    for failure, pod in failures:
        repeated = past is not None and _repeats(failure, pod, past)
        if past is not None and not repeated and _is_sibling(failure, pod, past):
            continue
        return Recovery(
            group=group,
            revision=pod.metadata.labels.revision,
            count=past.count + 1 if past is not None and repeated else 1,
            time=format_time(now),
            pod=failure.pod,
            pod_uid=failure.uid,
            container=failure.container,
            reason=failure.reason,
            message=failure.message[:MAX_MESSAGE],
        )
    return past


def kept(groups: Mapping[int, Group], desired: Desired) -> tuple[Recovery, ...]:
    """What the status keeps of recoveries: of groups that are wanted or there, as long as they have a pod of
    the revision that failed, or none; the latest ones where there are many."""
    known = {each.group: each for each in desired.status.recoveries}
    known.update((group.name, group.recovery) for group in groups.values() if group.recovery is not None)
    staying = []
    for name, last in known.items():
        number = ordinal(name)
        group = groups.get(number)
        revisions = {instance.revision for instance in group.each()} if group is not None else set()
        wanted = number < desired.spec.replicas or bool(revisions)
        if (
            wanted
            and name == group_name(desired.name, number)
            and (not revisions or last.revision in revisions)
        ):
            staying.append(last)
    latest = sorted(staying, key=lambda each: (each.time, each.group), reverse=True)[:MAX_RECOVERIES]
    return tuple(sorted(latest, key=lambda each: ordinal(each.group)))


def _repeats(failure: Failure, pod: ServingPod, past: Recovery) -> bool:
    return _follows(failure, pod, past) and _seconds(pod.metadata.creation_timestamp) >= _time(past)


def _is_sibling(failure: Failure, pod: ServingPod, past: Recovery) -> bool:
    """Whether a failure is of the same count as the last recovery, of a pod that was there before it."""
    return _follows(failure, pod, past) and not _repeats(failure, pod, past)


def _follows(failure: Failure, pod: ServingPod, past: Recovery) -> bool:
    same = pod.metadata.labels.revision == past.revision
    return same and (failure.at or 0.0) - _time(past) < QUIET_S


def _time(past: Recovery) -> float:
    return _seconds(past.time)


def _seconds(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError:
        return 0.0
