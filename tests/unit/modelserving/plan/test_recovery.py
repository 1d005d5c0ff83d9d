"""When a pod counts as failed, and since when."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.api.pods import ContainerState, ContainerStatus, PodCondition, PodStatus, ServingPod, Waiting
from isthmus.modelserving.plan.recovery import CLOCK_SLACK_S, failure
from tests.support.serving import (
    NOW,
    Scene,
    crashed_status,
    ended,
    failed_status,
    ready_status,
    role,
    serving,
    terminating,
    unready_status,
)


def pod(status: PodStatus) -> ServingPod:
    scene = Scene(serving(role())).has_group(0, status=status)
    return scene.pods["a-0-p-0-0"]


@pytest.mark.covers("MS-81")
@pytest.mark.parametrize(
    "status",
    [
        ready_status(),
        ready_status(restarts=7),
        unready_status(),
        unready_status(phase="Pending"),
        unready_status(phase="Succeeded"),
        replace(crashed_status(), phase="Unknown"),
        replace(crashed_status(), phase="Succeeded"),
        PodStatus(),
    ],
)
def test_pod_that_serves_or_starts_must_not_count_as_failed(status: PodStatus) -> None:
    assert failure(pod(status), {}) is None


@pytest.mark.covers("MS-81")
@pytest.mark.parametrize(
    ("status", "reason", "container"),
    [
        (failed_status(), "Evicted", ""),
        (failed_status(reason=""), "Failed", ""),
        (crashed_status(), "Error", "engine"),
        (crashed_status(phase="Pending"), "Error", "engine"),
        (crashed_status(waiting="CrashLoopBackOff"), "Error", "engine"),
    ],
)
def test_failed_pod_must_say_why_and_where(status: PodStatus, reason: str, container: str) -> None:
    victim = pod(status)
    found = failure(victim, {})
    assert found is not None
    assert (found.pod, found.uid) == ("a-0-p-0-0", victim.metadata.uid)
    assert (found.reason, found.container) == (reason, container)
    assert found.at == NOW - 10


@pytest.mark.covers("MS-82")
def test_ready_pod_never_counts_as_failed_whatever_its_restarts() -> None:
    crash = ContainerStatus(
        name="engine", restart_count=9, state=ended(NOW - 1), last_state=ended(NOW - 2, code=137)
    )
    status = replace(ready_status(), container_statuses=(crash,), init_container_statuses=(crash,))
    assert failure(pod(status), {}) is None


@pytest.mark.covers("MS-81", "MS-88")
def test_terminating_pod_never_counts_as_failed() -> None:
    assert failure(terminating(pod(failed_status())), {}) is None
    assert failure(terminating(pod(crashed_status())), {}) is None


@pytest.mark.covers("MS-403", "MS-418")
def test_pod_that_restarted_long_ago_and_turns_unready_must_not_count_as_failed() -> None:
    assert failure(pod(crashed_status(at=NOW - 3600, since=NOW - 5)), {}) is None


@pytest.mark.covers("MS-418")
@pytest.mark.parametrize("late_s", [0, 1, CLOCK_SLACK_S])
def test_container_that_ended_just_before_the_pod_turned_unready_must_count(late_s: float) -> None:
    assert failure(pod(crashed_status(at=NOW - 100, since=NOW - 100 + late_s)), {}) is not None
    assert failure(pod(crashed_status(at=NOW - 100, since=NOW - 99 + CLOCK_SLACK_S)), {}) is None


@pytest.mark.covers("MS-418")
def test_container_that_waits_to_restart_must_count_however_long_the_pod_is_unready() -> None:
    status = crashed_status(at=NOW - 3600, since=NOW - 5, waiting="CrashLoopBackOff")
    assert failure(pod(status), {}) is not None
    ended_now = replace(status.container_statuses[0], state=ended(NOW - 3600), last_state=ContainerState())
    assert failure(pod(replace(status, container_statuses=(ended_now,))), {}) is not None


@pytest.mark.covers("MS-277")
def test_restart_without_any_record_must_count_where_nothing_is_remembered() -> None:
    status = crashed_status(at=None, since=NOW - 50, restarts=5)
    found = failure(pod(status), {})
    assert found is not None
    assert (found.at, found.reason, found.container) == (NOW - 50, "Restarted", "engine")


@pytest.mark.covers("MS-418")
def test_restart_before_the_pod_was_last_ready_must_not_count() -> None:
    victim = pod(crashed_status(at=None, since=NOW - 50, restarts=5))
    assert failure(victim, {victim.metadata.uid: 5}) is None
    assert failure(victim, {victim.metadata.uid: 4}) is not None
    assert failure(victim, {"other": 5}) is not None
    crashing = pod(crashed_status(restarts=5, waiting="CrashLoopBackOff"))
    assert failure(crashing, {crashing.metadata.uid: 5}) is not None


def with_init(*init: ContainerStatus, phase: str = "Running") -> PodStatus:
    return replace(unready_status(since=NOW - 500, phase=phase), init_container_statuses=init)


@pytest.mark.covers("MS-81")
def test_init_container_that_failed_and_then_succeeded_must_not_count() -> None:
    done = ContainerStatus(
        name="load", ready=True, restart_count=3, state=ended(NOW - 60, code=0), last_state=ended(NOW - 90)
    )
    assert failure(pod(with_init(done)), {}) is None


@pytest.mark.covers("MS-81")
@pytest.mark.parametrize(
    "state", [ended(NOW - 60, code=2), ContainerState(waiting=Waiting(reason="CrashLoopBackOff"))]
)
def test_init_container_that_keeps_failing_must_count(state: ContainerState) -> None:
    failing = ContainerStatus(name="load", restart_count=1, state=state, last_state=ended(NOW - 90, code=2))
    found = failure(pod(with_init(failing, phase="Pending")), {})
    assert found is not None
    assert (found.container, found.message) == ("load", "exit code 2")


@pytest.mark.covers("MS-81")
def test_first_end_without_a_restart_must_not_count_in_a_pod_that_runs() -> None:
    once = ContainerStatus(name="engine", state=ended(NOW - 5))
    assert failure(pod(replace(unready_status(), container_statuses=(once,))), {}) is None


def test_failed_pod_must_name_the_container_that_ended_badly() -> None:
    statuses = (
        ContainerStatus(name="good", state=ended(NOW - 5, code=0, reason="Completed")),
        ContainerStatus(name="bad", state=ended(NOW - 9, code=137, reason="OOMKilled")),
    )
    found = failure(pod(PodStatus(phase="Failed", container_statuses=statuses)), {})
    assert found is not None
    assert (found.container, found.reason, found.message) == ("bad", "OOMKilled", "exit code 137")
    assert found.at == NOW - 9


@pytest.mark.parametrize("time", [None, "", "yesterday"])
def test_missing_and_unreadable_times_must_be_unknown(time: Any) -> None:
    condition = PodCondition(type="Ready", status="False", last_transition_time=time)
    found = failure(pod(PodStatus(phase="Failed", conditions=(condition,))), {})
    assert found is not None
    assert found.at is None
    once = ContainerStatus(name="engine", restart_count=1)
    found = failure(pod(PodStatus(phase="Running", container_statuses=(once,))), {})
    assert found is not None
    assert found.at is None


@pytest.mark.parametrize(("code", "told"), [(0, ("Failed", "")), (1, ("Completed", "engine"))])
def test_container_that_ended_well_must_not_be_named_as_why_a_pod_failed(
    code: int, told: tuple[str, str]
) -> None:
    container = ContainerStatus(name="engine", state=ended(NOW - 10, code, "Completed"))
    found = failure(pod(replace(failed_status(reason=""), container_statuses=(container,))), {})
    assert found is not None
    assert (found.reason, found.container) == told
