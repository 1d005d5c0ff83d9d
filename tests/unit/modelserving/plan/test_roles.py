"""What is made, repaired, rolled and removed inside one group."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.modelserving.plan.draft import MAX_PODS_PER_PASS
from isthmus.modelserving.plan.model import (
    Blocked,
    CreatePod,
    DeleteService,
    Done,
    RepairService,
    State,
)
from tests.support.serving import (
    NOW,
    Scene,
    actions,
    costing,
    crashed_status,
    failed_status,
    in_words,
    pods_created,
    pods_deleted,
    role,
    serving,
    unready_status,
    with_meta,
)


def instances(names: set[str]) -> set[str]:
    """Instance IDs of pods of group 0 of `a`."""
    return {name.removeprefix("a-0-").rpartition("-")[0] for name in names}


@pytest.mark.covers("MS-21", "MS-22", "MS-55", "MS-442")
def test_new_group_must_be_made_whole_and_its_services_first() -> None:
    planned = Scene(serving(role("p", 2, 1), role("q")), stored=[]).plan()
    words = [f"{type(each).__name__}" for each in actions(planned)]
    assert words == ["PersistRevision", *["CreateService"] * 2, *["CreatePod"] * 5]
    assert pods_created(planned) == {"a-0-p-0-0", "a-0-p-0-1", "a-0-p-1-0", "a-0-p-1-1", "a-0-q-0-0"}
    assert planned.states == dict.fromkeys([("a-0", "p-0"), ("a-0", "p-1"), ("a-0", "q-0")], State.CREATING)


# Scaling


@pytest.mark.covers("MS-60", "MS-61", "MS-225", "MS-226")
@pytest.mark.parametrize(
    ("there", "replicas", "made"),
    [([0, 5], 4, [1, 2]), ([10], 3, [0, 1]), ([0, 1], 2, []), ([], 2, [0, 1])],
)
def test_missing_role_replicas_must_be_made_at_the_lowest_free_ordinals(
    there: list[int], replicas: int, made: list[int]
) -> None:
    scene = Scene(serving(role("p", replicas), role("q"))).has_instance("a-0", "q", 0)
    for number in there:
        scene.has_instance("a-0", "p", number)
    assert instances(pods_created(scene.plan())) == {f"p-{number}" for number in made}


@pytest.mark.covers("MS-226")
def test_replica_on_its_way_out_must_keep_its_ordinal() -> None:
    scene = (
        Scene(serving(role("p", 3), role("q"))).has_group(0, only=["p-0", "p-1", "q-0"]).terminate("a-0-p-1")
    )
    assert instances(pods_created(scene.plan())) == {"p-2"}


@pytest.mark.covers("MS-62", "MS-232", "MS-233", "MS-243", "MS-244")
@pytest.mark.parametrize(
    ("costs", "unready", "replicas", "gone"),
    [({}, [], 1, [1, 2, 3]), ({0: 1, 1: 9}, [], 2, [2, 3]), ({3: 5}, [3], 3, [3]), ({0: -1}, [], 3, [0])],
)
def test_surplus_role_replicas_must_go_with_their_services(
    costs: dict[int, int], unready: list[int], replicas: int, gone: list[int]
) -> None:
    before = serving(role("p", 4, 1))
    scene = Scene(serving(role("p", replicas, 1)), stored=[before]).has_group(0, of=before)
    for number, cost in costs.items():
        scene.pods[f"a-0-p-{number}-0"] = costing(scene.pods[f"a-0-p-{number}-0"], cost)
    for number in unready:
        scene.set_status(f"a-0-p-{number}-1", unready_status())
    planned = scene.plan()
    assert instances(pods_deleted(planned)) == {f"p-{number}" for number in gone}
    services = {each.service.metadata.name for each in actions(planned) if isinstance(each, DeleteService)}
    assert services == {f"a-0-p-{number}-0" for number in gone}


@pytest.mark.covers("MS-66", "MS-71")
def test_role_replica_that_comes_back_must_keep_its_service() -> None:
    before = serving(role("p", 1, 1), by_role=True)
    after = serving(role("p", 1, 1, image="new"), by_role=True)
    scene = Scene(after, stored=[before, after]).has_group(0, of=before)
    assert in_words(scene.plan()) == ["delete pod a-0-p-0-0", "delete pod a-0-p-0-1"]
    scene.terminate("a-0-p-0")
    assert in_words(scene.plan()) == []
    scene.lose("a-0-p-0")
    assert in_words(scene.plan()) == ["create pod a-0-p-0-0", "create pod a-0-p-0-1"]


@pytest.mark.covers("MS-240")
def test_replica_on_its_way_out_must_count_for_scaling_down() -> None:
    scene = Scene(serving(role("p", 2))).has_group(0).has_instance("a-0", "p", 2).terminate("a-0-p-2")
    assert pods_deleted(scene.plan()) == set()


@pytest.mark.covers("MS-239", "MS-270")
def test_protected_role_replicas_must_be_scaled_down_last() -> None:
    scene = Scene(serving(role("p", 3, partition=3), by_role=True))
    for number in range(5):
        scene.has_instance("a-0", "p", number)
        scene.pods[f"a-0-p-{number}-0"] = costing(scene.pods[f"a-0-p-{number}-0"], 100 * number)
    assert instances(pods_deleted(scene.plan())) == {"p-3", "p-4"}


@pytest.mark.covers("MS-299", "MS-420")
def test_role_must_scale_to_nothing_and_back() -> None:
    none = serving(role("p"), role("q", 0), by_role=True)
    scene = Scene(none).has_group(0).has_instance("a-0", "q", 0)
    assert pods_deleted(scene.plan()) == {"a-0-q-0-0"}
    scene.lose("a-0-q")
    assert isinstance(scene.reported().decision, Done)
    scene.serving = replace(serving(role("p"), role("q", 1), by_role=True), status=scene.serving.status)
    assert pods_created(scene.plan()) == {"a-0-q-0-0"}


# Repair


@pytest.mark.covers("MS-59", "MS-246", "R07")
@pytest.mark.parametrize("lost", ["a-0-p-0-0", "a-0-p-0-2"])
def test_missing_pod_must_come_back_alone(lost: str) -> None:
    scene = Scene(serving(role("p", 1, 2))).has_group(0).lose(lost)
    assert in_words(scene.plan()) == [f"create pod {lost}"]


@pytest.mark.covers("MS-67", "MS-86")
def test_instance_must_wait_until_its_old_pods_are_gone() -> None:
    scene = Scene(serving(role("p", 2, 1))).has_group(0).terminate("a-0-p-0-1")
    assert pods_deleted(scene.plan()) == {"a-0-p-0-0"}
    assert pods_created(scene.plan()) == set()
    scene.terminate("a-0-p-0")
    scene.services.pop("a-0-p-0-0")
    decision = scene.reported().decision
    assert isinstance(decision, Blocked)
    assert "p-0 is being deleted" in decision.reasons[0]


@pytest.mark.covers("MS-401", "R08")
def test_policy_none_must_wait_for_the_name_of_the_dying_pod_only() -> None:
    scene = (
        Scene(serving(role("p", 1, 2), recovery="None")).has_group(0).terminate("a-0-p-0-1").lose("a-0-p-0-2")
    )
    planned = scene.plan()
    assert in_words(planned) == ["create pod a-0-p-0-2"]
    scene.has_group(0).terminate("a-0-p-0-1")
    decision = scene.reported().decision
    assert isinstance(decision, Blocked)
    assert decision.reasons == ("a-0-p-0-1 is still terminating",)


@pytest.mark.covers("MS-58", "MS-404")
def test_instance_of_lost_history_must_have_its_gaps_filled_and_nothing_cut() -> None:
    wide, narrow = serving(role("p", 1, 3)), serving(role("p", 1, 1, image="two"), partition=1)
    scene = Scene(narrow).has_group(0, of=wide)
    assert actions(scene.plan()) == ()
    scene.lose("a-0-p-0-2")
    assert in_words(scene.plan()) == ["create pod a-0-p-0-2"]
    scene.services.clear()
    assert "create Service a-0-p-0-0" in in_words(scene.plan())


@pytest.mark.covers("MS-32", "MS-58")
def test_single_pod_of_lost_history_must_get_no_service() -> None:
    scene = Scene(serving(role("p", 1, 1, image="two"), partition=1)).has_group(0, of=serving(role("p")))
    assert actions(scene.plan()) == ()


def test_repair_of_a_huge_instance_must_be_bounded() -> None:
    scene = Scene(serving(role("p", 1, 2**31 - 2))).has_group(0, only=[])
    small = Scene(serving(role("p"))).has_group(0).pods["a-0-p-0-0"]
    labels = replace(small.metadata.labels, revision=scene.desired.revision.name, role_template_hash="x")
    scene.pods["a-0-p-0-0"] = with_meta(small, labels=labels)
    planned = scene.plan()
    assert len(pods_created(planned)) == MAX_PODS_PER_PASS
    assert planned.status.available_replicas == 0


def test_pod_that_its_instance_has_no_place_for_must_go() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    scene.pods["a-0-p-0-7"] = with_meta(scene.pods["a-0-p-0-1"], name="a-0-p-0-7", uid="x")
    planned = scene.plan()
    assert in_words(planned) == ["delete pod a-0-p-0-7"]
    assert planned.status.available_replicas == 0


# Services


@pytest.mark.covers("MS-89", "MS-281", "R13")
def test_missing_service_must_come_back_and_touch_no_pod() -> None:
    scene = Scene(serving(role("p", 2, 1))).has_group(0)
    del scene.services["a-0-p-1-0"]
    planned = scene.plan()
    assert in_words(planned) == ["create Service a-0-p-1-0"]
    assert planned.status.available_replicas == 1


@pytest.mark.covers("MS-285", "R13")
def test_no_service_must_be_made_for_what_is_on_its_way_out_or_has_no_workers() -> None:
    scene = Scene(serving(role("p", 2, 1), role("q"))).has_group(0).terminate("a-0-p-0")
    scene.services.clear()
    assert in_words(scene.plan()) == ["create Service a-0-p-1-0"]
    scene.terminate("a-0")
    assert in_words(scene.plan()) == []
    gone = Scene(serving(role("p", 1, 1), replicas=0)).has_group(0).lose("a-0")
    assert in_words(gone.plan()) == ["delete Service a-0-p-0-0"]


@pytest.mark.covers("MS-442")
def test_service_that_nobody_needs_must_go() -> None:
    scene = Scene(serving(role("p", 1, 1), role("q"))).has_group(0)
    extra = scene.services["a-0-p-0-0"]
    labels = replace(extra.metadata.labels, role="q", role_id="q-0")
    metadata = replace(extra.metadata, name="a-0-q-0-0", labels=labels)
    scene.services["a-0-q-0-0"] = replace(extra, metadata=metadata)
    assert in_words(scene.plan()) == ["delete Service a-0-q-0-0"]


@pytest.mark.covers("R13")
def test_changed_selector_must_be_repaired() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    service = scene.services["a-0-p-0-0"]
    scene.services["a-0-p-0-0"] = replace(service, spec=replace(service.spec, selector={"x": "y"}))
    (only,) = actions(scene.plan())
    assert isinstance(only, RepairService)
    assert only.service.metadata.name == "a-0-p-0-0"


@pytest.mark.covers("R13")
def test_service_name_of_a_stranger_must_be_reported_and_not_touched() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    service = scene.services["a-0-p-0-0"]
    owner = replace(service.metadata.owner_references[0], kind="Other", uid="x")
    metadata = replace(service.metadata, owner_references=(owner,))
    scene.services["a-0-p-0-0"] = replace(service, metadata=metadata)
    planned = scene.plan()
    assert actions(planned) == ()
    assert isinstance(planned.decision, Blocked)
    assert planned.problems == (("NameTaken", "Service a-0-p-0-0 belongs to Other a (x)"),)


@pytest.mark.covers("MS-245", "R05")
def test_pod_name_of_a_stranger_must_keep_its_instance_from_being_made() -> None:
    scene = Scene(serving(role("p", 2, 1)))
    scene.has_group(0)
    pod = scene.pods["a-0-p-1-1"]
    owner = replace(pod.metadata.owner_references[0], kind="Other", uid="x")
    stranger = with_meta(pod, owner_references=(owner,))
    scene.lose("a-0-p-1")
    scene.pods["a-0-p-1-1"] = stranger
    scene.services.pop("a-0-p-1-0")
    planned = scene.plan()
    assert actions(planned) == ()
    assert planned.problems[0][0] == "NameTaken"


# Roles that roll by themselves


OLD = serving(role("p", 4, 1), role("q", 2), by_role=True)


def rolling(max_unavailable: Any = 1, **fields: Any) -> Scene:
    after = serving(
        role("p", 4, 1, image="two", maxUnavailable=max_unavailable, **fields), role("q", 2), by_role=True
    )
    scene = Scene(after, stored=[OLD, after]).has_group(0, of=OLD)
    return scene.reports(current_revision=scene.revision(OLD).name)


def rolled(scene: Scene) -> set[str]:
    return instances(pods_deleted(scene.plan()))


@pytest.mark.covers("MS-71", "MS-73", "MS-261", "MS-263", "MS-267")
@pytest.mark.parametrize(
    ("max_unavailable", "expected"),
    [
        (1, {"p-3"}),
        (2, {"p-2", "p-3"}),
        ("50%", {"p-2", "p-3"}),
        (None, {"p-0", "p-1", "p-2", "p-3"}),
        ("invalid", set()),
        (0, {"p-3"}),
    ],
)
def test_outdated_replicas_must_go_from_the_highest_within_the_roles_budget(
    max_unavailable: Any, expected: set[str]
) -> None:
    assert rolled(rolling(max_unavailable)) == expected


@pytest.mark.covers("MS-73", "MS-261", "R01")
def test_outdated_replicas_that_are_not_running_must_go_first() -> None:
    scene = rolling(2).set_status("a-0-p-1", unready_status()).set_status("a-0-p-3", unready_status())
    assert rolled(scene) == {"p-1", "p-3"}


@pytest.mark.covers("MS-261", "MS-268")
def test_new_replicas_that_are_not_running_must_use_the_budget_and_stay() -> None:
    scene = rolling(2).lose("a-0-p-3").has_instance("a-0", "p", 3)
    scene.set_status("a-0-p-3", unready_status())
    assert rolled(scene) == {"p-2"}
    scene.terminate("a-0-p-2")
    assert rolled(scene) == set()
    decision = scene.plan().decision
    assert "a-0: replicas of p wait for their turn" in str(decision)


@pytest.mark.covers("MS-76", "MS-265", "MS-269")
def test_protected_replicas_must_stay_and_come_back_as_they_were() -> None:
    scene = rolling(4, partition=2)
    assert rolled(scene) == {"p-2", "p-3"}
    scene.lose("a-0-p-0").lose("a-0-p-3")
    made = {each.instance: each.revision for each in actions(scene.plan()) if isinstance(each, CreatePod)}
    assert made == {0: scene.revision(OLD).name, 3: scene.desired.revision.name}


@pytest.mark.covers("MS-76")
def test_protection_must_not_bring_back_what_was_left_long_ago() -> None:
    # The old revision is still stored, since q has its label; everything is at the present one.
    scene = rolling(1, partition=1).lose("a-0-p")
    for number in range(4):
        scene.has_instance("a-0", "p", number)
    scene.reports(current_revision=scene.desired.revision.name)
    scene.lose("a-0-p-0")
    assert {each.revision for each in actions(scene.plan()) if isinstance(each, CreatePod)} == {
        scene.desired.revision.name
    }


@pytest.mark.covers("MS-76")
def test_protected_role_that_history_does_not_know_must_be_made_from_the_spec() -> None:
    after = serving(role("r", 1, partition=1), by_role=True)
    scene = Scene(after, stored=[OLD, after]).reports(current_revision="")
    scene.reports(current_revision=scene.revision(OLD).name)
    assert {each.revision for each in actions(scene.plan()) if isinstance(each, CreatePod)} == {
        scene.desired.revision.name
    }


@pytest.mark.covers("MS-74", "MS-262")
def test_roles_removed_and_added_in_one_edit_must_change_at_once() -> None:
    after = serving(role("p", 4, 1), role("r", 1), by_role=True)
    scene = Scene(after, stored=[OLD, after]).has_group(0, of=OLD).terminate("a-0-q-1")
    assert pods_deleted(scene.plan()) == {"a-0-q-0-0"}
    assert pods_created(scene.plan()) == {"a-0-r-0-0"}


@pytest.mark.covers("MS-46", "MS-72", "MS-264")
def test_replica_without_a_hash_and_history_must_be_left_alone() -> None:
    after = serving(role("p", 2, image="two"), by_role=True)
    before = serving(role("p", 2), by_role=True)
    for stored, expected in (([after], set()), ([before, after], {"p-1"})):
        scene = Scene(after, stored=stored).has_group(0, of=before)
        for name, pod in list(scene.pods.items()):
            labels = replace(pod.metadata.labels, role_template_hash="")
            scene.pods[name] = with_meta(pod, labels=labels)
        assert rolled(scene) == expected


@pytest.mark.covers("MS-63")
def test_alien_role_must_stay_while_its_group_is_protected() -> None:
    before = serving(role("p"))
    after = serving(role("p"), role("q", 1, 1), partition=1)
    scene = Scene(after, stored=[before, after]).has_group(0, of=before)
    scene.has_instance("a-0", "q", 0)
    planned = scene.plan()
    assert actions(planned) == ()
    assert planned.states["a-0", "q-0"] is State.RUNNING
    assert pods_deleted(scene.terminate("a-0-q-0-1").plan()) == {"a-0-q-0-0"}


# Failures


@pytest.mark.covers("MS-83", "MS-86", "MS-276", "MS-277")
@pytest.mark.parametrize("status", [failed_status(), crashed_status(), crashed_status(at=None, restarts=5)])
def test_failed_pod_must_take_its_instance_alone(status: Any) -> None:
    scene = Scene(serving(role("p", 2, 1))).has_group(0).set_status("a-0-p-1-1", status)
    assert pods_deleted(scene.plan()) == {"a-0-p-1-0", "a-0-p-1-1"}


@pytest.mark.covers("MS-273", "MS-276")
def test_failed_pod_must_be_left_for_its_grace() -> None:
    spec = serving(role("p"), template={"restartGracePeriodSeconds": 60})
    scene = Scene(spec).has_group(0).set_status("a-0", crashed_status(at=NOW - 59))
    planned = scene.reported()
    assert actions(planned) == ()
    assert planned.recheck_at == NOW + 1
    assert isinstance(planned.decision, Blocked)
    scene.now += 1
    assert pods_deleted(scene.plan()) == {"a-0-p-0-0"}


@pytest.mark.covers("R08", "MS-402")
def test_policy_none_must_leave_failed_pods() -> None:
    scene = Scene(serving(role("p"), recovery="None")).has_group(0).set_status("a-0", failed_status())
    planned = scene.reported()
    assert isinstance(planned.decision, Blocked)
    assert "Evicted: node is full" in planned.decision.reasons[0]


@pytest.mark.covers("MS-263")
def test_rollout_that_may_not_move_must_be_blocked_and_say_so_although_all_is_available() -> None:
    before = serving(role("p", 2, maxUnavailable="some"), by_role=True)
    after = serving(role("p", 2, image="new", maxUnavailable="some"), by_role=True)
    scene = Scene(after, stored=[before, after]).has_group(0, of=before)
    assert scene.reported().decision == Blocked(("a-0: replicas of p wait for their turn",))


@pytest.mark.covers("MS-72")
def test_protected_replicas_must_not_be_said_to_wait() -> None:
    before = serving(role("p", 2, partition=2), by_role=True)
    after = serving(role("p", 2, image="new", partition=2), by_role=True)
    scene = Scene(after, stored=[before, after]).has_group(0, of=before)
    assert scene.reported().decision == Done()
