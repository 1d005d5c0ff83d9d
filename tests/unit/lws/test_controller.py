"""One pass for a LeaderWorkerSet: what is sent, waited for and told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.leaderworkerset import LEADER_WORKER_SETS, LeaderWorkerSet
from isthmus.api.meta import Key, Resource
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing, Status
from isthmus.kube.client import PatchKind, Written
from isthmus.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, ServerError
from isthmus.lws.controller import RETRY_S, Caches, LwsController
from isthmus.lws.plan import model_serving
from isthmus.runtime.cache import Cache
from isthmus.runtime.controller import DONE, Again
from isthmus.runtime.expect import DEADLINE_S, Expectations
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.lws import decode, manifest

KEY: Key = ("default", "big")
CREATE, PATCH, STATUS = "create modelservings", "patch modelservings", "patch leaderworkersets/status"


class Rig:
    """A controller over real caches; its client writes down what is sent, and fails where it is told to."""

    def __init__(self) -> None:
        metrics = Metrics()
        self.sets = Cache(LEADER_WORKER_SETS, metrics=metrics)
        self.servings = Cache(MODEL_SERVINGS, metrics=metrics)
        self.sent: dict[str, Any] = {}
        self.errors: dict[str, Exception] = {}
        self.told: list[str] = []
        self.version = "0"
        self.controller = LwsController(
            self,  # type: ignore[arg-type]
            Caches(sets=self.sets, servings=self.servings),
            Expectations(FakeClock(), metrics),
            self,  # type: ignore[arg-type]
        )
        self.queued: list[Key] = []
        self.controller.wake_on(self.queued.append)
        self._versions = 1

    async def create(self, resource: Resource[Any], namespace: str, body: Any) -> Written:
        return self._write("create", resource, body)

    async def patch(
        self, resource: Resource[Any], namespace: str, name: str, body: Any, **options: Any
    ) -> Written:
        assert ((namespace, name), options.pop("kind")) == (KEY, PatchKind.MERGE)
        subresource = options.pop("subresource", "")
        return self._write("patch", resource, body, f"/{subresource}" if subresource else "")

    def _write(self, verb: str, resource: Resource[Any], body: Any, suffix: str = "") -> Written:
        text = f"{verb} {resource.plural}{suffix}"
        self.sent[text] = body
        if text in self.errors:
            raise self.errors[text]
        return Written(name="big", namespace="default", uid="x", resource_version=self.version)

    def emit(self, regarding: Any, **event: Any) -> None:
        assert (regarding.kind, event["type"]) == ("LeaderWorkerSet", "Warning")
        self.told.append(f"{event['reason']}: {event['note']}")

    def put(self, obj: LeaderWorkerSet | ModelServing) -> None:
        self._versions += 1
        version = replace(obj.metadata, resource_version=str(self._versions))
        if isinstance(obj, LeaderWorkerSet):
            self.sets.upsert("", replace(obj, metadata=version))
        else:
            self.servings.upsert("", replace(obj, metadata=version))

    def serves(self, lws: LeaderWorkerSet, *, status: Status | None = None, **metadata: Any) -> ModelServing:
        """Its ModelServing is there."""
        raw = model_serving(lws)
        raw["metadata"] |= {"uid": "ms-1", "resourceVersion": "1", **metadata}
        found = msgspec.json.decode(msgspec.json.encode(raw), type=ModelServing)
        found = replace(found, status=status or Status())
        self.put(found)
        return found

    async def go(self) -> Any:
        self.sent.clear()
        return await self.controller.reconcile(KEY)


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.put(decode(manifest(replicas=2)))
    return made


@pytest.mark.covers("MS-111")
async def test_serving_must_be_made_and_waited_for(rig: Rig) -> None:
    rig.version = "500"
    assert await rig.go() == DONE
    assert rig.sent[CREATE]["spec"]["replicas"] == 2
    assert await rig.go() == Again(DEADLINE_S)
    assert not rig.sent


@pytest.mark.covers("MS-112")
async def test_change_and_status_must_be_written_only_where_they_differ(rig: Rig) -> None:
    lws = decode(manifest(replicas=2))
    rig.serves(lws, status=Status(replicas=2, available_replicas=1))
    assert await rig.go() == DONE
    assert list(rig.sent) == [STATUS]
    assert rig.sent[STATUS] == {
        "metadata": {"uid": "lws-1"},
        "status": {"replicas": 2, "readyReplicas": 1},
    }
    raw = {**manifest(replicas=3), "status": {"replicas": 2, "readyReplicas": 1}}
    rig.put(decode(raw))
    assert await rig.go() == DONE
    assert list(rig.sent) == [PATCH]
    assert rig.sent[PATCH]["spec"]["replicas"] == 3


@pytest.mark.covers("MS-438")
async def test_strangers_serving_must_be_left_alone_told_once_and_taken_up_when_it_goes(rig: Rig) -> None:
    lws = decode(manifest(replicas=2))
    stranger = rig.serves(lws, status=Status(replicas=9), ownerReferences=[])
    for _ in range(2):
        assert await rig.go() == DONE
    assert not rig.sent
    (note,) = rig.told
    rig.told.clear()
    assert note.startswith("NameTaken: ModelServing big is nobody's")
    owner = {"apiVersion": "v1", "kind": "Job", "name": "x", "uid": "u", "controller": True}
    stranger = rig.serves(lws, status=Status(replicas=9), ownerReferences=[owner])
    assert await rig.go() == DONE
    assert not rig.sent
    rig.queued.clear()
    newer = replace(stranger.metadata, resource_version="99")
    rig.servings.remove("", replace(stranger, metadata=newer))
    assert rig.queued == [KEY]
    await rig.go()
    assert CREATE in rig.sent


@pytest.mark.parametrize("error", [Invalid(422, "Invalid", "no such"), Forbidden(403, "Forbidden", "quota")])
async def test_refusal_must_be_told_once_and_be_no_failure(rig: Rig, error: Exception) -> None:
    rig.errors[CREATE] = error
    for _ in range(2):
        assert await rig.go() == DONE
    assert len(rig.told) == 1
    assert rig.told[0].startswith("ModelServingRefused: ")


async def test_other_failures_must_be_raised_for_the_queue(rig: Rig) -> None:
    rig.errors[CREATE] = ServerError(500)
    with pytest.raises(ServerError):
        await rig.go()


async def test_race_must_be_looked_at_again(rig: Rig) -> None:
    rig.errors[CREATE] = AlreadyExists(409)
    assert await rig.go() == Again(RETRY_S)
    rig.serves(decode(manifest(replicas=1)))
    for error in (Conflict(409), NotFound(404)):
        rig.errors[PATCH] = error
        assert await rig.go() == Again(RETRY_S)
    rig.serves(decode(manifest(replicas=2)), deletionTimestamp="2026-01-01T00:00:00Z")
    assert await rig.go() == Again(RETRY_S)
    assert not rig.told


@pytest.mark.covers("MS-112")
async def test_set_that_goes_must_be_left_to_the_garbage_collector(rig: Rig) -> None:
    rig.put(decode(manifest(replicas=2), deletionTimestamp="2026-01-01T00:00:00Z"))
    assert await rig.go() == DONE
    assert not rig.sent
    rig.sets.mark_absent()
    assert await rig.go() == DONE
    assert rig.controller.keys() == []


def test_only_servings_with_the_name_of_a_set_must_wake_it(rig: Rig) -> None:
    rig.queued.clear()
    rig.serves(decode(manifest("other")))
    assert rig.queued == []
    rig.serves(decode(manifest()))
    assert rig.queued == [KEY]
