"""The store, fed by real caches with scripted changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.api.decode import Unreadable
from isthmus.api.meta import Key, OwnerReference
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing, Status
from isthmus.api.podgroups import POD_GROUPS, PodGroup
from isthmus.api.pods import (
    CONTROLLER_REVISIONS,
    SERVING_PODS,
    SERVING_SERVICES,
    ControllerRevision,
    ServingPod,
    ServingService,
)
from isthmus.modelserving.plan.model import Act, Group, State
from isthmus.modelserving.plan.reconcile import plan
from isthmus.modelserving.store import Caches, Store
from isthmus.modelserving.view import Refused, View
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics
from tests.support.serving import (
    NOW,
    Scene,
    crashed_status,
    pods_created,
    ready_status,
    revision_object,
    role,
    serving,
    terminating,
    unready_status,
    with_meta,
)

A: Key = ("default", "a")
MANY = 10**6


class Bench:
    """A store over real caches, and what it enqueued."""

    def __init__(self, *, leading: bool = True) -> None:
        self.caches = Caches(
            servings=Cache(MODEL_SERVINGS, metrics=Metrics()),
            pods=Cache(SERVING_PODS, metrics=Metrics()),
            services=Cache(SERVING_SERVICES, metrics=Metrics()),
            revisions=Cache(CONTROLLER_REVISIONS, metrics=Metrics()),
            pod_groups=Cache(POD_GROUPS, metrics=Metrics()),
        )
        self.queued: list[Key] = []
        self.store = Store(self.caches, self.queued.append)
        self.store.remember(leading)
        self._version = 1

    def put(
        self, *objects: ModelServing | ServingPod | ServingService | ControllerRevision | PodGroup
    ) -> None:
        """Each object was added or modified."""
        for obj in objects:
            self._cache(obj).upsert("", self._newer(obj))

    def remove(self, *objects: Any) -> None:
        """Each object is gone."""
        for obj in objects:
            self._cache(obj).remove("", self._newer(obj))

    def scene(self, scene: Scene) -> Scene:
        """Everything in a scene was added."""
        self.put(*scene.revisions, scene.serving, *scene.services.values(), *scene.pods.values())
        return scene

    def view(self, now: float = NOW) -> View:
        found = self.store.view(A, now)
        assert isinstance(found, View)
        return found

    def group(self, number: int = 0, now: float = NOW) -> Group:
        return self.view(now).groups[number]

    def broken(self, now: float = NOW) -> list[str]:
        """IDs of instances that must go."""
        return sorted(each.id for each in self.group(now=now).each() if each.broken)

    def settle(self) -> None:
        """A pass was planned and carried out on the present view."""
        self.store.settle(A, self.view().groups)

    def queued_now(self) -> set[Key]:
        """Keys that were enqueued since the last call."""
        found = set(self.queued)
        self.queued.clear()
        return found

    def _cache(self, obj: object) -> Cache[Any]:
        if isinstance(obj, ModelServing):
            return self.caches.servings
        if isinstance(obj, ServingPod):
            return self.caches.pods
        if isinstance(obj, PodGroup):
            return self.caches.pod_groups
        return self.caches.services if isinstance(obj, ServingService) else self.caches.revisions

    def _newer(self, obj: Any) -> Any:
        self._version += 1
        return replace(obj, metadata=replace(obj.metadata, resource_version=str(self._version)))


TWO = serving(role("p", 2, 1), role("q"))


def whole(of: ModelServing = TWO, *, leading: bool = True) -> tuple[Bench, Scene]:
    """A store that shows one complete group."""
    bench = Bench(leading=leading)
    return bench, bench.scene(Scene(of).has_group(0))


# Views


def test_view_must_show_what_the_caches_hold() -> None:
    bench, scene = whole()
    view = bench.view()
    assert view.desired == replace(scene.desired, status=Status())
    assert {name: set(each.live) for name, each in view.groups[0].instances["p"].items()} == {
        0: {0, 1},
        1: {0, 1},
    }
    assert view.groups[0].state is State.RUNNING
    assert set(view.groups[0].services) == set(scene.services)
    assert [each.metadata.name for each in view.revisions.owned] == [scene.revisions[0].metadata.name]
    assert bench.store.keys() == [A]
    assert bench.queued_now() == {A}


def test_unknown_serving_must_have_no_view() -> None:
    bench = Bench()
    bench.put(*Scene(TWO).has_group(0).pods.values())
    assert bench.store.view(A, NOW) is None
    assert bench.queued_now() == {A}


def test_incomplete_caches_must_be_named_until_they_are_listed() -> None:
    bench = Bench()
    assert bench.store.incomplete() == (
        "modelservings.workload.serving.volcano.sh",
        "pods",
        "services",
        "controllerrevisions.apps",
    )
    for cache in bench.caches.all:
        cache.replace("", [], "1")
    assert bench.store.incomplete() == ()


def test_unreadable_spec_must_be_refused_in_that_object_alone() -> None:
    bench, _ = whole()
    bench.put(replace(TWO, spec=Unreadable(reason="spec.replicas: no")))
    refused = bench.store.view(A, NOW)
    assert isinstance(refused, Refused)
    assert refused.problem == "spec.replicas: no"
    assert bench.store.snapshot() == []
    bench.put(replace(serving(role("p", -1)), metadata=replace(TWO.metadata, generation=2)))
    refused = bench.store.view(A, NOW)
    assert isinstance(refused, Refused)
    assert "replicas" in refused.problem


def test_spec_that_can_be_acted_on_must_still_tell_its_problems() -> None:
    bench = Bench()
    bench.put(serving(role("p", workerReplicas=2)))
    assert "workerTemplate" in "".join(bench.view().problems)


def test_view_must_resolve_a_spec_once_and_take_each_status() -> None:
    bench, _ = whole()
    first = bench.view()
    again = bench.view()
    assert again.desired is first.desired
    assert again.groups[0] is first.groups[0]
    bench.put(replace(TWO, status=Status(replicas=5)))
    third = bench.view()
    assert third.desired.status.replicas == 5
    assert third.desired.revision is first.desired.revision
    assert third.groups[0] is first.groups[0]
    changed = replace(serving(role("p", 3), generation=2), status=Status(replicas=5))
    bench.put(changed)
    assert bench.view().desired.spec.template.roles[0].replicas == 3
    assert bench.view().groups[0] is not first.groups[0]


def test_group_must_be_looked_at_again_when_its_grace_ends() -> None:
    bench, scene = whole(serving(role("p"), template={"restartGracePeriodSeconds": 30}))
    bench.put(replace(scene.pods["a-0-p-0-0"], status=crashed_status(at=NOW)))
    assert bench.group(now=NOW + 29) is bench.group(now=NOW + 1)
    assert bench.broken(now=NOW + 30) == ["p-0"]


@pytest.mark.covers("MS-440")
def test_stored_revisions_must_change_what_is_wanted() -> None:
    bench = Bench()
    bench.put(TWO)
    assert bench.view().desired.stored == {}
    stored = revision_object(TWO, 4)
    bench.put(stored)
    assert bench.view().desired.revision.number == 4
    bench.queued_now()
    bench.remove(stored)
    assert bench.view().desired.stored == {}
    assert bench.queued_now() == {A}


@pytest.mark.covers("R05", "MS-416", "MS-440")
def test_revisions_must_be_sorted_by_whose_they_are() -> None:
    bench = Bench()
    bench.put(TWO)

    def owned_by(name: str, **owner: Any) -> ControllerRevision:
        of = serving(role("p", image=name))
        fields: dict[str, Any] = {
            "api_version": "v1",
            "kind": "ModelServing",
            "name": "a",
            "uid": "u",
            **owner,
        }
        reference = OwnerReference(**fields, controller=True)
        obj = revision_object(of)
        metadata = replace(obj.metadata, name=f"a-{name}", owner_references=(reference,))
        return replace(obj, metadata=metadata)

    orphan = owned_by("orphan")
    dying = owned_by("dying", uid="uid-a")
    bench.put(
        owned_by("mine", uid="uid-a"),
        owned_by("former"),
        owned_by("other", kind="Other"),
        replace(orphan, metadata=replace(orphan.metadata, owner_references=())),
        replace(dying, metadata=replace(dying.metadata, deletion_timestamp="2026-11-30T22:00:00Z")),
    )
    revisions = bench.view().revisions
    assert [each.metadata.name for each in revisions.owned] == ["a-mine"]
    assert [each.metadata.name for each in revisions.orphans] == ["a-orphan"]
    assert revisions.taken == {
        "a-dying": "is still terminating",
        "a-former": "was made for a former ModelServing of this name, and is being collected",
    }


@pytest.mark.covers("MS-440")
def test_revision_name_of_a_stranger_must_be_passed_over() -> None:
    bench = Bench()
    bench.put(TWO)
    name = bench.view().desired.revision.name
    stranger = OwnerReference(api_version="v1", kind="Other", name="x", uid="x", controller=True)
    obj = revision_object(TWO)
    bench.put(replace(obj, metadata=replace(obj.metadata, owner_references=(stranger,))))
    view = bench.view()
    assert view.desired.revision.name != name
    assert isinstance(plan(view.desired, view.groups, view.revisions, NOW).decision, Act)


# Being fed


def test_deleted_objects_must_leave_the_view() -> None:
    bench, scene = whole(leading=False)
    bench.remove(scene.pods["a-0-q-0-0"], scene.services["a-0-p-0-0"])
    assert "q" not in bench.group().instances
    assert set(bench.group().services) == {"a-0-p-1-0"}
    bench.remove(*scene.pods.values())
    bench.remove(*scene.services.values())
    assert bench.view().groups == {}


@pytest.mark.covers("R19")
def test_objects_that_vanished_in_a_gap_must_leave_the_view() -> None:
    bench, scene = whole(leading=False)
    kept = [pod for pod in scene.pods.values() if pod.metadata.labels.role == "p"]
    bench.caches.pods.replace("", kept, str(MANY))
    bench.caches.services.replace("", [], str(MANY))
    assert set(bench.group().instances) == {"p"}
    assert bench.group().services == {}


@pytest.mark.covers("R05")
def test_replaced_pod_must_be_another_one() -> None:
    bench, scene = whole(leading=False)
    successor = with_meta(scene.pods["a-0-q-0-0"], uid="second")
    bench.put(successor)
    (instance,) = bench.group().instances["q"].values()
    assert instance.live[0].metadata.uid == "second"
    assert len(bench.group().instances["p"]) == 2


def test_relabelled_objects_must_move_and_wake_both_servings() -> None:
    bench, scene = whole(leading=False)
    pod, service = scene.pods["a-0-q-0-0"], scene.services["a-0-p-0-0"]
    stored = scene.revisions[0]
    bench.queued_now()
    bench.put(with_meta(pod, labels=replace(pod.metadata.labels, name="b")))
    assert bench.queued_now() == {A, ("default", "b")}
    bench.put(
        replace(
            service, metadata=replace(service.metadata, labels=replace(service.metadata.labels, name="b"))
        )
    )
    assert bench.queued_now() == {A, ("default", "b")}
    bench.put(
        replace(stored, metadata=replace(stored.metadata, labels=replace(stored.metadata.labels, name="b")))
    )
    assert bench.queued_now() == {A, ("default", "b")}
    assert "q" not in bench.group().instances
    assert bench.view().desired.stored == {}
    bench.put(pod)
    assert "q" in bench.group().instances
    assert bench.store.sizes()["servings"] == 2


def test_labels_that_name_no_group_of_ours_must_stand_for_nothing() -> None:
    bench, scene = whole(leading=False)
    for name, group in (("x", "a-00"), ("y", "b-1"), ("z", "a"), ("w", "")):
        pod = scene.pods["a-0-q-0-0"]
        bench.put(with_meta(pod, name=name, uid=name, labels=replace(pod.metadata.labels, group_name=group)))
    assert set(bench.view().groups) == {0}


@pytest.mark.covers("R05", "MS-44")
def test_successor_of_the_same_name_must_own_nothing_of_the_old_one() -> None:
    bench, _ = whole()
    bench.put(serving(role("p", 2, 1), role("q"), uid="second"))
    view = bench.view()
    assert not view.groups[0].exists
    assert view.desired.stored == {}
    assert view.desired.uid == "second"


@pytest.mark.covers("MS-49", "MS-428")
def test_each_change_of_an_object_must_wake_its_serving() -> None:
    bench, scene = whole()
    pod, service = scene.pods["a-0-p-0-0"], scene.services["a-0-p-0-0"]
    steps: tuple[tuple[Callable[[Any], None], Any], ...] = (
        (bench.put, replace(TWO, status=Status(replicas=1))),
        (bench.put, pod),
        (bench.put, service),
        (bench.put, scene.revisions[0]),
        (bench.remove, pod),
        (bench.remove, service),
        (bench.remove, scene.revisions[0]),
        (bench.remove, TWO),
        (bench.put, TWO),
    )
    for change, obj in steps:
        bench.queued_now()
        change(obj)
        assert bench.queued_now() == {A}


@pytest.mark.covers("MS-44", "R29")
def test_deleted_serving_must_take_what_was_computed_for_it() -> None:
    bench, scene = whole()
    bench.view()
    entry = bench.store._entries[A]
    assert entry.groups
    bench.remove(scene.serving)
    assert (entry.groups, entry.base, entry.desired) == ({}, None, None)
    assert bench.store.view(A, NOW) is None


@pytest.mark.covers("MS-44", "R29")
def test_nothing_must_be_held_once_everything_is_gone() -> None:
    bench, scene = whole()
    bench.store.intend(A, scene.pods["a-0-q-0-0"], with_group=False)
    bench.settle()
    bench.remove(scene.serving)
    assert bench.store.sizes() == {"servings": 1, "groups": 1, "remembered": 0}
    bench.remove(*scene.pods.values())
    bench.remove(*scene.services.values())
    bench.remove(*scene.revisions)
    assert bench.store.sizes() == {"servings": 0, "groups": 0, "remembered": 0}
    bench.put(TWO)
    bench.view()
    bench.remove(TWO)
    assert bench.store.sizes()["servings"] == 0


# Memory


@pytest.mark.covers("MS-86", "R07")
def test_vanished_pod_must_take_its_instance() -> None:
    bench, scene = whole()
    bench.remove(scene.pods["a-0-p-0-0"])
    assert bench.broken() == ["p-0"]
    bench.settle()
    assert bench.broken() == ["p-0"]
    bench.remove(scene.pods["a-0-p-0-1"])
    assert bench.broken() == []
    bench.settle()
    assert bench.store.sizes()["remembered"] == 0


@pytest.mark.covers("R16", "MS-414")
def test_vanished_pod_must_not_take_its_successors() -> None:
    bench, scene = whole()
    bench.remove(scene.pods["a-0-p-0-0"], scene.pods["a-0-p-0-1"])
    for index in (0, 1):
        bench.put(with_meta(scene.pods[f"a-0-p-0-{index}"], uid=f"second-{index}"))
    assert bench.broken() == []


@pytest.mark.covers("R07")
def test_replica_that_does_not_lead_must_remember_nothing() -> None:
    bench, scene = whole(leading=False)
    bench.remove(scene.pods["a-0-p-0-0"])
    bench.put(replace(scene.pods["a-0-p-1-0"], status=ready_status(restarts=3)))
    bench.put(replace(scene.pods["a-0-q-0-0"], status=crashed_status()))
    bench.settle()
    assert bench.broken() == ["q-0"]
    assert bench.store.sizes()["remembered"] == 0


def test_store_that_was_never_told_to_lead_must_remember_nothing() -> None:
    bench, scene = whole(leading=False)
    fresh = Store(bench.caches, lambda _: None)
    again = Scene(TWO).has_group(1)
    bench.put(*again.pods.values())
    bench.remove(again.pods["a-1-p-0-0"], scene.pods["a-0-p-0-0"])
    assert fresh.sizes()["remembered"] == 0


def test_former_leader_must_forget_everything() -> None:
    bench, scene = whole()
    bench.remove(scene.pods["a-0-p-0-0"])
    assert bench.store.sizes()["remembered"] == 1
    bench.store.remember(False)
    assert bench.broken() == []
    assert bench.store.sizes()["remembered"] == 0


@pytest.mark.covers("MS-88")
def test_pods_that_we_deleted_must_not_be_missed() -> None:
    bench, scene = whole()
    pod = scene.pods["a-0-p-0-0"]
    bench.store.intend(A, pod, with_group=False)
    bench.remove(pod)
    assert bench.broken() == []
    assert bench.store.sizes()["remembered"] == 0


@pytest.mark.covers("MS-278")
def test_refused_deletion_must_be_forgotten() -> None:
    bench, scene = whole()
    pod = scene.pods["a-0-p-0-0"]
    bench.store.intend(A, pod, with_group=True)
    bench.store.repent(A, pod)
    assert bench.store.sizes()["remembered"] == 0
    bench.remove(pod)
    assert bench.broken() == ["p-0"]
    bench.store.repent(("default", "unknown"), pod)


@pytest.mark.covers("MS-278", "R16")
def test_refused_deletion_must_not_make_the_loss_forgotten_for_which_it_was() -> None:
    bench, scene = whole()
    bench.remove(scene.pods["a-0-p-0-0"])
    left = scene.pods["a-0-p-0-1"]
    bench.store.intend(A, left, with_group=False)
    bench.store.repent(A, left)
    bench.settle()
    assert bench.broken() == ["p-0"]


@pytest.mark.covers("R29")
def test_intention_about_what_is_gone_already_must_leave_no_trace() -> None:
    bench, scene = whole()
    pod = scene.pods["a-0-q-0-0"]
    bench.put(with_meta(pod, uid="second"))
    bench.store.intend(A, pod, with_group=False)
    bench.store.intend(("default", "unknown"), pod, with_group=False)
    bench.remove(with_meta(pod, uid="second"))
    bench.store.intend(A, pod, with_group=True)
    assert bench.group().each()
    bench.settle()
    assert bench.store.sizes()["remembered"] == 0


@pytest.mark.covers("MS-64", "MS-85")
def test_group_that_we_began_to_delete_must_go_to_the_end() -> None:
    bench, scene = whole()
    pod = scene.pods["a-0-q-0-0"]
    bench.store.intend(A, pod, with_group=True)
    bench.put(terminating(pod))
    assert bench.group().state is State.DELETING
    bench, scene = whole()
    bench.store.intend(A, pod := scene.pods["a-0-q-0-0"], with_group=False)
    bench.put(terminating(pod))
    assert bench.group().state is not State.DELETING


@pytest.mark.covers("MS-85", "R07")
def test_loss_under_serving_group_recreate_must_take_the_group() -> None:
    bench, scene = whole(replace_policy("ServingGroupRecreate"))
    bench.remove(scene.pods["a-0-q-0-0"])
    assert bench.group().broken == "a pod of role q was deleted"
    bench.settle()
    assert bench.group().state is State.DELETING


def replace_policy(policy: str) -> ModelServing:
    return serving(role("p", 2, 1), role("q"), recovery=policy)


@pytest.mark.covers("MS-401", "R08")
def test_loss_under_policy_none_must_be_forgotten_with_the_next_plan() -> None:
    bench, scene = whole(replace_policy("None"))
    bench.remove(scene.pods["a-0-p-0-0"])
    assert bench.broken() == []
    bench.settle()
    assert bench.store.sizes()["remembered"] == 0
    # A change of the policy later must not avenge it.
    bench.put(replace(TWO, metadata=replace(TWO.metadata, generation=2)))
    assert bench.broken() == []


def test_loss_that_came_while_a_plan_was_carried_out_must_outlive_it() -> None:
    bench, scene = whole()
    groups = bench.view().groups
    bench.remove(scene.pods["a-0-p-0-0"])
    bench.store.settle(A, groups)
    assert bench.broken() == ["p-0"]
    bench, scene = whole(replace_policy("ServingGroupRecreate"))
    groups = bench.view().groups
    bench.remove(scene.pods["a-0-q-0-0"])
    bench.store.settle(A, groups)
    assert bench.group().broken
    bench, scene = whole(replace_policy("None"))
    bench.remove(scene.pods["a-0-p-0-0"])
    groups = bench.view().groups
    bench.remove(scene.pods["a-0-p-1-0"])
    bench.store.settle(A, groups)
    assert bench.store.sizes()["remembered"] == 1


def test_settling_what_is_unknown_must_do_nothing() -> None:
    bench, scene = whole()
    groups = bench.view().groups
    bench.store.settle(("default", "unknown"), groups)
    bench.store.settle(A, {0: replace(groups[0])})
    assert bench.store.sizes()["remembered"] == 0
    bench.remove(scene.pods["a-0-p-0-0"])
    bench.view()
    bench.store.settle(A, groups)  # an older view than the last one
    assert bench.broken() == ["p-0"]


@pytest.mark.covers("R05")
def test_pods_of_a_former_serving_must_be_no_loss() -> None:
    bench, scene = whole()
    bench.put(serving(role("p", 2, 1), role("q"), uid="second"))
    bench.remove(scene.pods["a-0-p-0-0"])
    bench.remove(with_meta(scene.pods["a-0-p-0-1"], owner_references=()))
    assert not bench.group().exists


@pytest.mark.covers("MS-416")
def test_vanished_orphan_must_be_no_loss() -> None:
    bench, scene = whole()
    orphan = with_meta(scene.pods["a-0-p-0-0"], owner_references=())
    bench.put(orphan)
    bench.remove(orphan)
    assert bench.broken() == []


@pytest.mark.covers("MS-418")
@pytest.mark.parametrize("before_leading", [True, False])
def test_pod_that_was_ready_after_its_restarts_must_not_be_failed_by_them(before_leading: bool) -> None:
    bench, scene = whole(leading=not before_leading)
    pod = scene.pods["a-0-q-0-0"]
    bench.put(replace(pod, status=ready_status(restarts=2)))
    bench.store.remember(True)
    restarted = crashed_status(at=None, since=NOW - 1, restarts=2)
    bench.put(replace(pod, status=restarted))
    assert bench.broken() == []
    bench.put(replace(pod, status=crashed_status(at=None, since=NOW - 1, restarts=3)))
    assert bench.broken() == ["q-0"]


@pytest.mark.covers("MS-83", "MS-431")
def test_first_failure_must_be_remembered_until_the_pod_is_well_or_gone() -> None:
    bench, scene = whole(serving(role("p", 2), role("q"), template={"restartGracePeriodSeconds": 30}))
    pod = scene.pods["a-0-q-0-0"]
    bench.put(replace(pod, status=crashed_status(at=None)))
    bench.settle()
    assert bench.group(now=NOW + 10).recheck_at == NOW + 30
    bench.put(replace(pod, status=crashed_status(at=NOW + 25, restarts=2)))
    assert bench.group(now=NOW + 26).recheck_at == NOW + 30
    bench.put(replace(pod, status=unready_status()))
    bench.settle()
    assert bench.store.sizes()["remembered"] == 0
    bench.put(replace(pod, status=crashed_status(at=None)))
    bench.settle()
    bench.remove(pod)
    bench.settle()
    assert bench.store.sizes()["remembered"] == 0


# Snapshots


def test_snapshot_must_hold_what_was_there_and_never_change() -> None:
    bench, scene = whole()
    bench.put(serving(role("p"), name="empty", uid="other"))
    bench.view()
    parts = {part.serving.metadata.name: part for part in bench.store.snapshot()}
    assert parts["empty"].facts == {}
    assert parts["a"].desired() == replace(bench.view().desired, status=Status())
    facts = parts["a"].facts["a-0"]
    bench.remove(*scene.pods.values())
    assert len(facts.pods) == len(scene.pods)
    assert parts["a"].facts["a-0"] is facts


@pytest.mark.covers("R04", "MS-47")
def test_snapshot_must_know_a_spec_that_no_pass_has_seen() -> None:
    bench, scene = whole()
    (part,) = bench.store.snapshot()
    assert part.known is None
    assert part.desired() == scene.desired
    bench.view()
    (part,) = bench.store.snapshot()
    assert part.known is not None, "resolving is dear, and was done for the view already"
    assert part.desired() is part.known
    changed = serving(role("p", 2, image="two"), generation=2)
    bench.put(changed)
    (part,) = bench.store.snapshot()
    assert part.desired().revision.roles["p"].raw == Scene(changed).desired.revision.roles["p"].raw
    stored = revision_object(changed, 9)
    bench.view()
    bench.put(stored)
    (part,) = bench.store.snapshot()
    assert part.desired().revision.number == 9


def test_plan_on_a_view_must_see_the_loss_of_a_whole_group() -> None:
    bench, scene = whole()
    bench.remove(*scene.pods.values())
    view = bench.view()
    planned = plan(view.desired, view.groups, view.revisions, NOW)
    assert pods_created(planned) == set(scene.pods)
