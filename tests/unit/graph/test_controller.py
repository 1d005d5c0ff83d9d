"""One pass of the graphs' controller, and what wakes it: order, errors, events, and what is remembered."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from isthmus.api.dynamo.children import GRAPH_CHILDREN, GraphChild
from isthmus.api.dynamo.graphs import DynamoGraphDeployment
from isthmus.api.meta import Key, Raw
from isthmus.errors import IsthmusError
from isthmus.graph.controller import GraphController
from isthmus.graph.plan.model import ChildName, GraphSettings, Observed
from isthmus.graph.plan.reconcile import plan
from isthmus.graph.plan.status import status
from isthmus.graph.store import Caches, Store
from isthmus.kube.client import Client, Written
from isthmus.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    WriteRefused,
)
from isthmus.runtime.cache import Cache
from isthmus.runtime.controller import DONE, Again, Outcome
from isthmus.runtime.events import EventRecorder
from isthmus.runtime.expect import Expectations
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.graphs import BETA, beta, bodies, child, component, look, made, read, running
from tests.support.relayclient import FakeClient

CHAT = ("serving", "chat")
ENGINE = ChildName("Deployment", "chat-engine")


class Recorder:
    """Notes reason and note of each event."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def emit(self, regarding: Any, *, reason: str, note: str, **_: Any) -> None:
        assert (regarding.kind, regarding.name) == ("DynamoGraphDeployment", "chat")
        self.told.append((reason, note))


class Place:
    """A controller, its caches and its client."""

    def __init__(self, **store: Any) -> None:
        metrics, clock = Metrics(), FakeClock()
        self.client, self.recorder = FakeClient(), Recorder()
        self.woken: list[Key] = []
        self.caches = Caches(
            graphs=Cache(BETA, sources=("",), metrics=metrics),
            children={
                each.kind: Cache(each, sources=("",), metrics=metrics, name=each.kind)
                for each in GRAPH_CHILDREN
            },
        )
        self.store = Store(self.caches, self.woken.append, **store)
        self.expectations = Expectations(clock, metrics)
        self.controller = GraphController(
            cast(Client, self.client),
            self.caches,
            self.store,
            self.expectations,
            cast(EventRecorder, self.recorder),
            clock,
            GraphSettings(),
        )
        for cache in self.caches.written:
            cache.replace("", [], "1")

    def show(self, seen: Observed) -> None:
        """The caches have this, and nothing else."""
        self.caches.graphs.replace("", [], "8")
        self.caches.graphs.replace("", [seen.graph], "9")
        for kind, cache in self.caches.children.items():
            found = [each for name, each in seen.children.items() if name.kind == kind]
            cache.replace("", found, "9")

    def graph(self, graph: DynamoGraphDeployment) -> None:
        """The cache has this graph."""
        self.caches.graphs.replace("", [graph], "9")

    async def once(self) -> Outcome:
        """One pass."""
        return await self.controller.reconcile(CHAT)

    async def fails(self) -> list[IsthmusError]:
        """What a pass raises."""
        with pytest.raises(ExceptionGroup) as group:
            await self.once()
        return [error for error in group.value.exceptions if isinstance(error, IsthmusError)]

    @property
    def state(self) -> Raw:
        """The status that was written last."""
        said = next(call.said for call in reversed(self.client.calls) if call.verb == "patch/status")
        found: Raw = msgspec.json.decode(said)["status"]
        return found


@pytest.fixture
def place() -> Place:
    return Place()


async def test_new_graph_must_be_made_and_told_in_one_pass(place: Place) -> None:
    place.graph(read(beta()))
    assert await place.once() == DONE
    assert [kind for _, kind, _ in place.client.writes] == [
        "ServiceAccount",
        "Role",
        "Service",
        "Service",
        "Deployment",
        "Deployment",
        "RoleBinding",
        "DynamoGraphDeployment",
    ]
    assert place.state["state"] == "pending"
    assert isinstance(await place.once(), Again)  # until the caches show it


@pytest.mark.covers("GD-39", "GD-49", "G-2")
async def test_graph_that_is_as_it_should_be_must_cost_nothing(place: Place) -> None:
    seen = running(made(beta()))
    graph = msgspec.structs.replace(seen.graph, status=status(seen, plan(seen, GraphSettings()), (), 1.0))
    place.show(msgspec.structs.replace(seen, graph=graph))
    assert await place.once() == DONE
    assert place.client.calls == []


@pytest.mark.covers("GD-17", "G-4")
async def test_stranger_must_be_seen_before_its_name_is_wanted(place: Place) -> None:
    body = bodies(look(beta()))["Deployment chat-engine"]
    place.client.there["Deployment"] = child(body, ownerReferences=[])
    seen = made(beta())
    kept = {name: each for name, each in seen.children.items() if name != ENGINE}
    place.show(msgspec.structs.replace(seen, children=kept))
    assert await place.once() == Again(15.0)
    assert [verb for verb, _, _ in place.client.writes] == ["patch/status"]
    assert place.state["conditions"][0]["reason"] == "OwnershipConflict"
    assert [reason for reason, _ in place.recorder.told] == ["OwnershipConflict"]


async def test_own_child_without_our_label_must_get_it_back(place: Place) -> None:
    body = bodies(look(beta()))["Deployment chat-engine"]
    place.client.there["Deployment"] = child(body, labels={})
    seen = made(beta())
    kept = {name: each for name, each in seen.children.items() if name != ENGINE}
    place.show(msgspec.structs.replace(seen, children=kept))
    await place.once()
    assert place.client.writes[0] == ("patch", "Deployment", "chat-engine")


@pytest.mark.covers("GD-46", "G-12")
@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Invalid(422, message="bad label"), "failed"),
        (Forbidden(403, message="quota"), "failed"),
        (ServerError(500, message="broken"), "failed"),
        (AlreadyExists(409), "pending"),
        (Conflict(409), "pending"),
    ],
)
async def test_failed_write_must_keep_none_of_the_others_back(
    place: Place, error: IsthmusError, state: str
) -> None:
    place.graph(read(beta()))
    place.client.refuse["create", "chat-engine"] = error
    assert set(map(type, await place.fails())) == {type(error)}
    assert ("create", "RoleBinding", "chat-k8s-service-discovery-binding") in place.client.writes
    assert place.state["state"] == state


async def test_child_that_cannot_be_looked_for_must_not_be_made(place: Place) -> None:
    place.graph(read(beta()))

    async def get(resource: Any, namespace: str, name: str) -> GraphChild:
        if resource.kind == "Deployment":
            raise ServerError(500, message="broken")
        raise NotFound(404)

    place.client.get = get  # type: ignore[method-assign]
    assert len(await place.fails()) == 2
    assert not any(kind == "Deployment" for _, kind, _ in place.client.writes)
    assert any(kind == "Service" for _, kind, _ in place.client.writes)


async def test_namespace_on_its_way_out_must_be_no_failure(place: Place) -> None:
    place.graph(read(beta()))
    gone = Forbidden(403, causes=(("metadata.namespace", "NamespaceTerminating", ""),))
    for resource in GRAPH_CHILDREN:
        place.client.refuse["create", resource.kind] = gone
    assert await place.once() == DONE


async def test_write_that_is_refused_to_this_process_must_end_the_pass(place: Place) -> None:
    place.graph(read(beta()))
    place.client.refuse["create", "Role"] = WriteRefused("not the leader")
    with pytest.raises(WriteRefused):
        await place.once()
    assert not any(verb == "patch/status" for verb, _, _ in place.client.writes)


@pytest.mark.covers("G-2")
async def test_repair_that_changes_nothing_must_not_be_tried_again(place: Place) -> None:
    seen = made(beta())
    odd = child(bodies(look(beta()))["Deployment chat-engine"], annotations={})
    place.show(msgspec.structs.replace(seen, children={**seen.children, ENGINE: odd}))

    async def patch(resource: Any, namespace: str, name: str, body: Any, **_: Any) -> Any:
        place.client.calls.append(cast(Any, ("patch", resource.kind, name)))
        same = odd.metadata.resource_version if resource.kind == "Deployment" else "9"
        return Written(name, namespace, "u", same)

    place.client.patch = patch  # type: ignore[method-assign]
    await place.once()
    place.caches.children["Deployment"].progress("", "99")
    place.client.calls.clear()
    await place.once()
    assert not any(call[1] == "Deployment" for call in place.client.calls)


@pytest.mark.covers("GD-23", "GD-25", "GD-40")
async def test_event_must_be_told_once_for_as_long_as_it_stays_the_same(place: Place) -> None:
    refused = beta(
        "chat", component("E", modelRef={}), annotations={"nvidia.com/dynamo-discovery-backend": "x"}
    )
    for _ in range(2):
        place.show(made(refused))
        await place.once()
        place.expectations.forget(CHAT)
    assert [reason for reason, _ in place.recorder.told] == ["UnsupportedField", "FieldWithoutEffect"]
    place.show(made(beta()))
    await place.once()
    place.expectations.forget(CHAT)
    place.show(made(refused))
    await place.once()
    assert len(place.recorder.told) == 4


@pytest.mark.parametrize("metadata", [{"deletionTimestamp": "2026-01-01T00:00:00Z"}, None])
async def test_graph_that_goes_must_be_left_to_the_collector(place: Place, metadata: Raw | None) -> None:
    if metadata is not None:
        place.graph(read(beta(), **metadata))
    assert await place.once() == DONE
    assert place.client.calls == []


@pytest.mark.covers("GD-55")
async def test_ephemeral_namespace_must_be_left_alone() -> None:
    place = Place(skips=lambda namespace: namespace == "serving")
    place.show(made(beta()))
    assert await place.once() == DONE
    assert (place.client.calls, place.woken, place.store.keys()) == ([], [], [])


def test_change_of_a_child_must_wake_its_graph_and_no_other(place: Place) -> None:
    seen = made(beta())
    place.show(seen)
    place.woken.clear()
    deployments = place.caches.children["Deployment"]
    newer = msgspec.structs.replace(
        seen.children[ENGINE],
        metadata=msgspec.structs.replace(seen.children[ENGINE].metadata, resource_version="20"),
    )
    deployments.upsert("", newer)
    assert place.woken == [CHAT]
    stranger = child(bodies(look(beta("other")))["Deployment other-engine"], resourceVersion="30")
    deployments.upsert("", stranger)
    assert place.woken == [CHAT]
    place.woken.clear()
    deployments.replace("", [stranger], "40")
    assert set(place.woken) == {CHAT}


def test_child_of_a_former_graph_of_the_name_must_not_be_its_own(place: Place) -> None:
    seen = made(beta())
    place.show(seen)
    successor = read(beta(), uid="successor")
    assert place.store.observe(successor).children == {}
    assert set(place.store.observe(seen.graph).children) == set(seen.children)
