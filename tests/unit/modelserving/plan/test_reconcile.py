"""The whole plan: revisions, adoption, order, and what kind of decision it is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from isthmus.api.times import format_time
from isthmus.modelserving.plan.model import (
    Act,
    Adopt,
    Blocked,
    CreatePod,
    DeletePod,
    Done,
    DropRevision,
    PersistRevision,
)
from isthmus.modelserving.plan.reconcile import Revisions, phase, plan
from tests.support.serving import (
    NOW,
    Scene,
    actions,
    crashed_status,
    in_words,
    revision_object,
    role,
    serving,
    unready_status,
    with_meta,
)

OLD, NEW = serving(role("p"), replicas=2), serving(role("p", image="two"), replicas=2)


@pytest.mark.covers("MS-54", "MS-247", "MS-406", "MS-409")
@pytest.mark.parametrize("partition", [0, 5])
def test_revision_must_be_stored_first_in_every_plan_that_sees_it_unstored(partition: int) -> None:
    scene = Scene(serving(role("p"), replicas=1, partition=partition), stored=[])
    assert isinstance(actions(scene.plan())[0], PersistRevision)
    scene.has_group(0)
    assert in_words(scene.plan()) == [f"store revision {scene.desired.revision.name}"]


def test_actions_must_come_in_phases() -> None:
    scene = Scene(serving(role("p", 2, 1), role("q"), replicas=2), stored=[OLD]).has_group(0, of=OLD)
    scene.reports(current_revision=scene.revision(OLD).name)
    phases = [phase(each) for each in actions(scene.plan())]
    assert phases == sorted(phases)
    assert set(phases) == {0, 1, 3} or set(phases) == {0, 1, 2, 3}


def test_decision_must_be_done_only_when_all_is_as_wanted() -> None:
    scene = Scene(serving(role("p"))).has_group(0)
    assert isinstance(scene.plan().decision, Done)
    scene.set_status("a-0", unready_status())
    decision = scene.plan().decision
    since = format_time(NOW - 600)
    assert decision == Blocked((f"Groups [0] are not ready: pod a-0-p-0-0 is not ready since {since}",))
    scene.lose("a-0")
    assert isinstance(scene.plan().decision, Act)


@pytest.mark.covers("MS-49")
def test_recheck_must_be_the_earliest_end_of_a_grace() -> None:
    spec = serving(role("p"), replicas=2, template={"restartGracePeriodSeconds": 60})
    scene = Scene(spec).has_groups(0, 1)
    assert scene.plan().recheck_at is None
    scene.set_status("a-0", crashed_status(at=NOW - 10)).set_status("a-1", crashed_status(at=NOW - 30))
    assert scene.plan().recheck_at == NOW + 30


# Dropping


def dropped(scene: Scene) -> list[str]:
    return [each.name for each in actions(scene.plan()) if isinstance(each, DropRevision)]


@pytest.mark.covers("MS-78", "MS-222")
def test_revisions_that_nothing_uses_must_go_once_the_status_says_so() -> None:
    versions = [serving(role("p", image=f"v{number}"), replicas=2) for number in range(5)]
    scene = Scene(versions[4], stored=versions).has_group(0, of=versions[0]).has_group(1)
    names = [f"a-{scene.revision(each).name}" for each in versions]
    assert dropped(scene) == []
    scene.reports(current_revision=scene.revision(versions[0]).name)
    assert dropped(scene) == names[1:4]


@pytest.mark.covers("MS-405", "MS-406")
def test_revision_must_stay_while_a_dying_pod_or_a_new_one_has_it() -> None:
    third = serving(role("p", image="three"), replicas=2)
    scene = Scene(third, stored=[OLD, NEW, third]).has_group(0, of=NEW).has_group(1)
    scene.reports(current_revision=scene.revision(NEW).name).terminate("a-0")
    assert dropped(scene) == [f"a-{scene.revision(OLD).name}"]
    protected = serving(role("p", image="three"), replicas=1, partition=1)
    scene = Scene(protected, stored=[OLD, NEW]).reports(current_revision="lost")
    assert dropped(scene) == []  # the present one is not stored yet


@pytest.mark.covers("MS-75", "MS-78")
def test_revision_must_stay_while_a_role_that_did_not_change_has_its_label() -> None:
    before = serving(role("p"), role("q"), by_role=True)
    after = serving(role("p", image="two"), role("q"), by_role=True)
    scene = Scene(after, stored=[before, after]).has_group(0).lose("a-0-q")
    scene.has_instance("a-0", "q", 0, of=replace(scene.desired, revision=scene.revision(before)))
    scene.reports(current_revision=scene.desired.revision.name)
    assert dropped(scene) == []


@pytest.mark.covers("MS-223")
def test_revision_that_is_terminating_must_not_be_dropped_again() -> None:
    scene = Scene(NEW, stored=[OLD, NEW]).has_groups(0, 1)
    scene.reports(current_revision=scene.desired.revision.name)
    assert len(dropped(scene)) == 1
    dying = scene.revisions[0]
    metadata = replace(dying.metadata, deletion_timestamp="2026-11-30T22:00:00Z")
    scene.revisions[0] = replace(dying, metadata=metadata)
    assert dropped(scene) == []


# Adoption


@pytest.mark.covers("MS-416")
def test_orphans_must_be_adopted_and_cost_nothing() -> None:
    scene = Scene(serving(role("p", 1, 1))).has_group(0)
    for name, pod in list(scene.pods.items()):
        scene.pods[name] = with_meta(pod, owner_references=())
    service = scene.services["a-0-p-0-0"]
    scene.services["a-0-p-0-0"] = replace(service, metadata=replace(service.metadata, owner_references=()))
    planned = scene.plan()
    assert in_words(planned) == ["adopt pods a-0-p-0-0", "adopt pods a-0-p-0-1", "adopt services a-0-p-0-0"]
    assert planned.problems == ()
    assert not any(isinstance(each, CreatePod | DeletePod) for each in actions(planned))


@pytest.mark.covers("MS-416", "MS-440")
def test_nothing_must_be_made_before_orphaned_revisions_are_read() -> None:
    scene = Scene(serving(role("p")), stored=[])
    orphan = revision_object(OLD, ownerReferences=[])
    planned = plan(scene.desired, {}, Revisions(orphans=(orphan,)), NOW)
    (only,) = actions(planned)
    assert isinstance(only, Adopt)
    assert (only.kind, only.name) == ("controllerrevisions", orphan.metadata.name)


@pytest.mark.covers("R05")
def test_revision_name_of_a_former_serving_must_be_waited_for() -> None:
    scene = Scene(serving(role("p")), stored=[])
    name = f"a-{scene.desired.revision.name}"
    planned = plan(scene.desired, {}, Revisions(taken={name: "is still terminating"}), NOW)
    assert planned.decision == Blocked((f"ControllerRevision {name} is still terminating",))
    assert planned.status.replicas == 0


@pytest.mark.covers("MS-54")
@pytest.mark.parametrize("there", [True, False])
def test_nothing_must_be_repaired_either_before_the_revision_is_stored(there: bool) -> None:
    scene = Scene(serving(role("p", 1, 1), role("q")), stored=[])
    if there:
        scene.has_group(0).lose("a-0-p-0-1").lose("a-0-q")
        scene.services.clear()
    name = f"a-{scene.desired.revision.name}"
    planned = plan(scene.desired, scene.groups(), Revisions(taken={name: "is still terminating"}), NOW)
    assert actions(planned) == ()
