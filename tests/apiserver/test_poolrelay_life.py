"""Relays and exports on a real API server, with an operator that has the rights of its role: a whole life,
exports of others, repairs, and the cluster's ID."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.api.dynamo.names import GRAPH_LABEL
from isthmus.api.meta import Raw, Resource
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.poolrelay import POOL_RELAYS, RELAY_DEPLOYMENTS, RELAY_SERVICES
from isthmus.sandbox import Cluster, Sandbox
from tests.support.audit import writes_in
from tests.support.controlplane import delete_namespace, make_namespace, make_user, start_sandbox
from tests.support.eventually import eventually
from tests.support.operator import OperatorProcess
from tests.support.pools import (
    EXPORTS,
    FLAGS,
    GRAPHS,
    PoolWorld,
    configure,
    definitions,
    graph,
    named,
    relay,
)
from tests.support.rawapi import RawApi
from tests.support.world import serving

BOTH = {"east-pool-relay", "east-frontend"}
QUIET_S = 1.0


@pytest.fixture(scope="module")
def pools() -> Iterator[Sandbox]:
    """A control plane that serves graphs, relays, exports and properties."""
    with start_sandbox(nodes=1, audit=True, crds=definitions()) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def api(pools: Sandbox) -> Iterator[RawApi]:
    found = RawApi(pools.cluster().kubeconfig())
    yield found
    found.close()


@pytest.fixture(scope="module")
def user(pools: Sandbox) -> tuple[str, Path]:
    return make_user(pools.cluster(), prefix="relays")


@pytest.fixture(scope="module")
def process(user: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    folder = tmp_path_factory.mktemp("relays")
    with OperatorProcess(user[1], folder / "log", *FLAGS, configure(folder)) as found:
        yield found


@pytest.fixture
async def operator(process: OperatorProcess) -> OperatorProcess:
    await process.ready()
    return process


@pytest.fixture
def east(pools: Sandbox, api: RawApi, operator: OperatorProcess) -> Iterator[PoolWorld]:
    """A namespace under the operator's eyes."""
    name = make_namespace(pools.cluster(), "pools")
    yield PoolWorld(api, name)
    delete_namespace(pools.cluster(), name)


async def unchanged(cluster: Cluster, user: str, namespace: str, *, for_s: float = QUIET_S) -> None:
    """The operator writes nothing to the namespace for a while, events aside."""

    def writes() -> list[Any]:
        return [row for row in writes_in(cluster, user, namespace) if row.resource != "events"]

    before = writes()
    await asyncio.sleep(for_s)
    assert writes() == before


@pytest.mark.covers("PR-5", "PR-34", "PR-37", "PR-40", "PR-41", "PR-42", "PR-44", "PR-71", "PR-77", "PR-105")
@pytest.mark.covers("T-1", "T-3", "T-16", "T-17", "T-18", "T-19", "T-33", "T-72", "T-84", "T-134")
async def test_pool_must_be_exported_followed_withdrawn_and_exported_again(
    east: PoolWorld, pools: Sandbox, user: tuple[str, Path]
) -> None:
    owner = east.put(POOL_RELAYS, relay("east"))
    await east.until(set(), "GraphNotFound")
    east.put(GRAPHS, graph("east"))
    await east.until(BOTH)
    assert east.ready() == ("True", "Available")
    for name in BOTH:
        found = east.export(name)
        assert found["metadata"]["ownerReferences"] == named(owner)
        assert found["metadata"]["labels"] == {GRAPH_LABEL: "east"}
        assert "spec" not in found
    status = east.get(POOL_RELAYS, "east")["status"]
    assert (status["serviceName"], status["clusterId"]) == ("east-pool-relay", "one")
    related = east.related("ExportCreated")
    assert {each["name"] for each in related} == BOTH
    assert {each["uid"] for each in related} == {east.export(name)["metadata"]["uid"] for name in BOTH}

    stored = east.get(GRAPHS, "east")
    await unchanged(pools.cluster(), user[0], east.namespace)
    for _ in range(3):
        east.touch_status()
    await unchanged(pools.cluster(), user[0], east.namespace)
    again = east.get(GRAPHS, "east")
    assert again["metadata"]["generation"] == stored["metadata"]["generation"]
    assert again["metadata"].get("annotations") == stored["metadata"].get("annotations")

    kept = east.export("east-pool-relay")["metadata"]["uid"]
    east.reshape(("Gateway", "frontend"), ("Engine", "worker"))
    await east.until({"east-pool-relay", "east-gateway"})
    assert east.export("east-pool-relay")["metadata"]["uid"] == kept
    east.reshape(("Gateway", "frontend"), ("Plan", "planner"))
    await east.until(set(), "NoWorkers")
    assert east.find(RELAY_SERVICES) == {}
    assert "east-pool-relay" in east.find(RELAY_DEPLOYMENTS)
    east.reshape(("Api", "frontend"), ("D", "decode"))
    await east.until({"east-pool-relay", "east-api"})
    east.delete(GRAPHS, "east")
    await east.until(set(), "GraphNotFound")
    east.put(GRAPHS, graph("east"))
    await east.until(BOTH)
    assert east.get(POOL_RELAYS, "east")["metadata"]["uid"] == owner["metadata"]["uid"]
    east.delete(POOL_RELAYS, "east")

    async def gone() -> None:
        assert east.exports() == set()
        assert east.find(RELAY_SERVICES) == {}
        assert east.find(RELAY_DEPLOYMENTS) == {}

    await eventually(gone)


@pytest.mark.covers("PR-55", "PR-56", "PR-58", "PR-59", "PR-69", "T-6", "T-7", "T-12", "T-13", "T-36", "T-99")
async def test_exports_of_others_must_stay_and_be_replaced_once_they_are_gone(east: PoolWorld) -> None:
    metadata = {"name": "east-frontend", "labels": {GRAPH_LABEL: "east"}}
    theirs = {"apiVersion": EXPORTS.api_version, "kind": EXPORTS.kind, "metadata": metadata}
    before = east.put(EXPORTS, theirs)
    east.start()
    await east.until(BOTH)
    assert east.export("east-frontend") == before
    east.delete(EXPORTS, "east-frontend")

    async def ours() -> Raw:
        found = east.export("east-frontend")
        assert found["metadata"]["uid"] != before["metadata"]["uid"]
        return found

    mine = await eventually(ours)
    assert mine["metadata"]["ownerReferences"][0]["name"] == "east"
    taken = east.somebody | {"controller": True}
    east.take(EXPORTS, "east-frontend", ownerReferences=None)
    east.take(EXPORTS, "east-pool-relay", ownerReferences=[taken], labels={GRAPH_LABEL: "x"})
    east.delete(GRAPHS, "east")
    await east.until(BOTH, "GraphNotFound")
    assert east.export("east-pool-relay")["metadata"]["labels"] == {GRAPH_LABEL: "x"}


@pytest.mark.covers("PR-62", "PR-63", "PR-65", "T-29", "T-30", "T-31", "T-32", "T-102", "T-103")
async def test_repair_must_put_right_what_is_ours_and_keep_all_else(east: PoolWorld) -> None:
    owner = east.start()
    await east.until(BOTH)
    mine = named(owner)[0]
    other = east.somebody
    wrong: list[dict[str, Any]] = [
        {"labels": {GRAPH_LABEL: None}},
        {"labels": {GRAPH_LABEL: "west"}},
        {"ownerReferences": [mine | {"blockOwnerDeletion": False}, other]},
        {"ownerReferences": [mine | {"name": "west"}, other]},
    ]
    extra = {"finalizers": ["example.com/hold"], "annotations": {"a": "b"}, "labels": {"c": "d"}}
    east.take(EXPORTS, "east-frontend", **extra)
    east.merge(EXPORTS, "east-frontend", {"spec": {"exportedLabels": {"team": "a"}}})
    uid = east.export("east-frontend")["metadata"]["uid"]
    for index, change in enumerate(wrong):
        east.take(EXPORTS, "east-frontend", **change)

        async def right(index: int = index) -> None:
            found = east.export("east-frontend")
            meta = found["metadata"]
            assert meta["labels"] == {GRAPH_LABEL: "east", "c": "d"}
            assert mine in meta["ownerReferences"]
            assert (other in meta["ownerReferences"]) is (index > 1)
            assert (meta["uid"], meta["finalizers"]) == (uid, ["example.com/hold"])
            assert meta["annotations"] == {"a": "b"}
            assert found["spec"] == {"exportedLabels": {"team": "a"}}

        await eventually(right)
    assert "ExportRepaired" in east.reasons()
    east.take(EXPORTS, "east-frontend", finalizers=None)


@pytest.mark.covers("PR-33", "PR-34", "PR-57", "T-11", "T-15", "T-53")
async def test_export_that_a_finalizer_holds_must_be_left_and_made_anew_for_the_new_graph(
    east: PoolWorld, pools: Sandbox, user: tuple[str, Path]
) -> None:
    east.start()
    await east.until(BOTH)
    east.take(EXPORTS, "east-frontend", finalizers=["example.com/hold"])
    held = east.export("east-frontend")["metadata"]["uid"]
    east.delete(GRAPHS, "east")
    east.put(GRAPHS, graph("east"))

    async def made_again() -> None:
        assert "deletionTimestamp" in east.export("east-frontend")["metadata"]
        assert "deletionTimestamp" not in east.export("east-pool-relay")["metadata"]
        assert east.ready() == ("True", "Available")

    await eventually(made_again)
    await unchanged(pools.cluster(), user[0], east.namespace)
    for _ in range(3):
        east.touch_status()
    await unchanged(pools.cluster(), user[0], east.namespace)
    east.take(EXPORTS, "east-frontend", finalizers=None)

    async def anew() -> None:
        found = east.export("east-frontend")["metadata"]
        assert found["uid"] != held
        assert "deletionTimestamp" not in found

    await eventually(anew)


@pytest.mark.covers("PR-20", "PR-29", "PR-99", "T-21", "T-83", "T-84", "R38")
async def test_service_must_be_put_right_and_a_strangers_left(east: PoolWorld) -> None:
    east.start()
    await east.until(BOTH)
    uid = east.export("east-pool-relay")["metadata"]["uid"]
    ports = [{**each, "port": 9090 + index} for index, each in enumerate(east.service["spec"]["ports"])]
    east.merge(RELAY_SERVICES, "east-pool-relay", {"spec": {"ports": ports}})

    async def right() -> None:
        assert [each["port"] for each in east.service["spec"]["ports"]] == [5561, 8081]

    await eventually(right)
    east.delete(RELAY_SERVICES, "east-pool-relay")
    await eventually(right)
    assert east.export("east-pool-relay")["metadata"]["uid"] == uid
    east.take(RELAY_SERVICES, "east-pool-relay", ownerReferences=None)
    await east.until(set(), "OwnershipConflict")
    assert east.service["metadata"].get("ownerReferences") is None
    east.delete(RELAY_SERVICES, "east-pool-relay")
    await east.until(BOTH)


@pytest.mark.covers("PR-84", "PR-85", "PR-90", "PR-91", "PR-112", "T-41", "T-46", "T-116", "T-121", "T-123")
async def test_relays_must_follow_the_clusters_id(east: PoolWorld) -> None:
    filled = {"clusterId": "", "clusterIdFrom": "ClusterProperty"}
    east.set_property(None)
    east.start()
    east.put(GRAPHS, graph("west"))
    east.put(POOL_RELAYS, relay("west", **filled))
    await east.until(BOTH)
    assert east.ready("west") == ("False", "InvalidConfiguration")
    assert "ClusterIDMismatch" not in east.reasons()

    async def told(times: int) -> None:
        found = east.related("ClusterIDMismatch")
        assert len(found) == times
        assert len({each["resourceVersion"] for each in found}) == times

    async def west(cluster_id: str) -> None:
        relay_ = east.get(POOL_RELAYS, "west")
        assert relay_["status"].get("clusterId", "") == cluster_id
        assert ("west-frontend" in east.exports()) is bool(cluster_id)

    east.set_property("two")
    await eventually(lambda: told(1))
    await eventually(lambda: west("two"))
    east.set_property("three")
    await eventually(lambda: told(2))
    await eventually(lambda: west("three"))
    east.set_property(None)
    await eventually(lambda: west(""))
    east.set_property("one")
    await eventually(lambda: west("one"))
    assert len(east.related("ClusterIDMismatch")) == 2
    assert east.ready()[0] == "True"
    east.set_property(None)


@pytest.mark.covers("PR-16", "PR-38")
async def test_modelserving_must_have_its_entry_services_exported(
    east: PoolWorld, pools: Sandbox, user: tuple[str, Path]
) -> None:
    target = {"apiVersion": MODEL_SERVINGS.api_version, "kind": "ModelServing", "name": "chat"}
    east.put(POOL_RELAYS, relay("east", targetRef=target))
    await east.until(set(), "TargetNotFound")
    owner = east.create(serving("chat"))
    await east.until({"east-pool-relay"})
    assert "NoFrontend" in east.reasons()
    entry = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "chat-0-p-0-0",
            "labels": {
                "modelserving.volcano.sh/name": "chat",
                "modelserving.volcano.sh/group-name": "chat-0",
                "modelserving.volcano.sh/role-id": "p-0",
            },
            "ownerReferences": [
                {
                    "apiVersion": MODEL_SERVINGS.api_version,
                    "kind": "ModelServing",
                    "name": "chat",
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {"clusterIP": "None", "selector": {"a": "b"}},
    }
    east.put(RELAY_SERVICES, entry)
    await east.until({"east-pool-relay", "chat-0-p-0-0"})
    assert east.export("chat-0-p-0-0")["metadata"]["labels"] == {GRAPH_LABEL: "chat"}
    east.delete(RELAY_SERVICES, "chat-0-p-0-0")
    await east.until({"east-pool-relay"})
    east.delete(MODEL_SERVINGS, "chat")
    await east.until(set(), "TargetNotFound")


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.covers("PR-17", "PR-112")
async def test_every_example_must_bring_up_what_it_says(east: PoolWorld) -> None:
    kinds: tuple[Resource[Any], ...] = (GRAPHS, POOL_RELAYS, MODEL_SERVINGS)
    resources = {resource.kind: resource for resource in kinds}
    chat = PoolWorld(east.api, east.namespace, "chat")
    chat.set_property("east")
    files = ["poolrelay/graph.yaml", "modelserving/sample.yaml", "poolrelay/modelserving.yaml"]
    for name in files:
        for document in yaml.safe_load_all((EXAMPLES / name).read_text()):
            chat.put(resources[document["kind"]], document)
    await chat.until({"chat-pool-relay", "chat-frontend", "sample-pool-relay"})
    chat.delete(POOL_RELAYS, "chat")
    await eventually(lambda: _only(chat, {"sample-pool-relay"}))
    (full,) = yaml.safe_load_all((EXAMPLES / "poolrelay" / "every-field.yaml").read_text())
    chat.put(POOL_RELAYS, full)
    await chat.until({"chat-pool-relay", "chat-frontend", "sample-pool-relay"})
    assert chat.get(POOL_RELAYS, "chat")["status"]["clusterId"] == "east"
    chat.set_property(None)


async def _only(world: PoolWorld, exports: set[str]) -> None:
    assert world.exports() == exports


@pytest.mark.covers("PR-47", "T-131")
async def test_name_that_two_relays_want_must_have_one_owner_and_no_fight(
    east: PoolWorld, pools: Sandbox, user: tuple[str, Path]
) -> None:
    east.put(GRAPHS, graph("a", ("b-frontend", "frontend"), ("W", "worker")))
    east.put(GRAPHS, graph("a-b"))
    first = east.put(POOL_RELAYS, relay("a"))

    async def one_owner() -> None:
        (reference,) = east.export("a-b-frontend")["metadata"]["ownerReferences"]
        assert reference["uid"] == first["metadata"]["uid"]

    await eventually(one_owner)
    east.put(POOL_RELAYS, relay("a-b"))

    async def both_ready() -> None:
        assert [east.ready(name)[1] for name in ("a", "a-b")] == ["Available", "Available"]

    await eventually(both_ready)
    await one_owner()
    await unchanged(pools.cluster(), user[0], east.namespace)
    east.delete(POOL_RELAYS, "a")

    async def taken_over() -> None:
        (reference,) = east.export("a-b-frontend")["metadata"]["ownerReferences"]
        assert reference["name"] == "a-b"

    await eventually(taken_over)
