"""Actions become requests: in which order, with which preconditions, and what their answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.meta import Key, OwnerReference, Resource
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.errors import IsthmusError
from isthmus.kube.client import PatchKind, Written
from isthmus.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Throttled,
    Unreachable,
    WriteRefused,
    WrongAnswer,
)
from isthmus.modelserving.executor import CONCURRENCY, Executor, NameTaken
from isthmus.modelserving.plan.model import (
    Action,
    Adopt,
    CreatePod,
    CreateService,
    DeletePod,
    DeleteService,
    DropRevision,
    PersistRevision,
    RepairService,
)
from isthmus.modelserving.plan.reconcile import phase
from isthmus.runtime.expect import Expectations
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.gang import FixedGang
from tests.support.serving import Scene, revision_object, role, serving, terminating, with_meta
from tests.unit.modelserving.test_store import MANY, A, Bench

POD, SERVICE = "a-0-p-0-0", "a-0-p-0-0"
ENDING = Forbidden(
    403, "Forbidden", "namespace is ending", causes=(("metadata.namespace", "NamespaceTerminating", "x"),)
)


class Client:
    """What of a client the executor uses. Writes down each request as `verb plural name`, when it begins and
    when it ends; `errors` are by that text, `found` are what a GET finds; `meanwhile` happens before any
    answer."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.log: list[str] = []
        self.sent: dict[str, Any] = {}
        self.errors: dict[str, BaseException] = {}
        self.found: dict[str, Any] = {}
        self.meanwhile: Callable[[], None] = lambda: None
        self.version = "500"
        self.flying = self.peak = 0

    async def create(self, resource: Resource[Any], namespace: str, body: Any) -> Written:
        decoded = msgspec.json.decode(body) if isinstance(body, bytes) else body
        assert namespace == decoded["metadata"]["namespace"] == "default"
        return await self._request("create", resource, decoded["metadata"]["name"], body)

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        body: bytes,
        *,
        kind: PatchKind,
        subresource: str = "",
    ) -> Written:
        assert (namespace, kind) == ("default", PatchKind.MERGE)
        assert subresource == ("status" if resource is MODEL_SERVINGS else "")
        return await self._request("patch", resource, name, msgspec.json.decode(body))

    async def delete(self, resource: Resource[Any], namespace: str, name: str, **preconditions: str) -> None:
        assert namespace == "default"
        await self._request("delete", resource, name, preconditions)

    async def get(self, resource: Resource[Any], namespace: str, name: str) -> Any:
        await self._request("get", resource, name, None)
        return self.found[name]

    async def _request(self, verb: str, resource: Resource[Any], name: str, sent: Any) -> Written:
        text = f"{verb} {resource.plural} {name}"
        self.begun.append(text)
        self.log.append(f"begin {text}")
        self.flying += 1
        self.peak = max(self.peak, self.flying)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            self.meanwhile()
            if text in self.errors:
                raise self.errors[text]
        finally:
            self.flying -= 1
        self.sent[text] = sent
        self.log.append(f"end {text}")
        return Written(name=name, namespace="default", uid="new", resource_version=self.version)


class Rig:
    """An executor over a fake client, and real caches and store that show one whole group."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.scene = self.bench.scene(Scene(serving(role("p", 2, 1))).has_group(0))
        self.desired = self.bench.view().desired
        self.client = Client()
        self.clock = FakeClock()
        self.expectations = Expectations(self.clock, Metrics())
        self.gang = FixedGang()
        self.executor = Executor(
            self.client,  # type: ignore[arg-type]
            self.bench.caches,
            self.bench.store,
            self.expectations,
            self.gang,  # type: ignore[arg-type]
        )

    async def do(self, *actions: Action) -> list[IsthmusError]:
        return await self.executor.carry_out(self.desired, actions)

    def satisfied(self, key: Key = A) -> bool:
        return self.expectations.satisfied(
            key, {cache.resource.name: cache for cache in self.bench.caches.all}
        )

    def pod(self, name: str = POD) -> Any:
        return self.bench.caches.pods.get(("default", name))

    def service(self) -> Any:
        return self.bench.caches.services.get(("default", SERVICE))

    def delete(self, name: str = POD, *, with_group: bool = False) -> DeletePod:
        return DeletePod(self.pod(name), "old", with_group)

    def create(self, instance: int, index: int = 0) -> CreatePod:
        revision = self.desired.revision
        return CreatePod("a-0", revision.roles["p"], revision.name, instance, index)

    def each_kind(self) -> tuple[Action, ...]:
        """One action of each kind, in the order of a plan."""
        service = self.service()
        actions: tuple[Action, ...] = (
            PersistRevision(self.desired.revision),
            Adopt("pods", "orphan", "u1", "11"),
            Adopt("services", "orphan", "u2", "12"),
            Adopt("controllerrevisions", "orphan", "u3", "13"),
            CreateService("a-0", "p", 5),
            RepairService("a-0", "p", 0, service),
            DeleteService(service, "unneeded"),
            self.delete(),
            DropRevision("a-old", "u4", "14"),
            self.create(5),
        )
        assert [*actions] == sorted(actions, key=phase)
        return actions

    @property
    def revision_name(self) -> str:
        return f"a-{self.desired.revision.name}"


# Order


@pytest.mark.covers("MS-50", "MS-54", "MS-55", "MS-442")
async def test_phases_must_follow_one_another() -> None:
    rig = Rig()
    assert await rig.do(*rig.each_kind()) == []
    phases = [
        {f"create controllerrevisions {rig.revision_name}"},
        {
            "patch pods orphan",
            "patch services orphan",
            "patch controllerrevisions orphan",
            "create services a-0-p-5-0",
        },
        {f"patch services {SERVICE}", f"delete services {SERVICE}", f"delete pods {POD}"},
        {"delete controllerrevisions a-old", "create pods a-0-p-5-0"},
    ]
    at = 0
    for expected in phases:
        lines = rig.client.log[at : at + 2 * len(expected)]
        assert set(lines) == {f"{what} {text}" for what in ("begin", "end") for text in expected}
        at += len(lines)
    assert at == len(rig.client.log)


@pytest.mark.covers("MS-54", "MS-247", "MS-406")
@pytest.mark.parametrize("error", [ServerError(500), Forbidden(403), Unreachable("no answer")])
async def test_nothing_must_be_done_without_the_revision(error: IsthmusError) -> None:
    rig = Rig()
    first = f"create controllerrevisions {rig.revision_name}"
    rig.client.errors[first] = error
    assert await rig.do(*rig.each_kind()) == [error]
    assert rig.client.begun == [first]


@pytest.mark.covers("MS-35", "MS-54")
async def test_revision_name_that_another_has_must_stop_the_pass() -> None:
    rig = Rig()
    first = f"create controllerrevisions {rig.revision_name}"
    rig.client.errors[first] = AlreadyExists(409, "AlreadyExists")
    stranger = revision_object(rig.scene.serving, ownerReferences=[])
    rig.client.found[rig.revision_name] = stranger
    (error,) = await rig.do(*rig.each_kind())
    assert isinstance(error, NameTaken)
    assert rig.client.begun == [first, first.replace("create", "get")]


@pytest.mark.covers("MS-55", "MS-411")
async def test_failure_must_stop_neither_its_phase_nor_later_ones() -> None:
    rig = Rig()
    actions = rig.each_kind()
    errors: dict[str, BaseException] = {
        "patch pods orphan": Conflict(409),
        "create services a-0-p-5-0": ServerError(500),
        f"delete pods {POD}": Unreachable("cut"),
    }
    rig.client.errors = errors
    failed = await rig.do(*actions)
    assert set(failed) == set(errors.values())
    assert len(rig.client.begun) == len(actions)


async def test_requests_of_one_phase_must_run_at_once_and_be_bounded() -> None:
    rig = Rig()
    actions = [rig.create(number) for number in range(CONCURRENCY * 2 + 3)]
    assert await rig.do(*actions) == []
    assert rig.client.peak == CONCURRENCY
    assert len(rig.client.begun) == len(set(rig.client.begun)) == len(actions)


# Preconditions and bodies


@pytest.mark.covers("R05", "R16", "MS-415")
async def test_deletion_must_name_uid_and_version() -> None:
    rig = Rig()
    await rig.do(*rig.each_kind())
    for text, obj in (
        (f"delete pods {POD}", rig.pod()),
        (f"delete services {SERVICE}", rig.service()),
    ):
        metadata = obj.metadata
        expected = {"uid": metadata.uid, "resource_version": metadata.resource_version}
        assert rig.client.sent[text] == expected
    assert rig.client.sent["delete controllerrevisions a-old"] == {"uid": "u4", "resource_version": "14"}


@pytest.mark.covers("MS-416", "MS-28", "R05")
async def test_adoption_must_name_uid_and_version_and_make_us_the_controller() -> None:
    rig = Rig()
    await rig.do(*rig.each_kind())
    owner = {
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "name": "a",
        "uid": "uid-a",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for kind, number in (("pods", 1), ("services", 2), ("controllerrevisions", 3)):
        metadata = {"uid": f"u{number}", "resourceVersion": f"1{number}", "ownerReferences": [owner]}
        assert rig.client.sent[f"patch {kind} orphan"] == {"metadata": metadata}


@pytest.mark.covers("R13", "MS-32")
async def test_repair_must_put_back_the_selector_and_drop_what_was_added() -> None:
    rig = Rig()
    service = rig.scene.services[SERVICE]
    bent = replace(service, spec=replace(service.spec, selector={"mine": "x", "also": "y"}))
    await rig.do(RepairService("a-0", "p", 0, bent))
    sent = rig.client.sent[f"patch services {SERVICE}"]
    assert sent["metadata"] == {"uid": service.metadata.uid, "resourceVersion": "1"}
    assert sent["spec"]["selector"] == {**service.spec.selector, "mine": None, "also": None}


@pytest.mark.covers("MS-77")
async def test_stored_revision_must_follow_the_highest_number_that_is_stored() -> None:
    rig = Rig()
    old = revision_object(serving(role("p", image="old")), 7)
    rig.bench.put(old)
    rig.desired = rig.bench.view().desired
    await rig.do(PersistRevision(rig.desired.revision))
    body = rig.client.sent[f"create controllerrevisions {rig.revision_name}"]
    assert isinstance(body, bytes), "encoded as the API server would write it"
    assert msgspec.json.decode(body)["revision"] == 8
    first = Rig()
    first.desired = replace(first.desired, stored={})
    await first.do(PersistRevision(first.desired.revision))
    body = first.client.sent[f"create controllerrevisions {first.revision_name}"]
    assert msgspec.json.decode(body)["revision"] == 1


async def test_created_objects_must_be_ours() -> None:
    rig = Rig()
    await rig.do(CreateService("a-0", "p", 5), rig.create(5, 1))
    for text in ("create services a-0-p-5-0", "create pods a-0-p-5-1"):
        (owner,) = rig.client.sent[text]["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == ("uid-a", True)


# Answers to creations


@pytest.mark.covers("MS-35", "MS-445")
async def test_existing_object_of_ours_must_count_as_created() -> None:
    rig = Rig()
    text = "create pods a-0-p-5-0"
    rig.client.errors[text] = AlreadyExists(409, "AlreadyExists")
    labels = replace(rig.scene.pods[POD].metadata.labels, role_id="p-5", revision="any", entry="")
    rig.client.found["a-0-p-5-0"] = with_meta(rig.scene.pods[POD], labels=labels, resource_version="900")
    assert await rig.do(rig.create(5)) == []
    rig.bench.caches.pods.progress("", "899")
    assert not rig.satisfied()
    rig.bench.caches.pods.progress("", "900")
    assert rig.satisfied()


def _owner(uid: str, kind: str = "ModelServing", name: str = "a", *, controller: bool = True) -> Any:
    owner = OwnerReference(api_version="v1", kind=kind, name=name, uid=uid, controller=controller)
    return (owner,)


@pytest.mark.covers("MS-35", "R05")
@pytest.mark.parametrize(
    ("owners", "whose"),
    [
        ((), "belongs to nobody"),
        (_owner("uid-a", controller=False), "belongs to nobody"),
        (_owner("former"), "belongs to ModelServing a"),
        (_owner("x", "StatefulSet", "db"), "belongs to StatefulSet db"),
    ],
)
async def test_name_that_another_has_must_be_reported_and_left_alone(owners: Any, whose: str) -> None:
    rig = Rig()
    rig.client.errors["create pods a-0-p-5-0"] = AlreadyExists(409, "AlreadyExists")
    pod = rig.scene.pods[POD]
    labels = replace(pod.metadata.labels, role_id="p-5")
    rig.client.found["a-0-p-5-0"] = with_meta(pod, owner_references=owners, labels=labels)
    (error,) = await rig.do(rig.create(5))
    assert isinstance(error, NameTaken)
    assert "Pod a-0-p-5-0 exists" in str(error)
    assert whose in str(error)
    assert rig.client.begun == ["create pods a-0-p-5-0", "get pods a-0-p-5-0"]
    assert rig.satisfied()


@pytest.mark.covers("MS-35")
@pytest.mark.parametrize("label", ["name", "group_name", "role", "role_id"])
async def test_object_of_ours_that_was_relabelled_must_be_reported(label: str) -> None:
    rig = Rig()
    rig.client.errors["create pods a-0-p-5-0"] = AlreadyExists(409, "AlreadyExists")
    pod = rig.scene.pods[POD]
    labels = replace(pod.metadata.labels, **{"role_id": "p-5", label: "other"})
    rig.client.found["a-0-p-5-0"] = with_meta(pod, labels=labels)
    (error,) = await rig.do(rig.create(5))
    assert isinstance(error, NameTaken)
    assert "labels of something else" in str(error)
    assert rig.satisfied()


async def test_object_that_went_between_create_and_look_must_be_tried_again() -> None:
    rig = Rig()
    rig.client.errors["create pods a-0-p-5-0"] = AlreadyExists(409, "AlreadyExists")
    rig.client.errors["get pods a-0-p-5-0"] = NotFound(404)
    (error,) = await rig.do(rig.create(5))
    assert isinstance(error, NotFound)


async def test_namespace_that_ends_must_stop_creations_alone() -> None:
    rig = Rig()
    rig.client.errors = {"create pods a-0-p-5-0": ENDING}
    assert await rig.do(rig.create(5)) == []
    rig.client.begun.clear()
    actions = rig.each_kind()
    assert await rig.do(*actions) == []
    assert not [text for text in rig.client.begun if text.startswith("create")]
    assert len(rig.client.begun) == sum(
        not isinstance(each, CreatePod | CreateService | PersistRevision) for each in actions
    )
    rig.client.begun.clear()
    rig.executor.forget(A)
    rig.executor.forget(A)
    await rig.do(rig.create(6))
    rig.client.errors = {"create pods a-0-p-7-0": ENDING}
    await rig.do(rig.create(7))
    rig.desired = replace(rig.desired, uid="successor")
    await rig.do(rig.create(8))
    assert rig.client.begun == [f"create pods a-0-p-{number}-0" for number in (6, 7, 8)]


async def test_creation_that_is_forbidden_must_be_reported() -> None:
    rig = Rig()
    error = Forbidden(403, "Forbidden", "quota", causes=(("x", "Other", "y"),))
    rig.client.errors["create pods a-0-p-5-0"] = error
    assert await rig.do(rig.create(5), rig.create(6)) == [error]
    assert await rig.do(rig.create(7)) == []
    assert rig.client.begun[-1] == "create pods a-0-p-7-0"


# Answers to deletions


async def test_deletion_of_what_is_gone_must_be_done() -> None:
    rig = Rig()
    rig.client.errors[f"delete pods {POD}"] = NotFound(404)
    assert await rig.do(rig.delete()) == []
    assert not rig.satisfied()
    rig.bench.remove(rig.scene.pods[POD])
    assert rig.satisfied()


@pytest.mark.covers("MS-88")
async def test_deleted_pod_must_be_no_loss_even_if_it_goes_before_the_answer() -> None:
    rig = Rig()
    rig.client.meanwhile = lambda: rig.bench.remove(rig.scene.pods[POD])
    assert await rig.do(rig.delete()) == []
    assert rig.bench.broken() == []


@pytest.mark.covers("MS-278")
@pytest.mark.parametrize(
    "error", [Conflict(409), Forbidden(403), Invalid(422), Throttled(429)], ids=lambda error: error.status
)
async def test_refused_deletion_must_be_reported_and_repented(error: IsthmusError) -> None:
    rig = Rig()
    rig.client.errors[f"delete pods {POD}"] = error
    assert await rig.do(rig.delete(with_group=True)) == [error]
    assert rig.bench.store.sizes()["remembered"] == 0
    assert rig.satisfied(), "nothing was written that could be waited for"
    rig.bench.remove(rig.scene.pods[POD])
    assert rig.bench.broken() == ["p-0"]


@pytest.mark.covers("MS-88")
@pytest.mark.parametrize(
    "error",
    [Unreachable("no answer"), ServerError(500), WrongAnswer("cut"), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
async def test_deletion_whose_answer_was_lost_must_still_be_no_loss(error: BaseException) -> None:
    rig = Rig()
    rig.client.errors[f"delete pods {POD}"] = error
    try:
        await rig.do(rig.delete())
    except asyncio.CancelledError:
        assert isinstance(error, asyncio.CancelledError)
    rig.bench.remove(rig.scene.pods[POD])
    assert rig.bench.broken() == []


# The right to write


@pytest.mark.covers("MS-430", "R15")
async def test_refused_right_to_write_must_stop_everything_at_once() -> None:
    rig = Rig()
    refused = WriteRefused("the lease is lost")
    rig.client.errors["create services a-0-p-5-0"] = refused
    with pytest.raises(WriteRefused) as raised:
        await rig.do(*rig.each_kind())
    assert raised.value is refused
    begun = rig.client.begun
    assert not [text for text in begun if text.startswith("delete") or " pods a-0" in text]


async def test_refused_right_to_write_must_be_raised_from_a_single_action() -> None:
    rig = Rig()
    rig.client.errors[f"delete pods {POD}"] = WriteRefused("the lease is lost")
    with pytest.raises(WriteRefused):
        await rig.do(rig.delete(), rig.create(5))
    assert rig.client.begun == [f"delete pods {POD}"]
    assert rig.bench.store.sizes()["remembered"] == 0


async def test_refused_right_to_write_must_begin_no_more_of_its_phase() -> None:
    rig = Rig()
    rig.client.errors = dict.fromkeys(
        (f"create pods a-0-p-{number}-0" for number in range(5)), WriteRefused("the lease is lost")
    )
    with pytest.raises(WriteRefused):
        await rig.do(*[rig.create(number) for number in range(CONCURRENCY * 4)])
    assert len(rig.client.begun) <= CONCURRENCY * 2


async def test_bug_must_not_be_taken_for_a_failed_request() -> None:
    rig = Rig()
    rig.client.errors["create pods a-0-p-5-0"] = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await rig.do(rig.create(5))


# Expectations


def _texts(actions: Iterable[Action]) -> list[str]:
    return [type(each).__name__ for each in actions]


@pytest.mark.covers("MS-434")
@pytest.mark.parametrize("index", range(10), ids=lambda index: _texts(Rig().each_kind())[index])
async def test_each_write_must_be_waited_for(index: int) -> None:
    rig = Rig()
    action = rig.each_kind()[index]
    if isinstance(action, DropRevision):
        stored = rig.bench.caches.revisions.get(("default", rig.revision_name))
        assert stored is not None
        action = DropRevision(rig.revision_name, stored.metadata.uid, "14")
    assert await rig.do(action) == []
    assert not rig.satisfied()
    caches = {each.resource.plural: each for each in rig.bench.caches.all}
    (text,) = rig.client.begun
    verb, plural, name = text.split()
    caches[plural].progress("", "499")
    assert not rig.satisfied()
    if verb == "delete":
        caches[plural].progress("", str(MANY))
        assert not rig.satisfied()
        gone: Any = caches[plural].get(("default", name))
        caches[plural].remove("", replace(gone, metadata=replace(gone.metadata, resource_version="")))
    else:
        caches[plural].progress("", "500")
    assert rig.satisfied()


async def test_deletion_that_is_seen_to_have_begun_must_be_enough() -> None:
    rig = Rig()
    await rig.do(rig.delete())
    assert not rig.satisfied()
    rig.bench.put(terminating(rig.scene.pods[POD]))
    assert rig.satisfied()
