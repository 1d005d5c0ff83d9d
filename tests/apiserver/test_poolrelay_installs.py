"""Relays where things are otherwise: exports at v1beta1 only, one namespace, rights that come and go, an
About API that comes later, an operator that was away, and exporting switched off again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isthmus.api.dynamo.names import GRAPH_LABEL
from isthmus.api.meta import Object, Raw, Resource
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.poolrelay import POOL_RELAYS
from isthmus.sandbox import Cluster, Sandbox, multicluster
from isthmus.sandbox.rbac import OPERATOR_RULES
from tests.support.audit import writes_in
from tests.support.controlplane import delete_namespace, make_namespace, make_user, requests_of, start_sandbox
from tests.support.eventually import eventually
from tests.support.faultproxy import FaultProxy
from tests.support.operator import OperatorProcess, address_of, proxied
from tests.support.pools import (
    EXPORTS,
    FLAGS,
    GRAPHS,
    PoolWorld,
    configure,
    definitions,
    graph,
    relay,
)
from tests.support.rawapi import RawApi
from tests.support.world import serving

BOTH = {"east-pool-relay", "east-frontend"}
RBAC = "rbac.authorization.k8s.io"
BINDINGS: Resource[Object] = Resource(
    group=RBAC,
    version="v1",
    plural="clusterrolebindings",
    kind="ClusterRoleBinding",
    type=Object,
    namespaced=False,
)
ROLES: Resource[Object] = Resource(
    group=RBAC, version="v1", plural="clusterroles", kind="ClusterRole", type=Object, namespaced=False
)
Start = Callable[..., OperatorProcess]


@pytest.fixture(scope="module")
def beta() -> Iterator[Sandbox]:
    """A control plane that serves exports at v1beta1 only, and no About API yet."""
    crds = [each for each in definitions(("v1beta1",)) if each["spec"]["group"] != multicluster.ABOUT_GROUP]
    with start_sandbox(nodes=1, audit=True, crds=crds) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def cluster(beta: Sandbox) -> Cluster:
    return beta.cluster()


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[RawApi]:
    found = RawApi(cluster.kubeconfig())
    yield found
    found.close()


@pytest.fixture
def east(cluster: Cluster, api: RawApi) -> Iterator[PoolWorld]:
    name = make_namespace(cluster, "pools")
    yield PoolWorld(api, name)
    delete_namespace(cluster, name)


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Start]:
    """Starts operators with the rights of the operator's role, or another's kubeconfig; ends them all."""
    started: list[OperatorProcess] = []

    def begin(*arguments: str, kubeconfig: Path | None = None) -> OperatorProcess:
        path = kubeconfig or cluster.kubeconfig("operator")
        log = tmp_path / f"log-{len(started)}"
        process = OperatorProcess(path, log, *FLAGS, *arguments)
        started.append(process.__enter__())
        return process

    yield begin
    for process in started:
        process.kill()


def probes(cluster: Cluster, user: str) -> list[str]:
    """The questions of which versions of exports are served."""
    group = f"/apis/{EXPORTS.group}"
    return [what for _, what, _ in requests_of(cluster, user) if what.startswith(group)]


@pytest.mark.covers("PR-7", "PR-9", "PR-13", "PR-33", "PR-113", "R41")
@pytest.mark.covers("T-23", "T-24", "T-25", "T-53", "T-55", "T-67", "T-68")
async def test_whole_life_must_work_at_v1beta1_and_past_an_absence(
    east: PoolWorld, cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    user, kubeconfig = await asyncio.to_thread(make_user, cluster, prefix="beta")
    config = configure(tmp_path)
    first = start(config, kubeconfig=kubeconfig)
    await first.ready()
    assert '"multiClusterExport": "v1beta1"' in first.output
    probed = probes(cluster, user)
    east.start()
    await east.until(BOTH)
    assert east.export("east-frontend")["apiVersion"] == "multicluster.x-k8s.io/v1beta1"
    east.take(EXPORTS, "east-frontend", labels={GRAPH_LABEL: "west"})

    async def repaired() -> None:
        assert east.export("east-frontend")["metadata"]["labels"] == {GRAPH_LABEL: "east"}

    await eventually(repaired)
    east.reshape(("Api", "frontend"), ("Engine", "worker"))
    await east.until({"east-pool-relay", "east-api"})
    assert probes(cluster, user) == probed, "the gate is resolved once"
    assert await first.stop() == 0
    before = east.export("east-api")["metadata"]["uid"]
    east.delete(GRAPHS, "east")
    east.put(GRAPHS, graph("east", ("Gateway", "frontend"), ("Engine", "worker")))
    second = start(config, kubeconfig=kubeconfig)
    await second.ready()
    await east.until({"east-pool-relay", "east-gateway"})
    assert before not in {each["metadata"]["uid"] for each in east.find(EXPORTS).values()}


@pytest.mark.covers("PR-14", "PR-15", "PR-79", "PR-80", "PR-90", "PR-97", "PR-100", "PR-111", "R41")
@pytest.mark.covers("GD-53", "T-38", "T-46", "T-48", "T-52", "T-56", "T-116")
async def test_restricted_operator_must_follow_an_about_api_that_comes_later(
    east: PoolWorld, cluster: Cluster, api: RawApi, start: Start, tmp_path: Path
) -> None:
    other = PoolWorld(api, await asyncio.to_thread(make_namespace, cluster, "other"))
    other.start()
    process = start(configure(tmp_path), f"--namespace={east.namespace}")
    await process.ready()
    east.start()
    await east.until(BOTH)
    assert {each["name"] for each in east.related("ExportCreated")} == BOTH
    await asyncio.to_thread(cluster.install_crds, [multicluster.cluster_properties()])
    for times, value in enumerate(("two", "three"), start=1):
        east.set_property(value)

        async def told(times: int = times, value: str = value) -> None:
            found = [each["note"] for each in east.events("east", "ClusterIDMismatch")]
            assert len(found) == times
            assert any(value in note for note in found)

        await eventually(told)
    east.set_property("one")
    assert east.ready()[0] == "True"
    assert other.exports() == set()
    assert other.ready() == ("", "")
    await asyncio.to_thread(delete_namespace, cluster, other.namespace)


def role_without(name: str, resource: str, *lacking: str) -> Raw:
    """The operator's role, but with these verbs on one resource less."""
    rules = [
        {
            "apiGroups": [group],
            "resources": [each],
            "verbs": [verb for verb in verbs if verb not in lacking or each != resource],
        }
        for group, resources, verbs in OPERATOR_RULES
        for each in resources
    ]
    kept = [rule for rule in rules if rule["verbs"]]
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": kept}


def right(user: str, group: str, resource: str, *verbs: str) -> tuple[Raw, Raw]:
    """The missing right as a role, and its binding to the user."""
    name = f"{user}-right"
    rule = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
    }
    return role, binding


@pytest.mark.covers("PR-74", "PR-75", "PR-78", "T-27", "T-54", "T-86", "T-119")
async def test_refused_export_must_come_by_backoff_alone_once_it_is_allowed(
    east: PoolWorld, cluster: Cluster, api: RawApi, start: Start, tmp_path: Path
) -> None:
    assert api.create(ROLES, role_without("relays-limited", "serviceexports", "create")).code == 201
    user, kubeconfig = await asyncio.to_thread(make_user, cluster, prefix="limited", role="relays-limited")
    role, binding = right(user, "multicluster.x-k8s.io", "serviceexports", "create")
    assert api.create(ROLES, role).code == 201
    assert api.create(BINDINGS, binding).code == 201
    process = start(configure(tmp_path), f"--namespace={east.namespace}", kubeconfig=kubeconfig)
    await process.ready()
    east.start()
    await east.until(BOTH)
    assert api.delete(BINDINGS, "", binding["metadata"]["name"]).code == 200

    def refused() -> list[int]:
        rows = writes_in(cluster, user, east.namespace)
        return [
            row.code
            for row in rows
            if (row.verb, row.resource, row.code) == ("create", "serviceexports", 403)
        ]

    east.delete(EXPORTS, "east-frontend")

    async def tried() -> None:
        assert len(refused()) >= 3

    await eventually(tried)
    assert east.exports() == {"east-pool-relay"}
    assert east.ready() == ("True", "Available")
    assert "ExportFailed" in east.reasons()
    assert api.create(BINDINGS, binding).code == 201
    await east.until(BOTH)
    count = len(refused())
    await asyncio.sleep(0.5)
    assert len(refused()) == count


@pytest.mark.covers("PR-73", "T-109")
async def test_exports_that_cannot_be_listed_must_end_the_start_before_any_write(
    east: PoolWorld, cluster: Cluster, api: RawApi, start: Start, tmp_path: Path
) -> None:
    assert api.create(ROLES, role_without("relays-blind", "serviceexports", "list")).code == 201
    user, kubeconfig = await asyncio.to_thread(make_user, cluster, prefix="blind", role="relays-blind")
    east.start()
    process = start(configure(tmp_path), f"--namespace={east.namespace}", kubeconfig=kubeconfig)
    assert await process.wait() == 2
    assert "not allowed to list serviceexports.multicluster.x-k8s.io" in process.output
    assert writes_in(cluster, user, east.namespace) == []


@pytest.mark.covers("PR-33", "PR-73", "PR-78", "R36")
async def test_graphs_that_cannot_be_read_must_withdraw_nothing(
    east: PoolWorld, cluster: Cluster, api: RawApi, start: Start, tmp_path: Path
) -> None:
    assert api.create(ROLES, role_without("relays-graphless", GRAPHS.plural, "list", "watch")).code == 201
    user, kubeconfig = await asyncio.to_thread(
        make_user, cluster, prefix="graphless", role="relays-graphless"
    )
    role, binding = right(user, GRAPHS.group, GRAPHS.plural, "list", "watch")
    assert api.create(ROLES, role).code == 201
    assert api.create(BINDINGS, binding).code == 201
    async with FaultProxy(*address_of(kubeconfig)) as proxy:
        path = proxied(kubeconfig, proxy.listen_port, tmp_path)
        process = start(configure(tmp_path), f"--namespace={east.namespace}", kubeconfig=path)
        await process.ready()
        east.start()
        await east.until(BOTH)
        uids = {name: each["metadata"]["uid"] for name, each in east.find(EXPORTS).items()}
        assert api.delete(BINDINGS, "", binding["metadata"]["name"]).code == 200
        proxy.reset_all()

        async def refused() -> None:
            asked = await asyncio.to_thread(requests_of, cluster, user)
            assert [code for _, what, code in asked if what == GRAPHS.plural].count(403) >= 2

        await eventually(refused)
        east.take(EXPORTS, "east-frontend", labels={GRAPH_LABEL: "west"})

        async def repaired() -> None:
            assert east.export("east-frontend")["metadata"]["labels"] == {GRAPH_LABEL: "east"}

        await eventually(repaired)
        assert {name: each["metadata"]["uid"] for name, each in east.find(EXPORTS).items()} == uids
        east.reshape(("Api", "frontend"), ("Engine", "worker"))
        assert api.create(BINDINGS, binding).code == 201
        await east.until({"east-pool-relay", "east-api"})


@pytest.mark.covers("PR-16", "PR-38")
async def test_relay_of_a_modelserving_must_follow_its_controller_in_the_same_operator(
    east: PoolWorld, start: Start, tmp_path: Path
) -> None:
    scope = f"--namespace={east.namespace}"
    process = start(configure(tmp_path), scope, "--controllers=modelserving,poolrelay")
    await process.ready()
    target = {"apiVersion": MODEL_SERVINGS.api_version, "kind": "ModelServing", "name": "chat"}
    east.create(serving("chat", 1))
    east.put(POOL_RELAYS, relay("east", targetRef=target))
    first = {"east-pool-relay", "chat-0-p-0-0"}
    await east.until(first)
    east.scale(2, "chat")
    await east.until({*first, "chat-1-p-0-0"})
    east.scale(0, "chat")
    await east.until({"east-pool-relay"})
    assert "NoFrontend" in east.reasons()


@pytest.mark.covers("PR-4", "PR-110", "T-63", "T-141")
async def test_clearing_the_setting_must_withdraw_what_relays_exported_and_nothing_else(
    east: PoolWorld, cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    process = start(configure(tmp_path), f"--namespace={east.namespace}")
    await process.ready()
    east.start()
    await east.until(BOTH)
    await process.stop()
    mine = {"apiVersion": EXPORTS.api_version, "kind": EXPORTS.kind, "metadata": {"name": "a-users"}}
    east.put(EXPORTS, mine)

    user, kubeconfig = await asyncio.to_thread(make_user, cluster, prefix="off")
    scope = f"--namespace={east.namespace}"
    kept = start(configure(tmp_path, "", "sweepOnClear: false"), scope, kubeconfig=kubeconfig)
    await kept.ready()
    east.put(POOL_RELAYS, relay("west"))

    async def seen() -> None:
        assert east.ready("west")[1] == "GraphNotFound"

    await eventually(seen)
    assert east.exports() == {*BOTH, "a-users"}
    asked = {what for _, what, _ in requests_of(cluster, user)}
    assert not [
        what for what in asked if "serviceexport" in what or "multicluster" in what or "about" in what
    ]
    await kept.stop()

    swept = start(configure(tmp_path, ""), scope)
    await swept.ready()
    await east.until({"a-users"})
