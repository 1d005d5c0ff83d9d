"""One pass of the controller: order, errors, events and what is remembered (sections 8, 9 and 17)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from isthmus.api.meta import Raw
from isthmus.api.poolrelay import DynamoPoolRelay, RelayStatus
from isthmus.errors import IsthmusError, UserError
from isthmus.kube.client import Client
from isthmus.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    Unreachable,
    WriteRefused,
)
from isthmus.poolrelay.controller import IdUnreadable, PoolRelayController
from isthmus.poolrelay.executor import FIELD_MANAGER
from isthmus.poolrelay.plan.children import render
from isthmus.runtime.controller import DONE, Again, Outcome
from isthmus.runtime.events import EventRecorder
from isthmus.runtime.expect import Expectations
from tests.support.clock import FakeClock
from tests.support.relayclient import FakeClient
from tests.support.relays import (
    cluster_property,
    export,
    owner,
    pool,
    relay,
    settings,
    stored_child,
)
from tests.support.relaystore import Cluster

EAST = ("serving", "east")
CHILDREN = ["ServiceAccount", "Role", "Service", "Deployment", "RoleBinding"]
Told = tuple[str, str, str]


class Recorder:
    """Notes reason, related kind and related name of each event."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def emit(self, regarding: Any, *, reason: str, related: Any, **_: Any) -> None:
        assert (regarding.kind, regarding.name) == ("DynamoPoolRelay", "east")
        self.told.append((reason, related.kind, related.name))


class Room:
    """A controller over a cluster that a test fills."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.cluster = cluster or Cluster()
        self.client, self.recorder, self.clock = FakeClient(), Recorder(), FakeClock()
        self.controller = PoolRelayController(
            cast(Client, self.client),
            self.cluster.caches,
            self.cluster.store,
            Expectations(self.clock, self.cluster.metrics),
            cast(EventRecorder, self.recorder),
            self.clock,
            self.cluster.settings,
        )

    async def once(self) -> Outcome:
        """One pass for the relay `east`, with nothing expected of earlier ones."""
        self.client.calls.clear()
        self.recorder.told.clear()
        self.controller._expectations.forget(EAST)
        return await self.controller.reconcile(EAST)

    async def fails(self) -> tuple[BaseException, ...]:
        """What one pass fails with."""
        with pytest.raises(ExceptionGroup) as caught:
            await self.once()
        return caught.value.exceptions

    def of(self, verb: str, kind: str = "ServiceExport") -> list[str]:
        """The names of what was written like this."""
        return [name for did, what, name in self.client.writes if (did, what) == (verb, kind)]

    @property
    def status(self) -> Raw:
        """The status as it was last written."""
        bodies = [call.said for call in self.client.calls if call.verb == "patch/status"]
        found: Raw = msgspec.json.decode(bodies[-1])["status"]
        return found

    @property
    def ready(self) -> str:
        """The reason of Ready, as it was last written."""
        return str(self.status["conditions"][0]["reason"])


@pytest.fixture
def room() -> Room:
    """A relay and its graph; no export and no child yet."""
    found = Room()
    found.cluster.put(found.cluster.caches.relays, relay())
    found.cluster.graphs.put(pool())
    return found


@pytest.fixture
def rest(room: Room) -> Room:
    """The same with all children there and right, so that only exports are missing."""
    for kind, body in render(relay(), pool(), "one", settings()).items():
        room.cluster.put(room.cluster.caches.children[kind], stored_child(body))
    return room


@pytest.mark.covers("PR-22", "PR-46", "PR-114", "T-1", "T-16", "T-38")
async def test_first_pass_must_export_then_make_children_then_tell(room: Room) -> None:
    assert await room.once() == DONE
    kinds = [kind for _, kind, _ in room.client.writes]
    assert kinds == ["ServiceExport"] * 2 + CHILDREN + ["DynamoPoolRelay"]
    assert room.recorder.told == [
        ("ExportCreated", "ServiceExport", "east-pool-relay"),
        ("ExportCreated", "ServiceExport", "east-frontend"),
    ]
    assert room.ready == "Progressing"


@pytest.mark.covers("PR-35", "T-100")
async def test_relay_that_goes_or_is_gone_must_be_left(room: Room) -> None:
    dying = relay(dying=True)
    room.cluster.put(
        room.cluster.caches.relays,
        msgspec.structs.replace(
            dying, metadata=msgspec.structs.replace(dying.metadata, resource_version="8")
        ),
    )
    assert await room.once() == DONE
    assert room.client.calls == []
    room.cluster.drop(room.cluster.caches.relays, dying)
    assert await room.once() == DONE
    assert room.client.calls == []


@pytest.mark.covers("PR-71", "PR-72", "T-33")
async def test_pass_with_nothing_to_do_must_ask_and_write_nothing(rest: Room) -> None:
    ours = [export("east-pool-relay", owner()), export("east-frontend", owner())]
    rest.cluster.put(rest.cluster.exports, *ours)
    await rest.once()
    stored = msgspec.convert(rest.status | {"observedTarget": rest.status["observedTarget"]}, RelayStatus)
    old = relay()
    meta = msgspec.structs.replace(old.metadata, resource_version="8")
    rest.cluster.put(rest.cluster.caches.relays, DynamoPoolRelay(metadata=meta, spec=old.spec, status=stored))
    assert await rest.once() == DONE
    assert rest.client.calls == []
    assert rest.recorder.told == []
    assert rest.controller._futile == {}


@pytest.mark.covers("PR-71")
async def test_pass_must_wait_for_exports_too(room: Room) -> None:
    await room.once()
    caches = room.cluster.caches
    caches.relays.progress("", "99999")
    for cache in caches.children.values():
        cache.progress("", "99999")
    room.client.calls.clear()
    assert isinstance(await room.controller.reconcile(EAST), Again)
    assert room.client.calls == []
    room.cluster.exports.progress("", "99999")
    assert await room.controller.reconcile(EAST) == DONE
    assert room.client.calls != []


@pytest.mark.covers("PR-71")
async def test_pass_must_wait_until_it_sees_its_last_writes(room: Room) -> None:
    await room.once()
    room.client.calls.clear()
    outcome = await room.controller.reconcile(EAST)
    assert isinstance(outcome, Again)
    assert room.client.calls == []


@pytest.mark.covers("PR-61", "T-26", "T-112")
async def test_export_that_the_cache_lacks_must_be_no_error(rest: Room) -> None:
    rest.client.refuse["create", "east-frontend"] = AlreadyExists(409)
    assert await rest.once() == DONE
    assert rest.recorder.told == [("ExportCreated", "ServiceExport", "east-pool-relay")]


@pytest.mark.covers("PR-74", "PR-76", "PR-78", "T-22", "T-27", "T-86", "T-110")
@pytest.mark.parametrize("error", [ServerError(500), Forbidden(403), Unreachable("gone"), NotFound(404)])
async def test_failed_export_must_be_told_and_raised_and_keep_no_other_back(
    rest: Room, error: IsthmusError
) -> None:
    rest.client.refuse["create", "east-pool-relay"] = error
    assert await rest.fails() == (error,)
    assert rest.of("create") == ["east-pool-relay", "east-frontend"]
    assert rest.recorder.told == [
        ("ExportFailed", "ServiceExport", "east-pool-relay"),
        ("ExportCreated", "ServiceExport", "east-frontend"),
    ]
    assert rest.ready == "Progressing"
    rest.client.refuse.clear()
    assert await rest.once() == DONE


@pytest.mark.covers("PR-36", "PR-76", "T-28", "T-111")
async def test_withdrawal_must_go_on_past_a_deletion_that_fails(rest: Room) -> None:
    rest.cluster.put(rest.cluster.exports, export("east-a", owner()), export("east-b", owner()))
    rest.cluster.graphs.drop(EAST)
    error = ServerError(500)
    rest.client.refuse["delete", "east-a"] = error
    assert await rest.fails() == (error,)
    assert rest.client.writes == [
        ("delete", "ServiceExport", "east-a"),
        ("delete", "ServiceExport", "east-b"),
        ("delete", "Service", "east-pool-relay"),
        ("patch/status", "DynamoPoolRelay", "east"),
    ]
    assert rest.ready == "GraphNotFound"
    assert [reason for reason, _, _ in rest.recorder.told] == ["ExportFailed", "ExportDeleted"]


@pytest.mark.covers("PR-68", "T-14", "T-113")
async def test_export_that_is_gone_already_must_be_no_error(rest: Room) -> None:
    rest.cluster.put(rest.cluster.exports, export("east-a", owner()))
    rest.cluster.graphs.drop(EAST)
    rest.client.refuse["delete", "east-a"] = NotFound(404)
    rest.client.refuse["delete", "Service"] = NotFound(404)
    assert await rest.once() == DONE
    assert rest.recorder.told == []
    assert rest.ready == "GraphNotFound"


@pytest.mark.covers("PR-66", "PR-68", "T-34", "T-36", "T-37")
@pytest.mark.parametrize("verb", ["apply", "delete"])
async def test_export_that_changed_meanwhile_must_be_decided_again_without_a_warning(
    rest: Room, verb: str
) -> None:
    rest.cluster.put(rest.cluster.exports, export("east-pool-relay", owner()))
    name = "east-frontend" if verb == "apply" else "east-old"
    rest.cluster.put(rest.cluster.exports, export(name, owner(), label=""))
    error = Conflict(409)
    rest.client.refuse[verb, name] = error
    assert await rest.fails() == (error,)
    assert rest.of(verb) == [name]
    assert not any(related == name for _, _, related in rest.recorder.told)


@pytest.mark.covers("PR-63", "T-108")
async def test_repair_must_be_a_forced_apply_of_one_manager(rest: Room) -> None:
    rest.cluster.put(
        rest.cluster.exports,
        export("east-pool-relay", owner()),
        export("east-frontend", owner(), label=""),
    )
    await rest.once()
    (call,) = [call for call in rest.client.calls if call.verb == "apply"]
    assert call.said[1:] == (FIELD_MANAGER, True)
    assert FIELD_MANAGER == "isthmus-poolrelay"
    assert rest.recorder.told == [("ExportRepaired", "ServiceExport", "east-frontend")]


@pytest.mark.covers("PR-67", "T-107")
async def test_deletion_must_carry_uid_and_version(rest: Room) -> None:
    rest.cluster.put(rest.cluster.exports, export("east-old", owner(), version="17"))
    await rest.once()
    (call,) = [call for call in rest.client.calls if call.verb == "delete"]
    assert call.said == ("east-old-uid", "17")


@pytest.mark.covers("PR-9", "T-23", "T-24", "T-25")
async def test_every_write_of_an_export_must_be_in_the_version_of_the_gate() -> None:
    room = Room(Cluster(settings(export_version="v1beta1")))
    room.cluster.put(room.cluster.caches.relays, relay())
    room.cluster.graphs.put(pool())
    room.cluster.put(
        room.cluster.exports, export("east-frontend", owner(), label=""), export("east-old", owner())
    )
    await room.once()
    seen = {(call.verb, call.version) for call in room.client.calls if call.kind == "ServiceExport"}
    assert seen == {("create", "v1beta1"), ("apply", "v1beta1"), ("delete", "v1beta1")}
    assert room.cluster.exports.resource.version == "v1beta1"


@pytest.mark.covers("PR-71")
async def test_apply_that_changes_nothing_must_not_be_repeated_or_told() -> None:
    room = Room(Cluster(settings(exported_labels={"team": "a"})))
    room.cluster.put(room.cluster.caches.relays, relay())
    room.cluster.graphs.put(pool())
    names = ["east-pool-relay", "east-frontend"]
    room.cluster.put(room.cluster.exports, *(export(name, owner()) for name in names))
    room.client.unchanged = set(names)
    await room.once()
    assert room.of("apply") == names
    assert room.recorder.told == []
    await room.once()
    assert room.of("apply") == []
    room.cluster.put(room.cluster.exports, export("east-frontend", owner(), version="12"))
    await room.once()
    assert room.of("apply") == ["east-frontend"]


# Children


@pytest.mark.covers("PR-46", "T-20")
async def test_refused_deployment_must_leave_exports_and_be_told(room: Room) -> None:
    for error in (Forbidden(403, message="no quota"), Unreachable("no quota")):
        room.client.refuse["create", "Deployment"] = error
        assert await room.fails() == (error,)
        assert room.of("create") == ["east-pool-relay", "east-frontend"]
        assert room.ready == "ReconcileFailed"
        assert room.status["conditions"][0]["message"] == "no quota"


@pytest.mark.covers("PR-20", "PR-29", "T-21", "T-83")
async def test_name_that_a_stranger_has_must_be_seen_before_anything_is_written(room: Room) -> None:
    body = render(relay(), pool(), "one", settings())["Service"]
    body["metadata"]["ownerReferences"] = []
    room.client.there["Service"] = stored_child(body)
    room.cluster.put(room.cluster.exports, export("east-frontend", owner()))
    assert await room.once() == Again(room.cluster.settings.conflict_recheck_s)
    assert room.client.writes == [
        ("delete", "ServiceExport", "east-frontend"),
        ("patch/status", "DynamoPoolRelay", "east"),
    ]
    assert room.ready == "OwnershipConflict"
    room.client.there.clear()
    assert await room.once() == DONE
    assert room.of("create", "Service") == ["east-pool-relay"]


@pytest.mark.covers("PR-20")
async def test_child_that_lost_its_label_must_be_put_right_and_not_made_again(room: Room) -> None:
    body = render(relay(), pool(), "one", settings())["Service"]
    room.client.there["Service"] = stored_child(body | {"metadata": body["metadata"] | {"labels": {}}})
    await room.once()
    assert room.of("create", "Service") == []
    assert room.of("patch", "Service") == ["east-pool-relay"]


@pytest.mark.covers("PR-46", "PR-76")
async def test_child_that_cannot_be_looked_for_must_not_be_made_and_keep_no_export_back(room: Room) -> None:
    error = ServerError(500)
    room.client.refuse["get", "Role"] = error
    assert await room.fails() == (error,)
    assert room.of("create") == ["east-pool-relay", "east-frontend"]
    assert room.of("create", "Role") == []
    assert room.of("create", "Deployment") == ["east-pool-relay"]
    assert room.ready == "ReconcileFailed"


@pytest.mark.covers("PR-61")
async def test_child_that_was_made_by_another_meanwhile_must_be_looked_at_again(room: Room) -> None:
    error = AlreadyExists(409)
    room.client.refuse["create", "Role"] = error
    assert await room.fails() == (error,)


@pytest.mark.covers("PR-22")
async def test_namespace_on_its_way_out_must_be_no_error(room: Room) -> None:
    cause = (("", "NamespaceTerminating", ""),)
    room.client.refuse["create", "ServiceExport"] = Forbidden(403, causes=cause)
    for kind in CHILDREN:
        room.client.refuse["create", kind] = Forbidden(403, causes=cause)
    assert await room.once() == DONE


# The cluster's ID


@pytest.mark.covers("PR-88", "PR-89", "T-45", "T-47", "T-120")
@pytest.mark.parametrize("error", [Forbidden(403), ServerError(500), Unreachable("gone")])
async def test_unreadable_id_must_fail_the_pass_after_all_else(room: Room, error: IsthmusError) -> None:
    room.cluster.api.known = False
    room.client.refuse["get", "ClusterProperty"] = error
    (raised,) = await room.fails()
    assert isinstance(raised, IdUnreadable)
    assert room.of("create") == ["east-pool-relay", "east-frontend"]
    assert room.of("create", "Deployment") == ["east-pool-relay"]
    assert room.recorder.told[-1] == ("ExportFailed", "ClusterProperty", "cluster.clusterset.k8s.io")


@pytest.mark.covers("PR-88", "T-47")
async def test_missing_about_api_must_be_as_no_property(room: Room) -> None:
    room.cluster.api.known = False
    assert await room.once() == DONE
    asked = [(call.kind, call.version) for call in room.client.calls if call.kind == "ClusterProperty"]
    assert asked == [("ClusterProperty", "v1beta1"), ("ClusterProperty", "v1alpha1")]
    assert not any(reason == "ExportFailed" for reason, _, _ in room.recorder.told)


@pytest.mark.covers("PR-72", "PR-87", "T-44")
async def test_known_or_unwatched_id_must_not_be_asked_for() -> None:
    for under in (settings("karmada"), settings("mcs"), settings("")):
        room = Room(Cluster(under))
        room.cluster.put(room.cluster.caches.relays, relay())
        room.cluster.graphs.put(pool())
        await room.once()
        assert not [call for call in room.client.calls if call.kind == "ClusterProperty"]


@pytest.mark.covers("PR-84", "PR-90", "PR-91", "T-41", "T-46", "T-121", "T-123")
async def test_each_pass_must_compare_with_the_id_of_now(rest: Room) -> None:
    mismatch = ("ClusterIDMismatch", "ClusterProperty", "cluster.clusterset.k8s.io")
    rest.cluster.put(rest.cluster.properties, cluster_property("two", version="5"))
    await rest.once()
    assert mismatch in rest.recorder.told
    rest.cluster.put(rest.cluster.properties, cluster_property("one", version="6"))
    await rest.once()
    assert mismatch not in rest.recorder.told


@pytest.mark.covers("PR-112", "R36")
async def test_id_that_must_be_known_first_must_hold_everything() -> None:
    room = Room()
    of = relay(clusterId="", clusterIdFrom="ClusterProperty")
    room.cluster.put(room.cluster.caches.relays, of)
    room.cluster.graphs.put(pool())
    room.cluster.put(room.cluster.exports, export("east-frontend", owner()))
    room.cluster.api.known = False
    room.client.refuse["get", "ClusterProperty"] = ServerError(500)
    (raised,) = await room.fails()
    assert isinstance(raised, IdUnreadable)
    assert room.client.writes == []


# Errors


@pytest.mark.covers("PR-22", "PR-74", "T-118")
async def test_no_error_must_be_final(rest: Room) -> None:
    for error in (Forbidden(403), NotFound(404), ServerError(500), Unreachable("x"), Conflict(409)):
        rest.client.refuse["create", "ServiceExport"] = error
        for raised in await rest.fails():
            assert not isinstance(raised, UserError) or isinstance(raised, ApiError)
    assert not issubclass(IdUnreadable, UserError)


async def test_process_that_may_not_write_must_stop_at_once(rest: Room) -> None:
    rest.client.refuse["create", "ServiceExport"] = WriteRefused("not leading")
    with pytest.raises(WriteRefused):
        await rest.once()
    assert rest.recorder.told == []


@pytest.mark.covers("PR-31")
async def test_status_that_cannot_be_written_must_be_raised_and_a_gone_relay_not(rest: Room) -> None:
    error = ServerError(500)
    rest.client.refuse["patch/status", "east"] = error
    assert await rest.fails() == (error,)
    rest.client.refuse["patch/status", "east"] = NotFound(404)
    assert await rest.once() == DONE


@pytest.mark.covers("PR-39", "PR-115")
async def test_notes_must_be_logged_when_they_are_new(rest: Room) -> None:
    rest.cluster.put(rest.cluster.exports, export("east-frontend"))
    for lines in (1, 0):
        with capture_logs() as logged:
            await rest.once()
        assert len(logged) == lines
    assert rest.controller._noted[EAST]
    rest.cluster.drop(rest.cluster.exports, export("east-frontend"))
    await rest.once()
    assert EAST not in rest.controller._noted


class Sink:
    """An API server that takes no events."""

    async def create(self, resource: Any, namespace: str, body: Raw) -> Any:
        raise Forbidden(403, message="no events from you")

    async def patch(self, resource: Any, namespace: str, name: str, body: Raw, *, kind: Any) -> Any:
        raise Forbidden(403)


@pytest.mark.covers("PR-83", "T-117")
async def test_events_that_cannot_be_sent_must_fail_no_pass(room: Room) -> None:
    recorder = EventRecorder(
        Sink(), controller="isthmus.dev/x", instance="x", clock=room.clock, metrics=room.cluster.metrics
    )
    room.controller._reporter._recorder = recorder
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(recorder.run())
        assert await room.once() == DONE
        recorder.stop()
    assert room.of("create") == ["east-pool-relay", "east-frontend"]
    assert room.cluster.metrics.value("isthmus_events_dropped_total", cause="failed") == 2


@pytest.mark.covers("PR-33")
async def test_relay_that_is_gone_must_be_forgotten(rest: Room) -> None:
    rest.cluster.put(rest.cluster.exports, export("east-frontend"))
    await rest.once()
    rest.cluster.drop(rest.cluster.caches.relays, relay())
    await rest.once()
    assert (rest.controller._noted, rest.controller._futile) == ({}, {})
    assert len(rest.controller._expectations) == 0
