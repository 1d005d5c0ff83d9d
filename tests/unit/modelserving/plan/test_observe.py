"""What the objects of one group say: states, revisions, what is broken and what is not ours."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from isthmus.api.meta import OwnerReference
from isthmus.modelserving.plan.model import (
    NOTHING_REMEMBERED,
    Facts,
    Group,
    Instance,
    Memory,
    Obstacle,
    State,
)
from isthmus.modelserving.plan.observe import observe
from tests.support.serving import (
    NOW,
    Scene,
    costing,
    crashed_status,
    failed_status,
    ready_status,
    role,
    serving,
    terminating,
    unready_status,
    with_meta,
)

TWO = role("p", 2, 1)


def group(scene: Scene, number: int = 0) -> Group:
    return scene.groups()[number]


def instance(scene: Scene, id_: str = "p-0") -> Instance:
    return next(each for each in group(scene).each() if each.id == id_)


def test_whole_ready_group_must_be_running() -> None:
    scene = Scene(serving(TWO, role("q"))).has_group(0)
    found = group(scene)
    assert (found.state, found.serving, found.broken) == (State.RUNNING, True, "")
    assert {each.state for each in found.each()} == {State.RUNNING}
    assert found.revision == scene.desired.revision.name
    assert set(found.services) == {"a-0-p-0-0", "a-0-p-1-0"}


@pytest.mark.covers("MS-40")
def test_group_that_no_object_tells_of_must_not_exist() -> None:
    found = observe("a-7", Facts(), Scene(serving(TWO)).desired, NOTHING_REMEMBERED, NOW)
    assert (found.exists, found.each(), found.revision, found.serving) == (False, [], "", False)


@pytest.mark.covers("MS-41", "MS-280", "MS-403")
@pytest.mark.parametrize("victim", ["a-0-p-0-0", "a-0-p-0-1"])
def test_any_unready_pod_must_make_its_instance_creating(victim: str) -> None:
    scene = Scene(serving(TWO)).has_group(0).set_status(victim, unready_status())
    assert instance(scene).state is State.CREATING
    assert instance(scene, "p-1").state is State.RUNNING
    assert (group(scene).state, group(scene).serving) == (State.CREATING, True)


@pytest.mark.covers("MS-41")
def test_ready_pod_that_does_not_run_must_not_serve() -> None:
    scene = Scene(serving(role())).has_group(0, status=replace(ready_status(), phase="Succeeded"))
    assert group(scene).state is State.CREATING


@pytest.mark.covers("MS-42", "MS-43")
def test_group_that_lacks_an_instance_must_be_scaling_while_others_run() -> None:
    scene = Scene(serving(TWO)).has_group(0, only=["p-0"])
    assert (group(scene).state, group(scene).serving) == (State.SCALING, True)
    scene.set_status("a-0", unready_status())
    assert (group(scene).state, group(scene).serving) == (State.CREATING, False)


@pytest.mark.covers("MS-42", "MS-299")
def test_role_without_replicas_must_not_be_missed() -> None:
    scene = Scene(serving(role("p"), role("q", 0))).has_group(0)
    assert (group(scene).state, group(scene).serving) == (State.RUNNING, True)
    assert group(scene).revision == scene.desired.revision.name


@pytest.mark.covers("MS-444", "MS-445")
def test_group_whose_pods_are_all_dying_must_be_deleting_whatever_they_say() -> None:
    scene = Scene(serving(TWO)).has_group(0).terminate("a-0")
    assert group(scene).state is State.DELETING
    assert {each.state for each in group(scene).each()} == {State.DELETING}
    assert not group(scene).serving


@pytest.mark.covers("MS-84", "MS-86", "MS-445")
def test_dying_pod_must_break_its_instance_alone() -> None:
    scene = Scene(serving(TWO)).has_group(0).terminate("a-0-p-0-1")
    assert instance(scene).broken == "pod a-0-p-0-1 is being deleted"
    assert instance(scene).state is State.DELETING
    assert instance(scene, "p-1").broken == ""
    assert group(scene).broken == ""


@pytest.mark.covers("MS-87", "MS-401")
def test_policy_none_must_leave_the_rest_of_an_instance_unless_we_began() -> None:
    scene = Scene(serving(TWO, recovery="None")).has_group(0).terminate("a-0-p-0-1")
    assert (instance(scene).broken, instance(scene).state) == ("", State.CREATING)
    uid = scene.pods["a-0-p-0-1"].metadata.uid
    scene.memory["a-0"] = Memory(intended=frozenset({uid}))
    assert instance(scene).state is State.DELETING


@pytest.mark.covers("MS-85")
@pytest.mark.parametrize("cause", ["dying", "failed", "lost"])
def test_serving_group_recreate_must_break_the_whole_group(cause: str) -> None:
    scene = Scene(serving(TWO, role("q"), recovery="ServingGroupRecreate")).has_group(0)
    if cause == "dying":
        scene.terminate("a-0-p-0-1")
    elif cause == "failed":
        scene.set_status("a-0-p-0-1", failed_status())
    else:
        scene.lose("a-0-p-0-1")
        left = frozenset(pod.metadata.uid for pod in scene.pods.values())
        scene.memory["a-0"] = Memory(bereaved={"p": left})
    assert group(scene).broken
    assert group(scene).state is State.DELETING


@pytest.mark.covers("MS-88")
@pytest.mark.parametrize("cause", ["dying", "lost", "failed"])
def test_serving_group_recreate_must_not_miss_what_was_scaled_away(cause: str) -> None:
    one = serving(role("p", 1, 1), role("q"), recovery="ServingGroupRecreate")
    scene = Scene(one).has_group(0).has_instance("a-0", "p", 1)
    if cause == "dying":
        scene.terminate("a-0-p-1")
    elif cause == "failed":
        scene.set_status("a-0-p-1-1", failed_status())
    else:
        scene.lose("a-0-p-1-1")
        left = frozenset(pod.metadata.uid for pod in scene.pods.values())
        scene.memory["a-0"] = Memory(bereaved={"p": left})
    assert group(scene).broken == ""
    assert instance(scene, "p-0").state is State.RUNNING


@pytest.mark.covers("MS-88", "R16")
def test_our_own_deletions_must_not_break_a_group() -> None:
    scene = Scene(serving(TWO, recovery="ServingGroupRecreate")).has_group(0).terminate("a-0-p-0")
    dying = frozenset(pod.metadata.uid for pod in scene.pods.values() if pod.metadata.terminating)
    scene.memory["a-0"] = Memory(intended=dying)
    assert group(scene).broken == ""
    scene.memory["a-0"] = Memory(intended=dying, condemned=dying)
    assert group(scene).broken == "is being deleted"


@pytest.mark.covers("R16", "MS-84", "MS-414")
def test_loss_must_act_on_the_uids_of_its_generation_only() -> None:
    scene = Scene(serving(TWO)).has_group(0)
    scene.memory["a-0"] = Memory(lost={"p-0": frozenset({"of-the-old-generation"})})
    assert instance(scene).broken == ""
    uid = scene.pods["a-0-p-0-1"].metadata.uid
    scene.memory["a-0"] = Memory(lost={"p-0": frozenset({uid})})
    assert instance(scene).broken == "a pod of it was deleted"
    assert instance(scene, "p-1").broken == ""


@pytest.mark.covers("R16", "MS-85")
def test_loss_of_a_former_generation_must_not_break_the_group_that_is_being_made() -> None:
    scene = Scene(serving(TWO, recovery="ServingGroupRecreate")).has_group(0, only=["p-0"])
    scene.memory["a-0"] = Memory(bereaved={"p": frozenset({"of-the-old-generation"})})
    assert group(scene).broken == ""
    uid = scene.pods["a-0-p-0-0"].metadata.uid
    scene.memory["a-0"] = Memory(bereaved={"p": frozenset({uid})})
    assert group(scene).broken == "a pod of role p was deleted"


@pytest.mark.covers("MS-83", "MS-431")
def test_grace_must_run_from_the_time_of_the_failure() -> None:
    scene = Scene(serving(role(), template={"restartGracePeriodSeconds": 30})).has_group(0)
    scene.set_status("a-0", crashed_status(at=NOW - 10))
    assert (instance(scene).broken, group(scene).recheck_at) == ("", NOW + 20)
    scene.now = NOW + 20
    assert (instance(scene).broken, group(scene).recheck_at) == ("pod a-0-p-0-0 failed", None)


@pytest.mark.covers("MS-83", "MS-431")
def test_grace_must_not_begin_again_with_each_crash_nor_wait_for_a_clock_that_is_ahead() -> None:
    scene = Scene(serving(role(), template={"restartGracePeriodSeconds": 30})).has_group(0)
    scene.set_status("a-0", crashed_status(at=NOW + 3600, since=NOW))
    assert group(scene).recheck_at == NOW + 30
    uid = scene.pods["a-0-p-0-0"].metadata.uid
    scene.memory["a-0"] = Memory(failing={uid: NOW - 29})
    assert group(scene).recheck_at == NOW + 1


@pytest.mark.covers("MS-83")
def test_failure_without_a_time_must_have_its_grace_from_when_it_was_first_seen() -> None:
    scene = Scene(serving(role(), template={"restartGracePeriodSeconds": 30})).has_group(0)
    scene.set_status("a-0", crashed_status(at=None))
    assert group(scene).recheck_at == NOW + 30
    assert group(scene).failures[0].at == NOW


@pytest.mark.covers("MS-5")
def test_negative_grace_must_be_none_at_all() -> None:
    scene = Scene(serving(role(), template={"restartGracePeriodSeconds": -5})).has_group(0)
    scene.set_status("a-0", crashed_status(at=NOW))
    assert instance(scene).broken


@pytest.mark.covers("MS-402", "R08")
def test_policy_none_must_not_count_the_time_of_failures() -> None:
    scene = Scene(serving(role(), recovery="None")).has_group(0).set_status("a-0", failed_status())
    assert (instance(scene).broken, group(scene).recheck_at) == ("", None)
    assert group(scene).failures[0].reason == "Evicted"


# Revisions


OLD, NEW = serving(role("p", 2), role("q")), serving(role("p", 2, image="two"), role("q"))


def both() -> Scene:
    return Scene(NEW, stored=[OLD, NEW])


@pytest.mark.covers("MS-408")
def test_group_must_have_the_oldest_revision_among_its_pods() -> None:
    scene = both().has_group(0, of=OLD).has_instance("a-0", "p", 1)
    assert group(scene).revision == scene.revision(OLD).name


@pytest.mark.covers("MS-75")
def test_group_must_have_the_present_revision_once_every_template_is() -> None:
    scene = both().has_group(0).lose("a-0-q")
    scene.has_instance("a-0", "q", 0, of=replace(scene.desired, revision=scene.revision(OLD)))
    assert group(scene).revision == scene.desired.revision.name


@pytest.mark.covers("MS-407")
def test_dying_instance_must_still_hold_its_group_back() -> None:
    scene = both().has_group(0)
    scene.has_instance("a-0", "p", 1, of=replace(scene.desired, revision=scene.revision(OLD)))
    scene.terminate("a-0-p-1")
    assert group(scene).revision == scene.revision(OLD).name


@pytest.mark.covers("MS-404")
def test_group_that_lacks_a_new_role_must_be_outdated() -> None:
    more = serving(role("p", 2), role("q"), role("r"))
    scene = Scene(more, stored=[OLD, more]).has_group(0, of=OLD)
    assert group(scene).revision == scene.revision(OLD).name
    none_yet = serving(role("p", 2), role("q"), role("r", 0))
    scene = Scene(none_yet, stored=[OLD, none_yet]).has_group(0, of=OLD)
    assert group(scene).revision == scene.desired.revision.name


@pytest.mark.covers("MS-76", "MS-102")
def test_revision_must_not_go_back_to_the_label_of_a_role_that_never_changed() -> None:
    third = serving(role("p", 2, image="three"), role("q"))
    scene = Scene(third, stored=[OLD, NEW, third]).has_group(0, of=NEW)
    scene.lose("a-0-q").has_instance("a-0", "q", 0, of=replace(scene.desired, revision=scene.revision(OLD)))
    assert group(scene).revision == scene.revision(NEW).name


@pytest.mark.covers("MS-58", "MS-72", "MS-264")
def test_lost_history_must_be_outdated_by_hash_and_unknown_without_one() -> None:
    scene = Scene(NEW, stored=[NEW]).has_group(0, of=OLD)
    found = instance(scene)
    assert (found.template, found.state) == (None, State.RUNNING)
    assert group(scene).revision == scene.revision(OLD).name
    for name, pod in list(scene.pods.items()):
        labels = replace(pod.metadata.labels, role_template_hash="")
        scene.pods[name] = with_meta(pod, labels=labels)
    assert group(scene).revision == scene.revision(OLD).name


@pytest.mark.covers("MS-72", "MS-255")
def test_present_hash_must_count_also_under_the_label_of_a_lost_revision() -> None:
    scene = Scene(serving(role("p"))).has_group(0)
    pod = scene.pods["a-0-p-0-0"]
    scene.pods["a-0-p-0-0"] = with_meta(pod, labels=replace(pod.metadata.labels, revision="lost"))
    assert instance(scene).template is not None
    assert group(scene).revision == scene.desired.revision.name


def test_instance_of_lost_history_must_run_as_long_as_it_has_no_gap() -> None:
    wide, narrow = serving(role("p", 1, 2)), serving(role("p", 1, 1, image="two"))
    scene = Scene(narrow, stored=[narrow]).has_group(0, of=wide)
    assert instance(scene).state is State.RUNNING
    scene.lose("a-0-p-0-1")
    assert instance(scene).state is State.CREATING


@pytest.mark.covers("MS-440")
def test_pods_with_another_controllers_hash_must_be_current() -> None:
    scene = Scene(serving(role())).has_group(0)
    pod = scene.pods["a-0-p-0-0"]
    scene.pods["a-0-p-0-0"] = with_meta(pod, labels=replace(pod.metadata.labels, role_template_hash="56789"))
    assert (group(scene).revision, group(scene).state) == (scene.desired.revision.name, State.RUNNING)


# What is not ours


@pytest.mark.covers("R05", "MS-245")
def test_objects_of_a_former_serving_must_be_in_the_way_and_nothing_else() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0, of=serving(role("p", 1, 1), uid="former"))
    found = group(scene)
    assert not found.exists
    former = Obstacle("was made for a former ModelServing a, and is being collected")
    assert found.taken == dict.fromkeys(("a-0-p-0-0", "a-0-p-0-1", "a-0-p-0-0/service"), former)
    scene.terminate("a-0")
    assert group(scene).taken["a-0-p-0-1"] == Obstacle("is still terminating")


@pytest.mark.covers("R13")
def test_objects_of_strangers_must_be_lasting_obstacles() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    stranger = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs", uid="x", controller=True)
    for name, pod in list(scene.pods.items()):
        scene.pods[name] = with_meta(pod, owner_references=(stranger,))
    service = scene.services["a-0-p-0-0"]
    metadata = replace(service.metadata, owner_references=(stranger,))
    scene.services["a-0-p-0-0"] = replace(service, metadata=metadata)
    assert set(group(scene).taken.values()) == {Obstacle("belongs to ReplicaSet rs (x)", lasting=True)}
    assert not group(scene).exists


@pytest.mark.covers("MS-416")
def test_orphans_must_be_adopted_only_by_the_right_name() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    for name, pod in list(scene.pods.items()):
        scene.pods[name] = with_meta(pod, owner_references=())
    scene.pods["stray"] = with_meta(scene.pods["a-0-p-0-1"], name="stray")
    scene.services["stray"] = replace(
        scene.services["a-0-p-0-0"],
        metadata=replace(scene.services["a-0-p-0-0"].metadata, name="stray", owner_references=()),
    )
    found = group(scene)
    assert {each.metadata.name for each in found.orphans} == {"a-0-p-0-0", "a-0-p-0-1"}
    assert not found.taken["a-0-p-0-0"].lasting
    assert (
        found.taken["stray"]
        == found.taken["stray/service"]
        == Obstacle("exists and belongs to nobody", lasting=True)
    )
    scene.terminate("a-0-p-0-0")
    assert {each.metadata.name for each in group(scene).orphans} == {"a-0-p-0-1"}


@pytest.mark.parametrize(
    "labels", [{"role_id": "p-1"}, {"role": "q"}, {"role_id": "p"}, {"role": "", "role_id": ""}]
)
def test_pod_whose_labels_were_changed_must_not_stand_for_another(labels: dict[str, str]) -> None:
    scene = Scene(serving(TWO)).has_group(0)
    pod = scene.pods["a-0-p-0-1"]
    scene.pods["a-0-p-0-1"] = with_meta(pod, labels=replace(pod.metadata.labels, **labels))
    assert group(scene).taken["a-0-p-0-1"] == Obstacle("has labels that are not its own", lasting=True)
    assert [each.id for each in group(scene).each()] == ["p-0", "p-1"]
    assert set(instance(scene, "p-1").live) == {0, 1}


@pytest.mark.covers("R13", "MS-278")
def test_terminating_service_must_be_in_the_way() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    service = scene.services["a-0-p-0-0"]
    metadata = replace(service.metadata, deletion_timestamp="2026-11-30T22:00:00Z")
    scene.services["a-0-p-0-0"] = replace(service, metadata=metadata)
    assert group(scene).services == {}
    assert group(scene).taken == {"a-0-p-0-0/service": Obstacle("is still terminating")}


@pytest.mark.covers("MS-279")
def test_only_labels_must_say_what_a_pod_belongs_to() -> None:
    scene = Scene(serving(role("p-0", 2, 1))).has_group(0).terminate("a-0-p-0-1")
    assert {each.id: each.state for each in group(scene).each()} == {
        "p-0-0": State.RUNNING,
        "p-0-1": State.DELETING,
    }


@pytest.mark.covers("MS-57", "MS-234", "MS-235", "MS-236")
def test_cost_must_be_the_sum_of_what_pods_say() -> None:
    scene = Scene(serving(TWO)).has_group(0)
    for name, cost in (("a-0-p-0-0", 100), ("a-0-p-0-1", -30), ("a-0-p-1-0", "invalid")):
        scene.pods[name] = costing(scene.pods[name], cost)
    assert (instance(scene).cost, instance(scene, "p-1").cost, group(scene).cost) == (70, 0, 70)


def test_pods_of_an_instance_must_speak_in_an_order_that_does_not_depend_on_how_they_came() -> None:
    scene = both().has_group(0)
    entry, other = scene.pods["a-0-p-0-0"], scene.revision(OLD)
    old = with_meta(
        entry, labels=replace(entry.metadata.labels, revision=other.name), name="a-0-p-0-1", uid="z"
    )
    scene.pods["a-0-p-0-1"] = old
    forwards = instance(scene).revision
    scene.pods = dict(reversed(scene.pods.items()))
    assert instance(scene).revision == forwards == scene.desired.revision.name
    scene.pods["a-0-p-0-0"] = terminating(entry)
    assert instance(scene).revision == other.name


def test_service_with_a_workers_name_must_not_be_taken_for_the_instances() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    service = scene.services.pop("a-0-p-0-0")
    meta = replace(service.metadata, name="a-0-p-0-1")
    scene.services["a-0-p-0-1"] = replace(service, metadata=meta)
    assert group(scene).services == {}
