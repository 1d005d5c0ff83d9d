"""What people and autoscalers read."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.api.modelserving import Condition, Status
from isthmus.api.pods import ContainerState, ContainerStatus, PodCondition, PodStatus, Waiting
from isthmus.api.times import format_time
from isthmus.modelserving.plan.model import DropRevision
from isthmus.modelserving.plan.status import refused, with_problem
from tests.support.serving import (
    NOW,
    Scene,
    actions,
    conditions,
    ended,
    failed_status,
    pods_deleted,
    role,
    serving,
    unready_status,
)

OLD = serving(role("p"), replicas=4)


def counts(status: Status) -> tuple[int, int, int, int]:
    return (
        status.replicas,
        status.current_replicas,
        status.updated_replicas,
        status.available_replicas,
    )


def rolling(old: int, new: int, **spec: Any) -> Scene:
    """Groups 0.. at the old image, the highest ones at the new."""
    after = serving(role("p", image="two"), **{"replicas": old + new, **spec})
    scene = Scene(after, stored=[OLD, after]).has_groups(*range(old), of=OLD)
    scene.has_groups(*range(old, old + new))
    return scene.reports(current_revision=scene.revision(OLD).name)


def message(scene: Scene) -> str:
    return scene.plan().status.conditions[0].message


@pytest.mark.covers("MS-101", "MS-102", "MS-103", "MS-104")
def test_complete_serving_must_be_available_and_current() -> None:
    scene = Scene(serving(role("p"), role("q"), replicas=3, generation=7)).has_groups(0, 1, 2)
    status = scene.plan().status
    revision = scene.desired.revision.name
    assert counts(status) == (3, 3, 3, 3)
    assert (status.observed_generation, status.current_revision, status.update_revision) == (
        7,
        revision,
        revision,
    )
    assert status.conditions == (
        Condition(
            type="Available",
            status="True",
            reason="AllGroupsReady",
            message="All Serving groups are ready",
            last_transition_time=format_time(NOW),
            observed_generation=7,
        ),
    )


@pytest.mark.covers("MS-103", "MS-296")
def test_label_selector_must_pick_one_pod_of_each_group_also_without_groups() -> None:
    expected = (
        "modelserving.volcano.sh/entry=true,modelserving.volcano.sh/name=a,"
        "modelserving.volcano.sh/role-id=p-0,modelserving.volcano.sh/role=p"
    )
    assert Scene(serving(role("p"), role("q"), replicas=0)).plan().status.label_selector == expected


@pytest.mark.covers("MS-436")
def test_pod_of_the_label_selector_must_be_the_last_of_its_group_to_be_scaled_away() -> None:
    scene = Scene(serving(role("p", 1), role("q", 1))).has_group(0)
    for number in (1, 2):
        scene.has_instance("a-0", "p", number).has_instance("a-0", "q", number)
    selected = {
        name
        for name, pod in scene.pods.items()
        if pod.entry and (pod.metadata.labels.role, pod.metadata.labels.role_id) == ("p", "p-0")
    }
    gone = pods_deleted(scene.plan())
    assert (selected, len(gone), selected & gone) == ({"a-0-p-0-0"}, 4, set())


@pytest.mark.covers("MS-8", "MS-410")
def test_no_groups_must_be_available() -> None:
    status = Scene(serving(role(), replicas=0)).plan().status
    assert counts(status) == (0, 0, 0, 0)
    assert conditions(status) == {"Available": ("True", "AllGroupsReady")}
    assert status.current_revision == status.update_revision != ""


@pytest.mark.covers("MS-79", "MS-101")
def test_counts_must_follow_a_rollout_step_by_step() -> None:
    scene = rolling(4, 0)
    # The plan takes group 3 down, so that it is not available any more.
    assert counts(scene.plan().status) == (4, 3, 0, 3)
    scene.terminate("a-3")
    assert counts(scene.plan().status) == (4, 3, 0, 3)
    scene.lose("a-3")
    assert counts(scene.plan().status) == (4, 3, 1, 3)  # being made again
    assert counts(rolling(1, 3).set_status("a-3", unready_status()).plan().status) == (4, 1, 3, 3)


@pytest.mark.covers("MS-432", "R09")
def test_status_must_tell_what_the_plan_takes_down_at_once() -> None:
    scene = Scene(serving(role("p", 2), replicas=2)).has_groups(0, 1).terminate("a-1-p-1")
    assert counts(scene.plan().status) == (2, 2 - 2, 2, 1)
    assert conditions(scene.plan().status)["Available"] == ("False", "GroupProgressing")


@pytest.mark.covers("R09", "MS-432")
def test_group_of_which_a_role_rolls_must_not_be_available_from_that_plan_on() -> None:
    before = serving(role("p", 2), role("q"), by_role=True)
    after = serving(role("p", 2, image="two"), role("q"), by_role=True)
    scene = Scene(after, stored=[before, after]).has_group(0, of=before)
    status = scene.plan().status
    assert counts(status) == (1, 1, 0, 0)
    assert conditions(status)["UpdateInProgress"] == ("True", "GroupsUpdating")


@pytest.mark.covers("MS-101", "MS-257")
def test_partition_must_keep_old_groups_apart() -> None:
    scene = rolling(3, 2, max_unavailable=1, partition=3)
    status = scene.plan().status
    assert counts(status) == (5, 3, 2, 5)
    assert status.current_revision == scene.revision(OLD).name
    assert conditions(status) == {"Available": ("True", "AllGroupsReady")}
    # Scaled to the protected ones.
    scene.serving = replace(
        serving(role("p", image="two"), replicas=3, max_unavailable=1, partition=3), status=status
    )
    scene.lose("a-3").lose("a-4")
    assert counts(scene.plan().status) == (3, 3, 0, 3)


# Current revision


@pytest.mark.covers("MS-102", "MS-293")
def test_current_revision_must_stay_while_anything_has_it_and_then_be_the_commonest_old_one() -> None:
    third = serving(role("p", image="three"), replicas=4)
    second = serving(role("p", image="two"), replicas=4)
    scene = Scene(third, stored=[OLD, second, third]).has_groups(0, of=OLD).has_groups(1, 2, of=second)
    names = [scene.revision(each).name for each in (OLD, second, third)]
    assert scene.reports(current_revision=names[0]).plan().status.current_revision == names[0]
    assert scene.reports(current_revision="").plan().status.current_revision == names[1]
    assert scene.reports(current_revision="gone").plan().status.current_revision == names[1]
    scene.lose("a-2")
    assert scene.plan().status.current_revision == names[1]  # a tie: the newest of them (MS-446)
    scene.lose("a").has_groups(0, 1, 2, 3)
    assert scene.plan().status.current_revision == names[2]


@pytest.mark.covers("MS-405")
def test_current_revision_must_stay_while_the_last_protected_group_is_gone() -> None:
    scene = rolling(1, 1, partition=1).lose("a-0")
    status = scene.plan().status
    assert status.current_revision == scene.revision(OLD).name
    scene.reports(current_revision=status.current_revision)
    assert not any(isinstance(each, DropRevision) for each in actions(scene.plan()))
    scene = rolling(1, 1, partition=1).terminate("a-0")
    assert scene.plan().status.current_revision == scene.revision(OLD).name


@pytest.mark.covers("MS-407")
@pytest.mark.parametrize("gone", ["a-0-p-0", "a-0"])
def test_current_revision_must_stay_while_a_protected_role_replica_is_gone(gone: str) -> None:
    before = serving(role("p", 2), by_role=True)
    after = serving(role("p", 2, image="two", partition=1), by_role=True)
    scene = Scene(after, stored=[before, after]).has_group(0).lose("a-0-p-0")
    scene.has_instance("a-0", "p", 0, of=replace(scene.desired, revision=scene.revision(before)))
    scene.reports(current_revision=scene.revision(before).name)
    scene.lose(gone)
    assert scene.plan().status.current_revision == scene.revision(before).name


# Conditions


@pytest.mark.covers("MS-104", "MS-294", "MS-295", "MS-433")
def test_conditions_must_exclude_one_another_and_name_ordinals() -> None:
    scene = rolling(2, 2, max_unavailable=1).set_status("a-3", unready_status())
    status = scene.plan().status
    assert conditions(status)["UpdateInProgress"] == ("True", "GroupsUpdating")
    assert conditions(status)["Available"] == ("False", "GroupsUpdating")
    assert "Progressing" not in conditions(status)
    assert status.conditions[0].message.startswith("Groups [3] are not ready")
    protected = rolling(2, 1, max_unavailable=1, partition=2).set_status("a-2", unready_status())
    assert conditions(protected.plan().status)["Progressing"] == ("True", "GroupProgressing")


@pytest.mark.covers("MS-9")
def test_condition_types_must_be_these_three() -> None:
    starting, updating = Scene(serving(role(), replicas=2)), rolling(2, 2, max_unavailable=1)
    updating.reports(conditions=starting.plan().status.conditions)
    types = {each.type for scene in (starting, updating) for each in scene.plan().status.conditions}
    assert types == {"Available", "Progressing", "UpdateInProgress"}


@pytest.mark.covers("MS-105", "MS-433")
def test_condition_must_keep_its_time_while_it_stays_and_its_text_must_follow() -> None:
    scene = Scene(serving(role("p"), replicas=2)).has_group(0)
    first = scene.reported().status
    scene.now += 100
    scene.has_group(1, status=unready_status(since=NOW - 890))
    second = scene.reported().status
    assert [each.last_transition_time for each in second.conditions] == [format_time(NOW)] * 2
    assert [status.conditions[0].message for status in (first, second)] == [
        "Groups [1] are not ready",
        "Groups [1] are not ready",
    ]
    scene.set_status("a-1", unready_status())
    scene.lose("a-1").has_group(1)
    third = {each.type: each for each in scene.reported().status.conditions}
    assert conditions(scene.serving.status) == {
        "Available": ("True", "AllGroupsReady"),
        "Progressing": ("False", "AllGroupsReady"),
    }
    assert third["Available"].last_transition_time == format_time(NOW + 100)


def test_conditions_of_others_must_be_kept() -> None:
    foreign = Condition(type="Audited", status="True", reason="x", last_transition_time=format_time(NOW - 1))
    scene = Scene(serving(role(), replicas=0)).reports(conditions=(foreign,))
    assert scene.plan().status.conditions[-1] == foreign


# Texts


def test_message_must_name_the_failing_pod_container_and_reason() -> None:
    scene = Scene(serving(role("p", 1, 1), recovery="None")).has_group(0)
    crash = ContainerStatus(
        name="engine", restart_count=2, last_state=ended(NOW - 1, code=137, reason="OOMKilled")
    )
    scene.set_status("a-0-p-0-1", replace(unready_status(since=NOW - 1), container_statuses=(crash,)))
    assert message(scene) == (
        "Groups [0] are not ready: "
        "pod a-0-p-0-1, container engine: CrashLoopBackOff: OOMKilled: exit code 137"
    )
    scene.set_status("a-0-p-0-1", failed_status())
    assert message(scene) == "Groups [0] are not ready: pod a-0-p-0-1: Evicted: node is full"


def test_message_must_name_what_a_container_waits_for() -> None:
    pulling = ContainerStatus(
        name="engine", state=ContainerState(waiting=Waiting(reason="ImagePullBackOff", message="no such tag"))
    )
    starting = ContainerStatus(
        name="other", state=ContainerState(waiting=Waiting(reason="ContainerCreating"))
    )
    status = replace(unready_status(phase="Pending"), container_statuses=(pulling, starting))
    scene = Scene(serving(role("p"))).has_group(0, status=status)
    assert message(scene) == (
        "Groups [0] are not ready: pod a-0-p-0-0, container engine: ImagePullBackOff: no such tag"
    )
    scene.set_status("a-0", unready_status(phase="Succeeded"))
    assert message(scene) == "Groups [0] are not ready: pod a-0-p-0-0 has ended (Succeeded)"


def test_message_must_say_what_is_being_deleted_and_what_is_missing() -> None:
    scene = Scene(serving(role("p", 2), replicas=2)).has_groups(0, 1).terminate("a-0").terminate("a-1-p-0")
    assert message(scene) == "Groups [0 1] are not ready: a-0 is being deleted; p-0 is being deleted"
    scene = Scene(serving(role("p"), replicas=3), stored=[])
    scene.has_group(0, of=serving(role("p"), uid="former"))
    assert message(scene) == "Groups [1 2] are not ready"


def test_message_must_stay_short_however_many_groups_there_are() -> None:
    scene = Scene(serving(role("p"), replicas=200, recovery="None")).has_groups(*range(200))
    scene.set_status("a", failed_status(message="x" * 1000))
    text = message(scene)
    assert text.startswith(
        "Groups [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 and 180 more] are not ready"
    )
    assert len(text) <= 4096


@pytest.mark.covers("MS-422")
def test_problem_must_show_in_progressing_and_go_again() -> None:
    scene = Scene(serving(role(), replicas=1)).has_group(0)
    good = scene.plan().status
    bad = with_problem(good, scene.desired, "ActionFailed", "quota", NOW)
    assert conditions(bad) == {
        "Available": ("True", "AllGroupsReady"),
        "Progressing": ("False", "ActionFailed"),
    }
    scene.reports(conditions=bad.conditions)
    assert with_problem(scene.plan().status, scene.desired, "ActionFailed", "quota", NOW + 9) == replace(
        bad, conditions=(bad.conditions[0], bad.conditions[1])
    )
    after = scene.plan().status
    assert conditions(after)["Progressing"] == ("False", "AllGroupsReady")


@pytest.mark.covers("MS-422")
def test_refused_spec_must_keep_the_last_counts_and_say_why_once() -> None:
    of = serving(role(), generation=4, status=Status(replicas=3, available_replicas=2, observed_generation=3))
    status = refused(of, "InvalidSpec", "no", NOW)
    assert counts(status) == (3, 0, 0, 2)
    assert status.observed_generation == 4
    assert conditions(status) == {"Progressing": ("False", "InvalidSpec")}
    again = refused(replace(of, status=status), "InvalidSpec", "no", NOW + 60)
    assert again == status


def test_message_must_give_the_schedulers_word() -> None:
    waiting = PodStatus(
        phase="Pending",
        conditions=(
            PodCondition(
                type="PodScheduled",
                status="False",
                reason="Unschedulable",
                message="0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            ),
        ),
    )
    scene = Scene(serving(role("p"))).has_group(0, status=waiting)
    assert message(scene) == (
        "Groups [0] are not ready: pod a-0-p-0-0: Unschedulable: "
        "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    )


def test_message_must_not_change_with_a_kubelets_two_words_for_one_failed_pull() -> None:
    def pulling(reason: str, message: str) -> PodStatus:
        container = ContainerStatus(
            name="engine", state=ContainerState(waiting=Waiting(reason=reason, message=message))
        )
        return replace(unready_status(phase="Pending"), container_statuses=(container,))

    scene = Scene(serving(role("p"))).has_group(0, status=pulling("ErrImagePull", "no such tag"))
    first = message(scene)
    scene.set_status(
        "a-0", pulling("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: no such tag')
    )
    assert message(scene) == first
    assert first.endswith("pod a-0-p-0-0, container engine: ImagePullBackOff: no such tag")


def test_message_must_not_depend_on_the_order_in_which_pods_came() -> None:
    scene = Scene(serving(role("p", 3), role("q", 2), recovery="None")).has_group(0)
    scene.set_status("a-0", unready_status())
    first = message(scene)
    scene.pods = dict(reversed(scene.pods.items()))
    assert message(scene) == first
