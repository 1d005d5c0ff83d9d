"""Pools through the operator on a real API server, with real processes behind them: the relay that the
operator deploys follows a graph and a ModelServing with the rights that its Role gives it, and no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
import pytest

from isthmus.api.endpointslices import ENDPOINT_SLICES
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS
from isthmus.api.poolrelay import POOL_RELAYS, RELAY_DEPLOYMENTS, RELAY_ROLES
from isthmus.sandbox import Cluster, Sandbox
from isthmus.sandbox.manifest import IMAGE
from isthmus.sandbox.pools import definitions
from isthmus.web.routes import Answer, Request, Route
from tests.support.chart import rights
from tests.support.controlplane import delete_namespace, make_namespace, start_sandbox
from tests.support.eventually import eventually
from tests.support.installed import used
from tests.support.operator import OperatorProcess
from tests.support.pools import GRAPHS, PoolWorld, relay
from tests.support.rawapi import RawApi
from tests.support.relaygrpc import MARKER, contract, method
from tests.support.relayrun import Discovery, serving
from tests.support.world import serving as model_serving

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

OWN = "chat-pool-relay"
SERVER = ["python", "-m", "isthmus.sandbox.openai", "--model", "example/tiny"]
CONFIG = """\
apiVersion: operator.config.dynamo.nvidia.com/v1alpha1
kind: OperatorConfiguration
relay:
  image: {image}:dev
  discovery: {{url: "{discovery}"}}
  location: {{region: here}}
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with start_sandbox(nodes=1, audit=True, crds=definitions()) as started:
        yield started


@pytest.fixture(scope="module")
def own_cluster(sandbox: Sandbox) -> Cluster:
    return sandbox.cluster()


@pytest.fixture
def world(own_cluster: Cluster) -> Iterator[PoolWorld]:
    api = RawApi(own_cluster.kubeconfig())
    name = make_namespace(own_cluster, "pool")
    yield PoolWorld(api, name, "chat")
    delete_namespace(own_cluster, name)
    api.close()


@pytest.fixture
async def discovery() -> AsyncIterator[Discovery]:
    paths = Everywhere(answer={"pool_id": "p", "heartbeat_interval_secs": 1, "lease_duration_secs": 3})
    async with serving(paths) as found:
        yield found


class Everywhere(Discovery):
    """A discovery service that takes registrations of any namespace back."""

    def routes(self) -> Any:
        async def delete(request: Request) -> Answer:
            self.left.append(request.path)
            return Answer(status=204)

        post, _ = super().routes()
        return [post, Route("/pools/{cluster}/{namespace}/{name}", {"DELETE": delete})]


@asynccontextmanager
async def operating(cluster: Cluster, folder: Path, discovery: Discovery) -> AsyncIterator[OperatorProcess]:
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(image=IMAGE, discovery=discovery.url))
    flags = (f"--config={config}", "--controllers=graph,poolrelay,modelserving")
    with OperatorProcess(cluster.kubeconfig("operator"), folder / "log", *flags) as operator:
        await operator.ready()
        yield operator


def component(name: str, kind: str, **main: Any) -> Raw:
    container = {"name": "main", "image": "registry.example/engine:1"} | main
    return {"name": name, "type": kind, "podTemplate": {"spec": {"containers": [container]}}}


def graph() -> Raw:
    """A real frontend and a worker that is only claimed."""
    frontend = component("Frontend", "frontend", image=f"{IMAGE}:dev", command=SERVER)
    return {
        "apiVersion": GRAPHS.api_version,
        "kind": GRAPHS.kind,
        "metadata": {"name": "chat"},
        "spec": {"components": [frontend, component("Engine", "worker", command=["engine"])]},
    }


class Asking:
    """Asks the relay's Service as a router of another cluster would: through what carries pods' addresses."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._proxy = cluster.proxy
        self._base = f"http://{OWN}.{namespace}:5561"

    async def page(self, name: str) -> Raw:
        """One of its pages; AssertionError where it does not answer."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self._base}/v1/{name}", proxy=self._proxy) as answer,
            ):
                body = await answer.text()
                assert answer.status == 200, body
                found: Raw = json.loads(body)
                return found
        except aiohttp.ClientError as error:
            raise AssertionError(error) from error

    async def states(self, **expected: str) -> None:
        """Return once the models have these states (`_` for `/`)."""

        async def check() -> None:
            found = await self.page("readiness")
            states = {each["model"].replace("/", "_"): each["state"] for each in found["entries"]}
            assert states == expected, found

        await eventually(check, within_s=60)


async def frontends(discovery: Discovery, count: int) -> Raw:
    """The last registration, once it has so many frontends."""

    async def check() -> Raw:
        assert discovery.registered
        last: Raw = discovery.registered[-1]
        assert len(last["frontends"]) == count, last
        return last

    return await eventually(check, within_s=60)


def account(world: PoolWorld) -> str:
    return f"system:serviceaccount:{world.namespace}:{OWN}"


async def used_exactly_its_rights(cluster: Cluster, world: PoolWorld) -> None:
    def check() -> None:
        needed, refused = used(cluster, account(world))
        assert refused == []
        assert needed == rights(world.get(RELAY_ROLES, OWN))

    await asyncio.to_thread(check)


@pytest.mark.covers("RL-1", "RL-4", "RL-9", "RL-10", "RL-11", "RL-18", "PR-21", "PW-1", "PW-5", "PW-13")
async def test_relay_of_a_graph_must_follow_its_pool_from_start_to_end(
    own_cluster: Cluster, world: PoolWorld, discovery: Discovery, tmp_path: Path
) -> None:
    asking = Asking(own_cluster, world.namespace)
    async with operating(own_cluster, tmp_path, discovery):
        world.put(GRAPHS, graph())
        world.put(POOL_RELAYS, relay("chat", clusterId="east"))
        await asking.states(example_tiny="READY")
        identity = await asking.page("relay")
        assert (identity["cluster_id"], identity["name"], identity["models"]) == (
            "east",
            "chat",
            ["example/tiny"],
        )
        registered = await frontends(discovery, 1)
        assert registered["relay"]["url"].startswith("http://198.")
        assert registered["location"] == {"region": "here", "cluster": "east"}
        assert registered["runtime_namespaces"] == [f"{world.namespace}-chat"]

        async def loaded() -> None:
            found = await asking.page("load")
            assert (found["status"], found["entries"][0]["generating"]) == ("complete", 0)

        await eventually(loaded)

        port = await asyncio.to_thread(own_cluster.local_port, f"{OWN}.{world.namespace}", 5561)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            watch = method(channel, "WatchKvPoolCatalog", "Subscription", "KvPoolCatalogUpdate")
            request = contract().Subscription(subscriber_id="test", contract_marker=MARKER)
            update = await anext(aiter(watch(request)))
        (pool,) = update.snapshot.pools
        assert [each.canonical_model_id for each in pool.registrations] == ["example/tiny"]
        assert (pool.serving_endpoint.component, list(pool.pool_roles)) == ("engine", [4])

        def scale(frontends_: int, workers: int) -> None:
            components = graph()["spec"]["components"]
            components[0]["replicas"], components[1]["replicas"] = frontends_, workers
            world.merge(GRAPHS, "chat", {"spec": {"components": components}})

        scale(2, 1)
        assert len({each["url"] for each in (await frontends(discovery, 2))["frontends"]}) == 2
        scale(2, 0)
        await asking.states(example_tiny="UNAVAILABLE")
        scale(0, 1)
        await frontends(discovery, 0)
        await asking.states(example_tiny="UNAVAILABLE")
        scale(1, 1)
        await asking.states(example_tiny="READY")
        (slice_, *_) = (
            name
            for name, each in world.find(ENDPOINT_SLICES).items()
            if each["metadata"]["labels"].get("nvidia.com/dynamo-component") == "Frontend"
        )
        world.delete(ENDPOINT_SLICES, slice_)  # its controller makes another
        await asyncio.sleep(0.5)
        await asking.states(example_tiny="READY")
        assert world.ready() == ("True", "Available")
        await used_exactly_its_rights(own_cluster, world)
        world.delete(POOL_RELAYS, "chat")

        async def left() -> None:
            assert discovery.left == [f"/pools/east/{world.namespace}/chat"]

        await eventually(left, within_s=60)


def tiny_serving(replicas: int) -> Raw:
    """A ModelServing whose entry is a real server, without workers and so without Services."""
    container = {
        "name": "engine",
        "image": f"{IMAGE}:dev",
        "command": SERVER,
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    }
    part = {
        "name": "p",
        "replicas": 1,
        "workerReplicas": 0,
        "entryTemplate": {"spec": {"containers": [container]}},
    }
    return model_serving("chat", replicas, part)


@pytest.mark.covers("RL-4", "RL-9", "RL-10", "RL-18", "PR-21", "PW-13")
async def test_relay_of_a_modelserving_must_follow_its_entry_pods(
    own_cluster: Cluster, world: PoolWorld, discovery: Discovery, tmp_path: Path
) -> None:
    asking = Asking(own_cluster, world.namespace)
    async with operating(own_cluster, tmp_path, discovery):
        world.create(tiny_serving(1))
        target = {"apiVersion": MODEL_SERVINGS.api_version, "kind": MODEL_SERVINGS.kind, "name": "chat"}
        world.put(POOL_RELAYS, relay("chat", clusterId="east", targetRef=target))
        await asking.states(example_tiny="READY")
        await frontends(discovery, 1)
        world.scale(2, "chat")
        both = await frontends(discovery, 2)
        assert {each["service"] for each in both["frontends"]} == {"chat-0-p-0-0", "chat-1-p-0-0"}
        world.scale(0, "chat")
        await asking.states(example_tiny="UNAVAILABLE")
        await frontends(discovery, 0)
        await used_exactly_its_rights(own_cluster, world)
        assert world.find(SERVING_PODS, "modelserving.volcano.sh/name=chat") == {}


@pytest.mark.covers("RL-8", "PW-2")
async def test_relay_that_is_started_anew_must_be_another_run(
    own_cluster: Cluster, world: PoolWorld, discovery: Discovery, tmp_path: Path
) -> None:
    asking = Asking(own_cluster, world.namespace)
    async with operating(own_cluster, tmp_path, discovery):
        world.put(GRAPHS, graph())
        world.put(POOL_RELAYS, relay("chat", clusterId="east"))
        await asking.states(example_tiny="READY")
        first = (await asking.page("relay"))["incarnation"]
        uid = world.get(RELAY_DEPLOYMENTS, OWN)["metadata"]["uid"]
        pods = [
            name
            for name, pod in world.find(SERVING_PODS).items()
            if pod["metadata"]["labels"].get("nvidia.com/dynamo-pool-relay") == "chat"
        ]
        world.delete(SERVING_PODS, pods[0])

        async def another() -> None:
            second = await asking.page("relay")
            assert second["incarnation"] != first
            assert second["models"] == ["example/tiny"]

        await eventually(another, within_s=60)
        assert world.get(RELAY_DEPLOYMENTS, OWN)["metadata"]["uid"] == uid
        incarnations = [each["relay"]["incarnation"] for each in discovery.registered]
        assert incarnations[0] == first
        assert len(discovery.left) == 1

        async def registered() -> None:
            assert discovery.registered[-1]["relay"]["incarnation"] != first

        await eventually(registered)
