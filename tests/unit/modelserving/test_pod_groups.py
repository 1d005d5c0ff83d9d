"""PodGroups outside of the plan: how the store holds them, what is sent about them, what answers mean, and
what a pass does where their API goes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.meta import Raw
from isthmus.api.podgroups import PodGroup, PodGroupSpec
from isthmus.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, ServerError
from isthmus.modelserving.controller import API_RETRY_S
from isthmus.modelserving.executor import ApiGone, NameTaken
from isthmus.modelserving.plan import objects
from isthmus.modelserving.plan.gang import FULL_OFFER, in_cluster, pod_group_spec
from isthmus.modelserving.plan.model import (
    NO_OFFER,
    Adopt,
    CreatePod,
    CreatePodGroup,
    DeletePodGroup,
    Offer,
    RepairPodGroup,
)
from isthmus.runtime.controller import Again
from tests.support.serving import Scene, role, serving, with_meta
from tests.unit.modelserving.test_controller import Rig as ControllerRig
from tests.unit.modelserving.test_executor import Rig as ExecutorRig
from tests.unit.modelserving.test_store import A, Bench

CREATE = "create podgroups a-0"
ASKING = serving(role("p"), template={"gangPolicy": {}})
SPEC = PodGroupSpec(min_member=1)


def pod_group(scene: Scene, name: str = "a-0", **metadata: Any) -> PodGroup:
    """The PodGroup that a scene's ModelServing asks for."""
    wanted = in_cluster(scene.desired, scene.serving, FULL_OFFER)
    raw = objects.pod_group(wanted, name, pod_group_spec(wanted))
    raw["metadata"] |= {"uid": "pg-1", "resourceVersion": "1"}
    found = msgspec.json.decode(msgspec.json.encode(raw), type=PodGroup)
    return replace(found, metadata=replace(found.metadata, **metadata))


# The store


@pytest.mark.covers("MS-96", "MS-282")
def test_pod_group_must_belong_to_its_group_and_wake_its_serving() -> None:
    bench = Bench()
    scene = bench.scene(Scene(ASKING).has_group(0))
    bench.queued_now()
    bench.put(pod_group(scene))
    assert bench.queued_now() == {A}
    found = bench.group().pod_group
    assert found is not None
    assert found.metadata.uid == "pg-1"
    bench.remove(found)
    assert bench.queued_now() == {A}
    assert bench.group().pod_group is None
    assert bench.group().exists


@pytest.mark.covers("MS-282")
def test_pod_group_of_another_serving_must_wake_that_one_and_not_be_ours() -> None:
    bench = Bench()
    scene = bench.scene(Scene(ASKING).has_group(0))
    bench.queued_now()
    (owner,) = pod_group(scene).metadata.owner_references
    foreign = pod_group(scene, owner_references=(replace(owner, uid="former"),))
    bench.put(foreign)
    group = bench.group()
    assert group.pod_group is None
    assert "former" in group.taken["a-0/podgroup"].why
    labels = replace(foreign.metadata.labels, name="b", group_name="b-0")
    bench.queued_now()
    bench.put(replace(foreign, metadata=replace(foreign.metadata, labels=labels)))
    assert bench.queued_now() == {A, ("default", "b")}
    assert not bench.group().taken


def test_status_of_a_pod_group_must_wake_nobody() -> None:
    bench = Bench()
    scene = bench.scene(Scene(ASKING).has_group(0))
    bench.put(pod_group(scene))
    bench.queued_now()
    bench.put(pod_group(scene))
    assert bench.queued_now() == set()
    bench.put(pod_group(scene, deletion_timestamp="2026-01-01T00:00:00Z"))
    assert bench.queued_now() == {A}


def test_pod_group_alone_must_make_no_group_exist_and_be_forgotten_with_it() -> None:
    bench = Bench()
    scene = bench.scene(Scene(ASKING))
    bench.put(pod_group(scene, "a-0"))
    assert not bench.group().exists
    assert bench.store.sizes()["groups"] == 1
    bench.remove(pod_group(scene, "a-0"))
    assert bench.store.sizes()["groups"] == 0


@pytest.mark.covers("R11")
def test_dump_must_not_wait_for_pod_groups() -> None:
    bench = Bench()
    assert "podgroups.scheduling.volcano.sh" not in bench.store.incomplete()


# Requests


@pytest.mark.covers("MS-91", "MS-96", "MS-424")
async def test_requests_must_name_the_uid_and_not_the_version() -> None:
    rig = ExecutorRig()
    held = pod_group(rig.scene)
    assert await rig.do(CreatePodGroup("a-1", SPEC), RepairPodGroup(held, SPEC)) == []
    assert rig.client.sent["create podgroups a-1"]["metadata"]["name"] == "a-1"
    patch = rig.client.sent["patch podgroups a-0"]
    assert patch["metadata"] == {"uid": "pg-1"}
    assert patch["spec"]["minMember"] == 1
    assert await rig.do(DeletePodGroup(held, "x")) == []
    assert rig.client.sent["delete podgroups a-0"] == {"uid": "pg-1", "resource_version": None}


async def test_repair_that_changes_nothing_must_raise_doubts_about_the_fields() -> None:
    rig = ExecutorRig()
    await rig.do(RepairPodGroup(pod_group(rig.scene), SPEC))
    assert rig.gang.doubts == 0
    await rig.do(RepairPodGroup(pod_group(rig.scene, resource_version=rig.client.version), SPEC))
    assert rig.gang.doubts == 1


async def test_adopted_pod_group_must_not_block_the_deletion_of_its_owner() -> None:
    rig = ExecutorRig()
    await rig.do(Adopt("podgroups", "a-0", "pg-1", "7"))
    (owner,) = rig.client.sent["patch podgroups a-0"]["metadata"]["ownerReferences"]
    assert owner["controller"]
    assert "blockOwnerDeletion" not in owner


@pytest.mark.covers("MS-434")
async def test_next_pass_must_wait_to_see_pod_groups_that_were_made() -> None:
    rig = ExecutorRig()
    await rig.do(CreatePodGroup("a-1", SPEC))
    assert not rig.satisfied()
    rig.bench.caches.pod_groups.progress("", "500")
    assert rig.satisfied()


@pytest.mark.covers("R11")
async def test_next_pass_must_not_wait_for_an_api_that_has_gone() -> None:
    rig = ExecutorRig()
    await rig.do(CreatePodGroup("a-1", SPEC))
    rig.bench.caches.pod_groups.mark_absent()
    assert rig.satisfied()


@pytest.mark.covers("MS-55", "MS-96", "MS-97")
@pytest.mark.parametrize("error", [ServerError(500), Forbidden(403), Conflict(409)])
async def test_pods_must_not_be_made_before_their_pod_group(error: ApiError) -> None:
    rig = ExecutorRig()
    rig.client.errors[CREATE] = error
    actions = (CreatePodGroup("a-0", SPEC), CreatePodGroup("a-1", SPEC), rig.create(5), other(rig.create(5)))
    assert await rig.do(*actions) == [error]
    assert [text for text in rig.client.begun if "pods" in text] == ["create pods a-1-p-5-0"]
    assert rig.gang.told == 0


def other(create: CreatePod) -> CreatePod:
    """The same pod of another group."""
    return replace(create, group="a-1")


@pytest.mark.covers("R11", "MS-99")
@pytest.mark.parametrize(
    "error",
    [
        NotFound(404, "NotFound"),
        ApiError(405, "MethodNotAllowed"),
        Forbidden(403, "Forbidden", "create not allowed while custom resource definition is terminating"),
    ],
)
async def test_pods_must_not_wait_for_an_api_that_goes(error: ApiError) -> None:
    rig = ExecutorRig()
    rig.client.errors[CREATE] = error
    (failed,) = await rig.do(CreatePodGroup("a-0", SPEC), rig.create(5))
    assert isinstance(failed, ApiGone)
    assert rig.client.begun == [CREATE, "create pods a-0-p-5-0"]
    assert rig.gang.told == 1


@pytest.mark.covers("MS-97")
async def test_pod_group_that_is_there_must_count_as_made_where_it_is_ours() -> None:
    rig = ExecutorRig()
    rig.client.errors[CREATE] = AlreadyExists(409, "AlreadyExists")
    rig.client.found["a-0"] = pod_group(rig.scene)
    assert await rig.do(CreatePodGroup("a-0", SPEC), rig.create(5)) == []
    rig.client.found["a-0"] = pod_group(rig.scene, owner_references=())
    (error,) = await rig.do(CreatePodGroup("a-0", SPEC), rig.create(6))
    assert isinstance(error, NameTaken)
    assert "create pods a-0-p-6-0" not in rig.client.begun


# A pass


def rig_with(offer: Offer, *, template: Raw | None = None) -> ControllerRig:
    rig = ControllerRig(serving(role("p"), template=template))
    rig.gang.given = offer
    return rig


@pytest.mark.covers("MS-30", "MS-96")
async def test_pass_must_make_pod_groups_and_annotate_pods() -> None:
    rig = rig_with(FULL_OFFER)
    await rig.go()
    assert rig.client.begun[:2] == [CREATE, "create pods a-0-p-0-0"]
    annotations = rig.client.sent["create pods a-0-p-0-0"]["metadata"]["annotations"]
    assert annotations == {"scheduling.k8s.io/group-name": "a-0", "volcano.sh/task-spec": "p-0"}


@pytest.mark.covers("MS-289", "MS-428")
async def test_queue_that_changes_must_reach_the_pod_group_without_a_new_generation() -> None:
    rig = rig_with(FULL_OFFER)
    rig.bench.put(pod_group(rig.scene))
    for given, queue in ({"scheduling.volcano.sh/queue-name": "gold"}, "gold"), ({}, None):
        metadata = replace(rig.scene.serving.metadata, annotations=given)
        rig.bench.put(replace(rig.scene.serving, metadata=metadata))
        assert rig.bench.queued_now() == {A}
        held = rig.bench.caches.pod_groups.get(("default", "a-0"))
        assert held is not None
        await rig.go()
        if queue:
            assert rig.client.sent["patch podgroups a-0"]["spec"]["queue"] == queue
            rig.bench.put(replace(held, spec=replace(held.spec, queue=queue)))
        else:
            assert rig.client.sent["patch podgroups a-0"]["spec"]["queue"] is None


@pytest.mark.covers("R11")
async def test_api_that_goes_during_a_pass_must_be_no_failure_and_be_looked_for() -> None:
    rig = rig_with(FULL_OFFER)
    rig.client.errors[CREATE] = NotFound(404, "NotFound")
    assert await rig.go() == Again(API_RETRY_S)
    assert not [text for text in rig.recorder.news() if text.startswith("Warning")]
    assert rig.gang.told == 1


@pytest.mark.covers("R11", "MS-422")
async def test_missing_api_must_be_told_once_and_untold_when_it_comes() -> None:
    rig = rig_with(NO_OFFER, template={"gangPolicy": {}})
    await rig.go()
    rig.arrive()
    await rig.go()
    (warning,) = [text for text in rig.recorder.news() if text.startswith("Warning")]
    assert "PodGroupApiMissing" in warning
    rig.gang.given = FULL_OFFER
    rig.bench.put(with_meta(rig.scene.has_group(0).pods["a-0-p-0-0"]))
    await rig.go()
    assert CREATE in rig.client.begun
    assert "PodGroupApiMissing" not in str(rig.status)


@pytest.mark.covers("R11", "MS-97", "MS-292")
async def test_unknown_pod_groups_must_be_looked_at_again() -> None:
    rig = rig_with(Offer(served=None))
    assert await rig.go() == Again(API_RETRY_S)
    assert rig.client.begun[0] == "create pods a-0-p-0-0"
