"""The operator under exactly the roles that the chart renders, with RBAC on: it is refused nothing, and uses
what it is granted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS, SERVING_SERVICES
from isthmus.sandbox import Cluster, Sandbox
from isthmus.sandbox.pools import EXPORTS, GRAPHS, PROPERTIES, PROPERTY, RELAYS, Pools, definitions, example
from tests.support.chart import Right, exporting, render
from tests.support.controlplane import make_namespace, start_sandbox
from tests.support.eventually import eventually
from tests.support.installed import Installed, install, used
from tests.support.operator import OperatorProcess
from tests.support.rawapi import RawApi
from tests.support.world import World, serving, team

pytestmark = pytest.mark.apiserver

OWN = "chat-pool-relay"
CORE = "/api/v1/namespaces/{}"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}"
BROKEN = {"spec": {"selector": {"modelserving.volcano.sh/name": "x"}}}
UNSEEN = {
    ("workload.serving.volcano.sh", "modelservings", "get"): "after a conflict of a status, to look again",
    ("", "pods", "get"): "where a name is taken, to see by whom",
    ("apps", "controllerrevisions", "get"): "the same",
    ("", "pods", "patch"): "adopts pods of an earlier ModelServing of the name",
    ("apps", "controllerrevisions", "patch"): "the same",
    ("events.k8s.io", "events", "patch"): "the count of an event that happens again",
    ("about.k8s.io", "clusterproperties", "get"): "while its list has not come yet",
    ("multicluster.x-k8s.io", "serviceexports", "get"): "upstream's role has it",
    ("workload.serving.volcano.sh", "modelservings", "create"): "for a LeaderWorkerSet",
    ("workload.serving.volcano.sh", "modelservings", "patch"): "the same",
}
"""Rights that such a life does not use, and when they are."""
ELSEWHERE = ("scheduling.volcano.sh", "leaderworkerset.x-k8s.io")
"""API groups that this cluster has not."""
GIVEN_ON = ("endpoints", "endpointslices", "dynamoworkermetadatas")
"""What pods of graphs and relays may do; nobody may give what he has not."""


def needs_no_use(right: Right) -> bool:
    group, resource, _ = right
    # Asked for only where the API server has the admission plugin OwnerReferencesPermissionEnforcement.
    blocks_deletion = resource.endswith("/finalizers")
    return right in UNSEEN or blocks_deletion or group in ELSEWHERE or resource in GIVEN_ON


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A control plane of this file's own, so that the audit log has its operators alone."""
    with start_sandbox(nodes=1, audit=True, crds=definitions()) as started:
        yield started


@pytest.fixture(scope="module")
def own_cluster(sandbox: Sandbox) -> Cluster:
    return sandbox.cluster()


@pytest.fixture(scope="module")
def own_api(own_cluster: Cluster) -> Iterator[RawApi]:
    api = RawApi(own_cluster.kubeconfig())
    yield api
    api.close()


async def live_servings(world: World) -> None:
    """A ModelServing comes up, loses a pod and a Service's selector, is scaled and rolled, and goes."""
    world.create(serving("a", 2, team("p", 1, 1)))
    await world.settled()
    world.merge(
        SERVING_SERVICES,
        next(iter(world.services())),
        BROKEN,
    )
    world.delete(SERVING_PODS, "a-0-p-0-1")
    world.set_image("engine:2")
    await world.settled()
    world.scale(1)
    await world.settled()
    world.delete(MODEL_SERVINGS, "a", propagation="Background")

    async def gone() -> None:
        assert not world.pods()

    await eventually(gone)


DRIFT: tuple[tuple[str, str, Raw], ...] = (
    (EXPORTS, "chat-frontend", {"metadata": {"labels": {"nvidia.com/dynamo-graph-deployment-name": "x"}}}),
    (f"{CORE}/services", OWN, {"spec": {"selector": {"nvidia.com/dynamo-pool-relay": "x"}}}),
    (f"{CORE}/serviceaccounts", OWN, {"metadata": {"annotations": {"isthmus.dev/rendered-hash": "x"}}}),
    (f"{RBAC}/roles", OWN, {"rules": []}),
    (f"{RBAC}/rolebindings", OWN, {"subjects": []}),
    ("/apis/apps/v1/namespaces/{}/deployments", OWN, {"spec": {"replicas": 3}}),
)
"""Changes of what a relay owns, each of which is put right."""


def live_pools(pools: Pools) -> None:
    """A pool is exported, drifts and is put right; its frontend is renamed; its graph goes, and its relay."""
    graph, relay = example()
    raw_property = {"apiVersion": "about.k8s.io/v1beta1", "kind": "ClusterProperty"}
    pools.apply(PROPERTIES, raw_property | {"metadata": {"name": PROPERTY}, "spec": {"value": "west"}})
    pools.apply(GRAPHS, graph)
    pools.apply(RELAYS, relay)
    pools.wait("two exports", lambda: set(pools.exports()) == {OWN, "chat-frontend"})
    pools.wait("the relay is ready", lambda: pools.condition(RELAYS, "chat").get("status") == "True")
    for collection, name, change in DRIFT:
        before = _without_version(pools.get(collection, name))
        pools.merge(collection, name, change)
        pools.wait(f"{name} is put right", partial(_is, pools, collection, name, before))
    graph["spec"]["components"][0]["name"] = "Api"
    pools.apply(GRAPHS, graph)
    pools.wait("the export has the new name", lambda: set(pools.exports()) == {OWN, "chat-api"})
    pools.delete(GRAPHS, "chat")
    pools.wait("no export", lambda: not pools.exports())
    pools.wait("the reason", lambda: pools.condition(RELAYS, "chat").get("reason") == "GraphNotFound")
    pools.delete(RELAYS, "chat")


def _is(pools: Pools, collection: str, name: str, wanted: Raw) -> bool:
    return _without_version(pools.get(collection, name)) == wanted


def _without_version(obj: Raw) -> Raw:
    """What a repair must bring back."""
    kept = ("labels", "annotations", "ownerReferences")
    parts = {key: obj[key] for key in ("spec", "rules", "subjects") if key in obj}
    metadata = {key: value for key, value in obj["metadata"].items() if key in kept}
    metadata.get("annotations", {}).pop("deployment.kubernetes.io/revision", None)
    return parts | {"metadata": metadata}


@pytest.mark.covers("MS-119", "PR-102", "PR-103", "PR-104", "T-137", "T-138", "T-140")
@pytest.mark.parametrize("restricted", [True, False], ids=["restricted", "cluster-wide"])
@pytest.mark.timeout(120)
async def test_rendered_roles_must_be_what_a_life_needs(
    restricted: bool, own_cluster: Cluster, own_api: RawApi, tmp_path: Path
) -> None:
    def prepare() -> tuple[str, Installed]:
        home, team_a = (make_namespace(own_cluster, prefix) for prefix in ("home", "team"))
        values: Raw = exporting(namespaceRestriction={"enabled": restricted, "targetNamespace": team_a})
        return team_a, install(own_cluster, render(values, namespace=home), tmp_path)

    team_a, installed = await asyncio.to_thread(prepare)
    flags = f"--config={installed.config}"
    with OperatorProcess(installed.kubeconfig, tmp_path / "log", flags) as operator:
        await operator.ready()
        await live_servings(World(own_api, team_a))
        await asyncio.to_thread(live_pools, Pools(own_cluster, team_a))
        await operator.stop()
    needed, refused = await asyncio.to_thread(used, own_cluster, installed.user)
    assert refused == []
    assert needed <= installed.granted, sorted(needed - installed.granted)
    idle = {right for right in installed.granted - needed if not needs_no_use(right)}
    assert not idle, "\n".join(map(str, sorted(idle)))
