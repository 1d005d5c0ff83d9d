"""How long a group that keeps failing waits, what counts as a repetition, and what the status keeps of it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.modelserving import Recovery, Status
from isthmus.api.times import format_time
from isthmus.modelserving.plan.backoff import FIRST_S, MAX_RECOVERIES, MOST_S, QUIET_S, delay_s
from tests.support.serving import (
    NOW,
    Scene,
    crashed_status,
    failed_status,
    in_words,
    pods_deleted,
    role,
    serving,
    with_meta,
)


def born(scene: Scene, name: str, at: float, **changes: object) -> None:
    """A new pod takes the place of one of this name."""
    fresh = with_meta(scene.pods[name], creation_timestamp=format_time(at), uid=f"{name} of {at}")
    scene.pods[name] = replace(fresh, **changes)


def fails(scene: Scene, name: str, at: float) -> None:
    scene.now = at
    scene.set_status(name, failed_status(at=at))


def known(scene: Scene) -> list[tuple[str, int, str]]:
    return [(each.group, each.count, each.pod) for each in scene.serving.status.recoveries]


@pytest.mark.covers("MS-83")
@pytest.mark.parametrize(("count", "wait_s"), [(1, 10), (2, 20), (5, 160), (6, 300), (2**31, 300)])
def test_wait_must_double_up_to_a_bound(count: int, wait_s: float) -> None:
    assert delay_s(count) == wait_s
    assert FIRST_S <= delay_s(count) <= MOST_S


@pytest.mark.covers("MS-276", "MS-83")
def test_first_failure_must_be_recovered_at_once_and_be_kept_with_its_evidence() -> None:
    scene = Scene(serving(role("p", 2))).has_group(0)
    fails(scene, "a-0-p-1-0", NOW)
    planned = scene.plan()
    assert pods_deleted(planned) == {"a-0-p-1-0"}
    (last,) = planned.status.recoveries
    assert last == Recovery(
        group="a-0",
        count=1,
        time=format_time(NOW),
        revision=scene.desired.revision.name,
        pod="a-0-p-1-0",
        pod_uid=scene.pods["a-0-p-1-0"].metadata.uid,
        reason="Evicted",
        message="node is full",
    )


@pytest.mark.covers("MS-83")
def test_repeated_failure_must_wait_and_then_count_up() -> None:
    scene = Scene(serving(role("p"))).has_group(0)
    at = NOW
    for count in range(1, 8):
        fails(scene, "a-0-p-0-0", at)
        assert pods_deleted(scene.plan()) == {"a-0-p-0-0"}, count
        scene.reported()
        assert known(scene) == [("a-0", count, "a-0-p-0-0")]
        born(scene, "a-0-p-0-0", at + 1)
        fails(scene, "a-0-p-0-0", at + 2)
        due = at + delay_s(count)
        assert (pods_deleted(scene.plan()), scene.plan().recheck_at) == (set(), due)
        scene.now = due - 0.1
        assert not pods_deleted(scene.plan())
        at = due


def test_failure_must_count_once_however_often_it_is_seen() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    fails(scene, "a-0-p-0-1", NOW)
    scene.reported()
    for later in (0, 5, 500):
        scene.now = NOW + later
        assert pods_deleted(scene.plan()) == {
            "a-0-p-0-0",
            "a-0-p-0-1",
        }  # as after a restart before the deletion
        scene.reported()
        assert known(scene) == [("a-0", 1, "a-0-p-0-1")]


def test_older_sibling_must_be_recovered_at_once_and_not_count() -> None:
    scene = Scene(serving(role("p"), role("q"))).has_group(0)
    fails(scene, "a-0-p-0-0", NOW)
    scene.reported()
    born(scene, "a-0-p-0-0", NOW + 1)
    scene.set_status("a-0-p", scene.pods["a-0-q-0-0"].status)
    fails(scene, "a-0-q-0-0", NOW + 2)
    assert pods_deleted(scene.plan()) == {"a-0-q-0-0"}
    scene.reported()
    assert known(scene) == [("a-0", 1, "a-0-p-0-0")]
    born(scene, "a-0-q-0-0", NOW + 3)
    fails(scene, "a-0-q-0-0", NOW + 4)
    assert not pods_deleted(scene.plan())


def test_failure_after_a_quiet_time_must_begin_a_new_count() -> None:
    scene = Scene(serving(role("p"))).has_group(0)
    scene.reports(recoveries=(past(scene, count=6, at=NOW - QUIET_S),))
    born(scene, "a-0-p-0-0", NOW - QUIET_S + 1)
    fails(scene, "a-0-p-0-0", NOW)
    assert pods_deleted(scene.plan()) == {"a-0-p-0-0"}
    scene.reported()
    assert known(scene) == [("a-0", 1, "a-0-p-0-0")]


def past(scene: Scene, group: str = "a-0", *, count: int = 3, at: float = NOW - 5) -> Recovery:
    return Recovery(
        group=group,
        count=count,
        time=format_time(at),
        revision=scene.desired.revision.name,
        pod=f"{group}-p-0-0",
        pod_uid="former",
        container="engine",
        reason="OOMKilled",
        message="exit code 137",
    )


def test_failure_of_a_new_revision_must_not_wait_for_those_of_the_old() -> None:
    old, new = serving(role("p", image="one")), serving(role("p", image="two"))
    scene = Scene(new, stored=[old, new]).has_group(0)
    before = replace(past(scene), revision=scene.revision(old).name)
    scene.reports(recoveries=(before,))
    assert not scene.plan().status.recoveries
    born(scene, "a-0-p-0-0", NOW - 1)
    fails(scene, "a-0-p-0-0", NOW)
    assert pods_deleted(scene.plan()) == {"a-0-p-0-0"}
    assert [each.count for each in scene.plan().status.recoveries] == [1]


def test_wait_must_hold_for_a_group_that_is_recovered_as_a_whole() -> None:
    scene = Scene(serving(role("p"), role("q"), recovery="ServingGroupRecreate")).has_group(0)
    scene.reports(recoveries=(past(scene),))
    for name in list(scene.pods):
        born(scene, name, NOW - 2)
    fails(scene, "a-0-p-0-0", NOW)
    assert not pods_deleted(scene.plan())
    scene.now = NOW - 5 + delay_s(3)
    assert pods_deleted(scene.plan()) == {"a-0-p-0-0", "a-0-q-0-0"}


def test_wait_must_be_after_the_grace_as_well() -> None:
    of = serving(role("p"), template={"restartGracePeriodSeconds": 60})
    scene = Scene(of).has_group(0)
    scene.reports(recoveries=(past(scene),))
    born(scene, "a-0-p-0-0", NOW - 2, status=crashed_status(at=NOW - 1))
    assert scene.plan().recheck_at == NOW - 1 + 60


def test_deleted_pod_must_be_made_again_without_a_wait() -> None:
    scene = Scene(serving(role("p", 2))).has_group(0)
    scene.reports(recoveries=(past(scene),)).lose("a-0-p-1")
    assert in_words(scene.plan()) == ["create pod a-0-p-1-0"]
    assert known(scene) == [("a-0", 3, "a-0-p-0-0")]


def test_recovery_must_be_kept_while_its_group_is_being_made_again_and_go_with_it() -> None:
    scene = Scene(serving(role("p"), replicas=2)).has_group(0)
    scene.reports(recoveries=(past(scene, "a-1"), past(scene, "a-7"), past(scene, "b-0")))
    scene.reported()
    assert known(scene) == [("a-1", 3, "a-1-p-0-0")]


def test_status_must_keep_a_bounded_number_of_recoveries_the_latest() -> None:
    scene = Scene(serving(role("p"), replicas=100)).has_groups(*range(100))
    for number in range(100):
        scene.set_status(f"a-{number}-", failed_status(at=NOW, message="x" * 1000))
    found = scene.plan().status.recoveries
    assert len(found) == MAX_RECOVERIES
    assert all(len(each.message) <= 200 for each in found)


def test_message_must_say_what_a_group_went_through_and_when_it_is_recovered_again() -> None:
    scene = Scene(serving(role("p"))).has_group(0)
    scene.reports(recoveries=(past(scene, count=1),)).lose("a-0")
    assert scene.plan().status.conditions[0].message == (
        "Groups [0] are not ready: "
        "a-0 was recovered because of pod a-0-p-0-0, container engine: OOMKilled: exit code 137"
    )
    scene.has_group(0).reports(recoveries=(past(scene),))
    born(scene, "a-0-p-0-0", NOW - 2, status=crashed_status(at=NOW - 1, restarts=2))
    assert scene.plan().status.conditions[0].message == (
        "Groups [0] are not ready: pod a-0-p-0-0, container engine: CrashLoopBackOff: Error: exit code 1; "
        f"a-0 was recovered 3 times in a row, and not again before {format_time(NOW + 35)}, "
        "last because of pod a-0-p-0-0, container engine: OOMKilled: exit code 137"
    )
    scene.reports(recoveries=(past(scene, count=1),))
    assert (
        f"a-0 was recovered once, and not again before {format_time(NOW + 5)}, because of pod a-0-p-0-0"
        in (scene.plan().status.conditions[0].message)
    )


def test_recovery_must_come_back_from_the_wire_as_it_went() -> None:
    scene = Scene(serving(role("p")))
    for each in (past(scene), past(scene, count=1)):
        status = replace(scene.serving.status, recoveries=(each,))
        raw = msgspec.json.decode(msgspec.json.encode(status))
        assert raw["recoveries"][0]["count"] == each.count
        assert msgspec.json.decode(msgspec.json.encode(raw), type=Status) == status


def test_earliest_of_several_failures_must_be_kept_whatever_its_name() -> None:
    scene = Scene(serving(role("p", 2), recovery="ServingGroupRecreate")).has_group(0)
    scene.set_status("a-0-p-0", failed_status(at=NOW - 5))
    scene.set_status("a-0-p-1", failed_status(at=NOW - 9))
    scene.reported()
    assert known(scene) == [("a-0", 1, "a-0-p-1-0")]
