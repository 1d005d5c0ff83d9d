"""Imports on a real API server, as Cilium and Karmada make them, joined with registrations (DS-9 to DS-14).

A test plays the implementation, and above all what one may leave behind (R37), forget to update (R38), or
show although nobody is there (R42). Registrations come over real sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from isthmus.api.pools import Registration
from isthmus.cli.discovery import command
from isthmus.discovery import sources
from isthmus.discovery.plan.imports import SERVICE_IMPORTS
from isthmus.discovery.plan.join import KARMADA, MCS
from isthmus.kube.client import Client
from isthmus.sandbox import Cluster, multicluster
from tests.support.controlplane import delete_namespace, make_namespace, requests_of, start_sandbox
from tests.support.crds import CRDS, install
from tests.support.discoveries import registration
from tests.support.discoveryrun import Asking, Running, discovering
from tests.support.eventually import always, eventually
from tests.support.faultproxy import FaultProxy
from tests.support.imported import FRONTEND, READY, RELAY, Imported
from tests.support.operator import ROOT, address_of, proxied
from tests.support.places import load
from tests.support.rawapi import RawApi

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def router_cluster() -> Iterator[Cluster]:
    with start_sandbox(nodes=1, audit=True, crds=[multicluster.service_imports()]) as started:
        yield started.cluster()


@pytest.fixture
def imported(router_cluster: Cluster) -> Iterator[Imported]:
    api = RawApi(router_cluster.kubeconfig())
    name = make_namespace(router_cluster, "serving")
    yield Imported(api, name)
    for resource in SERVICE_IMPORTS[:1]:
        api.delete(resource, name)
    delete_namespace(router_cluster, name)
    api.close()


@asynccontextmanager
async def joining(kubeconfig: Path, mode: str = MCS) -> AsyncIterator[Running]:
    async with Client(await load(kubeconfig)) as client, discovering(mode=mode, client=client) as running:
        yield running


@pytest.fixture
async def running(router_cluster: Cluster) -> AsyncIterator[Running]:
    async with joining(router_cluster.kubeconfig()) as found:
        await until_ready(found.asking)
        yield found


async def until_ready(asking: Asking, *, within_s: float = 30) -> None:
    async def check() -> None:
        answer = await asking.get("/readyz")
        assert answer.status == 200, answer.body

    await eventually(check, within_s=within_s)


class Fleet:
    """The registrations of some clusters, and what is listed of this test's namespace."""

    def __init__(self, asking: Asking, namespace: str) -> None:
        self.asking = asking
        self.namespace = namespace

    def registration(self, cluster: str, **more: Any) -> Registration:
        return replace(registration(cluster, namespace=self.namespace), **more)

    async def register(self, *clusters: str) -> None:
        for cluster in clusters:
            answer = await self.asking.register(self.registration(cluster))
            assert answer.status in (200, 201), answer.body

    async def listed(self) -> dict[str, tuple[str, ...]]:
        """Frontends by cluster."""
        pools = (await self.asking.get("/pools")).pools.pools
        return {pool.cluster_id: pool.frontend_urls for pool in pools if pool.namespace == self.namespace}

    async def until(self, wanted: dict[str, tuple[str, ...]], *, within_s: float = 10) -> None:
        async def check() -> None:
            assert await self.listed() == wanted

        await eventually(check, within_s=within_s)

    async def reasons(self) -> set[tuple[str, str, str]]:
        rows = (await self.asking.get("/pools/unmatched")).json["unmatched"]
        return {
            (row["kind"], row["cluster_id"], row["reason"])
            for row in rows
            if row["namespace"] == self.namespace
        }

    async def until_told(self, *wanted: tuple[str, str, str]) -> None:
        async def check() -> None:
            assert await self.reasons() == set(wanted)

        await eventually(check, within_s=10)


@pytest.fixture
async def fleet(running: Running, imported: Imported) -> Fleet:
    return Fleet(running.asking, imported.namespace)


EAST, WEST = ("http://10.1.0.7:8000",), ("http://10.2.0.7:8000",)


@pytest.mark.covers("DS-9", "DS-10", "DS-12", "DS-14", "PW-7", "PW-12", "D-13")
async def test_pool_must_be_listed_once_registration_import_and_slices_are_there(
    imported: Imported, fleet: Fleet
) -> None:
    await fleet.register("east")
    await fleet.until_told(("registration", "east", "no_relay_import"))
    imported.pool("east", "10.1.0.7")
    await fleet.until({"east": EAST})
    imported.pool("west", "10.2.0.7")
    await fleet.until_told(("import", "west", "no_registration"))
    await fleet.register("west")
    await fleet.until({"east": EAST, "west": WEST})
    (pool, _) = (await fleet.asking.get("/pools")).pools.pools
    assert (pool.relay_urls, pool.source) == (("http://10.1.0.7:5561",), "registration+import")
    await fleet.asking.ask("DELETE", f"/pools/east/{fleet.namespace}/chat")
    await fleet.until({"west": WEST})


@pytest.mark.covers("DS-10", "PW-12")
async def test_cluster_that_is_called_otherwise_must_be_told_on_both_sides(
    imported: Imported, fleet: Fleet
) -> None:
    imported.pool("cluster-0", "10.1.0.7")
    await fleet.register("east")
    await fleet.until_told(
        ("registration", "east", "cluster_id_differs"), ("import", "cluster-0", "cluster_id_differs")
    )
    assert await fleet.listed() == {}


@pytest.mark.covers("R37")
@pytest.mark.parametrize("leftover", ["import gone late", "no cluster listed", "cluster not listed"])
async def test_leftover_of_a_withdrawn_export_never_is_a_backend(
    imported: Imported, fleet: Fleet, leftover: str
) -> None:
    for cluster, address in (("east", "10.1.0.7"), ("west", "10.2.0.7")):
        imported.pool(cluster, address)
        await fleet.register(cluster)
    await fleet.until({"east": EAST, "west": WEST})
    for service in (RELAY, FRONTEND):
        if leftover == "import gone late":
            imported.no_import(service)
        elif leftover == "no cluster listed":
            imported.lists(service, keep=False)
        else:
            imported.lists(service, "west", keep=False)
    stays: dict[str, tuple[str, ...]] = {"west": WEST} if leftover == "cluster not listed" else {}
    await fleet.until(stays)
    assert ("registration", "east", "import_withdrawn") in await fleet.reasons()
    # The relay goes, and its slices stay for good: still nothing of it.
    await fleet.asking.ask("DELETE", f"/pools/east/{fleet.namespace}/chat")

    async def nothing() -> None:
        assert await fleet.listed() == stays

    await always(nothing, for_s=0.5)


@pytest.mark.covers("R37", "PW-6")
async def test_import_that_stays_never_keeps_a_pool_whose_relay_has_gone(
    imported: Imported, fleet: Fleet
) -> None:
    imported.pool("east", "10.1.0.7")
    await fleet.register("east")
    await fleet.until({"east": EAST})
    await fleet.asking.ask("DELETE", f"/pools/east/{fleet.namespace}/chat")
    await fleet.until({})
    await fleet.until_told(("import", "east", "no_registration"))


@pytest.mark.covers("R38")
async def test_service_that_is_made_anew_or_moves_its_port_must_be_followed(
    imported: Imported, fleet: Fleet
) -> None:
    imported.pool("east", "10.1.0.7")
    await fleet.register("east")
    await fleet.until({"east": EAST})
    imported.slice("east", FRONTEND, ["10.1.0.7"], port=9090)
    await fleet.until({"east": ("http://10.1.0.7:9090",)})
    imported.no_slice("east", FRONTEND)
    await fleet.until({"east": ()})
    imported.slice("east", FRONTEND, ["10.1.0.99"])
    await fleet.until({"east": ("http://10.1.0.99:8000",)})
    imported.slice("east", RELAY, ["10.1.0.98"], port=7777)

    async def relay() -> None:
        (pool,) = (await fleet.asking.get("/pools")).pools.pools
        assert pool.relay_urls == ("http://10.1.0.98:7777",)

    await eventually(relay, within_s=10)


@pytest.mark.covers("R42", "DS-15")
async def test_pool_without_usable_endpoints_must_be_down_and_come_back(
    imported: Imported, fleet: Fleet
) -> None:
    for cluster, address in (("east", "10.1.0.7"), ("west", "10.2.0.7")):
        imported.pool(cluster, address)
        await fleet.register(cluster)
    await fleet.until({"east": EAST, "west": WEST})
    leaving: Any = {"ready": False, "serving": True, "terminating": True}
    for addresses, conditions in (
        ([], READY),
        (["10.1.0.7"], READY | {"ready": False}),
        (["10.1.0.7"], leaving),
    ):
        imported.slice("east", FRONTEND, addresses, conditions=conditions)
        await fleet.until({"east": (), "west": WEST})
        imported.slice("east", FRONTEND, ["10.1.0.7"], conditions={})
        await fleet.until({"east": EAST, "west": WEST})
    imported.slice("east", RELAY, ["10.1.0.7"], conditions=READY | {"ready": False})
    await fleet.until({"west": WEST})
    await fleet.until_told(("registration", "east", "relay_not_ready"))
    imported.slice("east", RELAY, ["10.1.0.7"])
    await fleet.until({"east": EAST, "west": WEST})


@pytest.mark.covers("D-15", "DS-15")
async def test_address_of_version_6_must_be_in_brackets(imported: Imported, fleet: Fleet) -> None:
    for service in (RELAY, FRONTEND):
        imported.slice("east", service, ["fd00::7"], v6=True)
        imported.lists(service, "east")
    await fleet.register("east")
    await fleet.until({"east": ("http://[fd00::7]:8000",)})


async def test_import_without_slices_must_stand_for_its_only_cluster_and_else_say_why_not(
    imported: Imported, fleet: Fleet
) -> None:
    imported.lists(RELAY, "east", ips=["10.9.0.1"])
    imported.lists(FRONTEND, "east", ips=["10.9.0.2"])
    await fleet.register("east", "west")
    await fleet.until({"east": ("http://10.9.0.2:8000",)})
    imported.lists(RELAY, "west", ips=["10.9.0.1"])
    await fleet.until({})
    await fleet.until_told(("registration", "east", "no_endpoints"), ("registration", "west", "no_endpoints"))


@pytest.mark.covers("DS-14")
async def test_watch_that_is_cut_must_miss_nothing(
    router_cluster: Cluster, imported: Imported, tmp_path: Path
) -> None:
    kubeconfig = router_cluster.kubeconfig()
    async with (
        FaultProxy(*address_of(kubeconfig)) as proxy,
        joining(proxied(kubeconfig, proxy.listen_port, tmp_path)) as running,
    ):
        await until_ready(running.asking)
        fleet = Fleet(running.asking, imported.namespace)
        await fleet.register("east")
        for number in range(5):
            proxy.reset_all()
            imported.pool("east", f"10.1.0.{number + 1}")
            await fleet.until({"east": (f"http://10.1.0.{number + 1}:8000",)})
        proxy.refuse()
        imported.pool("east", "10.1.0.99")
        proxy.reset_all()

        async def stays() -> None:
            assert await fleet.listed() == {"east": ("http://10.1.0.5:8000",)}
            assert (await running.asking.get("/healthz")).status == 200

        await always(stays, for_s=0.5)
        proxy.heal()
        await fleet.until({"east": ("http://10.1.0.99:8000",)}, within_s=30)
        assert await running.asking.metric("gds_source_watch_failures_total") > 0


RIGHTS = "rbac.authorization.k8s.io/v1"


@pytest.mark.covers("PW-11")
@pytest.mark.parametrize("missing", ["endpointslices", "serviceimports"])
async def test_right_that_is_missing_must_keep_it_unready_and_be_named(
    router_cluster: Cluster, imported: Imported, missing: str
) -> None:
    user = f"without-{missing}-{imported.namespace}"
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]}
        for group, resource in (
            ("discovery.k8s.io", "endpointslices"),
            ("multicluster.x-k8s.io", "serviceimports"),
        )
    ]
    body = {"apiVersion": RIGHTS, "kind": "ClusterRole", "metadata": {"name": user}}
    path = f"/apis/{RIGHTS}/clusterroles"
    some = [rule for rule in rules if missing not in rule["resources"]]

    async def ask(path: str, **more: Any) -> None:
        await asyncio.to_thread(router_cluster.request, path, **more)

    await ask(path, method="POST", body=body | {"rules": some})
    kubeconfig = await asyncio.to_thread(router_cluster.add_user, user, role=user)
    async with joining(kubeconfig) as running:

        async def told() -> None:
            answer = await running.asking.get("/readyz")
            assert (answer.status, b"listed yet: denied" in answer.body) == (503, True), answer.body

        await eventually(told, within_s=20)
        kind = "EndpointSlices" if missing == "endpointslices" else "ServiceImports"
        assert kind.encode() in (await running.asking.get("/readyz")).body
        assert not (await running.asking.get("/pools")).pools.complete
        await ask(f"{path}/{user}", method="PUT", body=body | {"rules": rules})
        await until_ready(running.asking, within_s=60)


@pytest.fixture
def bare() -> Iterator[tuple[Cluster, Imported]]:
    """A cluster in which nobody serves ServiceImports yet."""
    with start_sandbox(nodes=1, crds=[]) as sandbox:
        cluster = sandbox.cluster()
        api = RawApi(cluster.kubeconfig())
        yield cluster, Imported(api, make_namespace(cluster, "serving"), resource=SERVICE_IMPORTS[1])
        api.close()


@pytest.mark.covers("R41")
async def test_imports_that_are_served_later_or_in_one_version_must_be_found(
    bare: tuple[Cluster, Imported], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PROBE_S", 1.0)
    cluster, imported = bare
    async with joining(cluster.kubeconfig()) as running:
        await until_ready(running.asking)
        fleet = Fleet(running.asking, imported.namespace)
        for service in (RELAY, FRONTEND):
            imported.slice("east", service, ["10.1.0.7"])
        await fleet.register("east")
        await fleet.until({"east": EAST})  # nobody says what is imported: the slices alone count
        path = SERVICE_IMPORTS[1].path(imported.namespace)
        install(
            imported.api,
            multicluster.service_imports(["v1alpha1"]),
            active=lambda: imported.api.call("GET", path).code == 200,
        )
        await fleet.register("east")
        await fleet.until({}, within_s=14)
        imported.pool("east", "10.1.0.7")
        await fleet.register("east")
        await fleet.until({"east": EAST})
        imported.no_import(RELAY)
        await fleet.until({})
        imported.api.call("DELETE", CRDS.path(name="serviceimports.multicluster.x-k8s.io"))
        await fleet.register("east")
        await fleet.until({"east": EAST}, within_s=14)


@pytest.mark.covers("DS-12", "DS-13")
@pytest.mark.parametrize(("file", "mode"), [("mcs.yaml", MCS), ("karmada-rights.yaml", KARMADA)])
async def test_rights_of_the_examples_must_be_enough_and_all_be_used(
    router_cluster: Cluster, imported: Imported, file: str, mode: str
) -> None:
    (role,) = [each for each in documents(file) if each["kind"] == "ClusterRole"]
    name = f"{role['metadata']['name']}-{imported.namespace}"
    role["metadata"]["name"] = name
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    await asyncio.to_thread(router_cluster.request, path, method="POST", body=role)
    kubeconfig = await asyncio.to_thread(router_cluster.add_user, name, role=name)
    async with joining(kubeconfig, mode) as running:
        await until_ready(running.asking)
        fleet = Fleet(running.asking, imported.namespace)
        await fleet.register("east")
        if mode == MCS:
            imported.pool("east", "10.1.0.7")
        else:
            for service in (RELAY, FRONTEND):
                imported.karmada_slice("east", service, ["10.1.0.7"])
        await fleet.until({"east": EAST})
    granted = {(rule["resources"][0], verb) for rule in role["rules"] for verb in rule["verbs"]}
    asked = {
        (resource, verb) for verb, resource, code in requests_of(router_cluster, name) if code in (200, 0)
    }
    assert {each for each in asked if not each[0].startswith("/")} == granted


@pytest.mark.parametrize("file", ["mcs.yaml", "redis.yaml", "karmada.yaml", "karmada-rights.yaml"])
def test_examples_must_be_taken_by_the_api_server_and_have_flags_that_there_are(
    router_cluster: Cluster, file: str
) -> None:
    api = RawApi(router_cluster.kubeconfig())
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "isthmus-system"}})
    for each in documents(file):
        group, kind = each["apiVersion"], f"{each['kind'].lower()}s"
        base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
        space = each["metadata"].get("namespace")
        path = f"{base}/namespaces/{space}/{kind}" if space else f"{base}/{kind}"
        answer = api.call("POST", path, each, dryRun="All", fieldValidation="Strict")
        assert answer.code in (201, 409), answer.body
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            name, *flags = container["args"]
            assert name == "discovery"
            command.make_context("discovery", list(flags))
    api.close()


def documents(file: str) -> list[Any]:
    """The documents of an example."""
    return list(yaml.safe_load_all((ROOT / "examples" / "discovery" / file).read_text()))


@pytest.mark.covers("DS-13", "D-14")
async def test_slices_that_karmada_has_collected_must_be_joined_by_their_work(
    router_cluster: Cluster, imported: Imported
) -> None:
    async with joining(router_cluster.kubeconfig(), KARMADA) as running:
        await until_ready(running.asking)
        fleet = Fleet(running.asking, imported.namespace)
        await fleet.register("m1", "m2")
        for service in (RELAY, FRONTEND):
            imported.karmada_slice("m1", service, ["10.1.0.7"])
            imported.karmada_slice("m3", service, ["10.3.0.7"], work="karmada-es-m2")
        await fleet.until({"m1": EAST})
        await fleet.until_told(("registration", "m2", "no_relay_import"))
