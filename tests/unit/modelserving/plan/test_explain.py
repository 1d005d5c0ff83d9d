"""What a person is told of a ModelServing that is, or is not, as wanted."""

from __future__ import annotations

from msgspec.structs import replace

from isthmus.api.pods import ContainerState, ContainerStatus, PodCondition, PodSpec, PodStatus, Waiting
from isthmus.api.times import format_time
from isthmus.modelserving.plan.explain import explain, gang_note
from isthmus.modelserving.plan.model import Obstacle, Offer
from tests.support.serving import (
    NOW,
    Scene,
    crashed_status,
    failed_status,
    ready_status,
    role,
    serving,
    unready_status,
)


def told(scene: Scene) -> list[str]:
    return explain(scene.desired, scene.groups(), scene.plan())


def seen(scene: Scene) -> Scene:
    """An operator has written the status of this scene."""
    return scene.reports(**{field: getattr(scene.plan().status, field) for field in ("observed_generation",)})


def test_ready_one_must_be_said_to_be_so_and_no_more() -> None:
    scene = seen(Scene(serving(role("p"), replicas=2)).has_groups(0, 1))
    assert told(scene) == [
        "ModelServing default/a is ready: 2 of 2 groups are available.",
        "Nothing is left to do.",
    ]
    empty = seen(Scene(serving(role("p"), replicas=0)))
    assert told(empty)[0] == "ModelServing default/a is ready: 0 of 0 groups are available."


def test_lack_of_an_operator_must_be_told() -> None:
    scene = Scene(serving(role("p")), stored=[])
    lines = told(scene)
    assert "No operator has looked at it yet: none is running, or none for this namespace." in lines
    assert lines[2].startswith("To be done now (1 CreatePod, 1 PersistRevision")
    scene = Scene(serving(role("p"), generation=4)).has_group(0).reports(observed_generation=3)
    assert told(scene)[1] == (
        "The spec is at generation 4, and the operator has acted on 3 last: it is behind, or not running."
    )


def test_what_each_pod_waits_for_must_be_told() -> None:
    pulling = ContainerStatus(
        name="engine", state=ContainerState(waiting=Waiting(reason="ImagePullBackOff", message="no such tag"))
    )
    unplaced = PodCondition(
        type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes are available."
    )
    for status, line in (
        (
            PodStatus(phase="Pending", container_statuses=(pulling,)),
            "  pod a-0-p-0-0, container engine: ImagePullBackOff: no such tag",
        ),
        (
            PodStatus(phase="Pending", conditions=(unplaced,)),
            "  pod a-0-p-0-0 has no node: Unschedulable: 0/3 nodes are available.",
        ),
        (
            PodStatus(phase="Pending"),
            "  pod a-0-p-0-0 has no node, and the scheduler volcano says nothing about it; "
            "is Volcano installed?",
        ),
        (unready_status(phase="Succeeded"), "  pod a-0-p-0-0 has ended well (Succeeded), and stays so"),
    ):
        lines = told(seen(Scene(serving(role("p"))).has_group(0, status=status)))
        assert lines[:3] == [
            "ModelServing default/a is not ready: 0 of 1 group is available.",
            "Group a-0 is Creating:",
            line,
        ]


def test_pod_on_a_node_must_be_said_to_start_or_to_run_unready() -> None:
    scene = seen(Scene(serving(role("p"))).has_group(0, status=PodStatus(phase="Pending")))
    pod = scene.pods["a-0-p-0-0"] = replace(scene.pods["a-0-p-0-0"], spec=PodSpec(node_name="n1"))
    assert "  pod a-0-p-0-0 is starting on node n1" in told(scene)
    scene.pods["a-0-p-0-0"] = replace(pod, status=unready_status(since=NOW - 890))
    assert "  pod a-0-p-0-0, container engine, runs and is not ready yet" in told(scene)
    scene.pods["a-0-p-0-0"] = replace(pod, status=unready_status(since=NOW - 60))
    assert f"  pod a-0-p-0-0, container engine, runs and is not ready since {format_time(NOW - 60)}" in told(
        scene
    )


def test_failure_must_be_told_with_its_end_and_what_the_policy_makes_of_it() -> None:
    of = serving(role("p"), template={"restartGracePeriodSeconds": 60})
    scene = seen(Scene(of).has_group(0, status=crashed_status(at=NOW - 10)))
    lines = told(scene)
    until = format_time(NOW + 50)
    assert f"  pod a-0-p-0-0, container engine: Error: exit code 1; given up at {until}" in lines
    assert lines[-1] == f"The next look without a change is at {until}."
    scene = seen(Scene(serving(role("p"), recovery="None")).has_group(0, status=failed_status()))
    lines = told(scene)
    assert "  pod a-0-p-0-0: Evicted: node is full" in lines
    assert "  pod a-0-p-0-0 is left as it is, since recoveryPolicy is None" in lines


def test_missing_pods_roles_and_taken_names_must_be_told() -> None:
    scene = seen(Scene(serving(role("p", 2, 1))).has_group(0)).lose("a-0-p-0-1").lose("a-0-p-1")
    lines = told(scene)
    assert "  pod a-0-p-0-1 is missing" in lines
    assert "  role p has 1 of 2 replicas" in lines
    groups = scene.groups()
    groups[0] = replace(groups[0], taken={"a-0-p-0-1": Obstacle("belongs to Job x (1)", lasting=True)})
    assert "  a-0-p-0-1 cannot be made: that name belongs to Job x (1)" in explain(
        scene.desired, groups, scene.plan()
    )


def test_rollout_must_be_told_with_what_holds_it() -> None:
    old, new = serving(role("p"), replicas=3), serving(role("p", image="two"), replicas=3)
    scene = seen(
        Scene(new, stored=[old, new]).has_groups(0, 1, of=old).has_group(2, status=PodStatus(phase="Pending"))
    )
    lines = told(scene)
    assert lines[1] == f"Rollout to revision {scene.desired.revision.name}: 1 of 3 groups have it."
    assert lines[2] == "  it waits for a-2, which has the new revision and is Creating"
    assert "  2 outdated groups wait: at most 1 may be unavailable" in lines
    kept = serving(role("p", image="two"), replicas=3, partition=2)
    scene = seen(Scene(kept, stored=[old, kept]).has_groups(0, 1, of=old).has_group(2))
    assert told(scene)[0].endswith("is ready: 3 of 3 groups are available.")
    assert told(scene)[1].endswith("1 of 3 groups have it. The others are kept back by the partition (2).")


def test_many_groups_must_not_make_many_lines() -> None:
    scene = seen(Scene(serving(role("p", 50), replicas=100)).has_groups(*range(100)))
    scene.set_status("a", PodStatus(phase="Pending"))
    assert len(told(scene)) < 160
    assert "90 more groups are not ready." in told(scene)


def test_absent_gang_api_must_be_noted_where_it_is_asked_for() -> None:
    desired = Scene(serving(role("p"))).desired
    assert "PodGroup API" in gang_note(desired)
    assert not gang_note(replace(desired, offer=Offer(served=True)))


def test_ready_pod_must_be_passed_over() -> None:
    scene = seen(Scene(serving(role("p", 2))).has_group(0).set_status("a-0-p-1", unready_status()))
    scene.set_status("a-0-p-0", ready_status())
    assert not [line for line in told(scene) if "a-0-p-0-0" in line]
