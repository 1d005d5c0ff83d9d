"""Gang scheduling on a real API server, whose PodGroup API is absent, comes and goes again under a running
operator (R11)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.podgroups import POD_GROUPS
from isthmus.sandbox import volcano
from tests.support import crds
from tests.support.eventually import eventually
from tests.support.operator import ROOT, OperatorProcess
from tests.support.rawapi import RawApi
from tests.support.world import PREFIX, World, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(120)]

POLICY = {"gangPolicy": {"minRoleReplicas": {"p": 1}}}
TOPOLOGY = {"networkTopology": {"groupPolicy": {"mode": "hard", "highestTierAllowed": 1}}}
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"


@pytest.fixture(scope="module")
def module_operator(
    operator_user: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One operator that looks often whether the API is there."""
    log = tmp_path_factory.mktemp("operator") / "log"
    with OperatorProcess(operator_user[1], log, "--api-probe-interval=0.5") as process:
        yield process


@pytest.fixture(scope="module", autouse=True)
def no_volcano_afterwards(serving_api: RawApi) -> Iterator[None]:
    """Whatever happens, the next module finds no PodGroup API."""
    yield
    _remove(serving_api)


def _install(api: RawApi, *, sub_groups: bool = True) -> None:
    definition = volcano.pod_groups(sub_groups=sub_groups)
    crds.install(api, definition, active=lambda: api.call("GET", POD_GROUPS.path("default")).code == 200)


def _remove(api: RawApi) -> None:
    api.call("DELETE", crds.CRDS.path(name=POD_GROUPS.name))
    crds.wait_until(
        lambda: api.call("GET", crds.CRDS.path(name=POD_GROUPS.name)).code == 404, what="the CRD is gone"
    )


async def _noticed(operator: OperatorProcess, *, there: bool) -> None:
    """Once the operator knows whether the API is there."""

    async def check() -> None:
        ages = await operator.metrics("isthmus_watch_age_seconds")
        assert any(POD_GROUPS.name in labels for labels in ages) is there

    await eventually(check)


def pod_groups(world: World, name: str = "a") -> dict[str, Raw]:
    """The PodGroups of a ModelServing, by name; none where there is no API."""
    answer = world.api.call("GET", POD_GROUPS.path(world.namespace), labelSelector=f"{PREFIX}name={name}")
    return {} if answer.code == 404 else {each["metadata"]["name"]: each for each in answer.body["items"]}


async def spec_of(world: World, group: str, name: str = "a", **expected: object) -> Raw:
    """A PodGroup's spec, once it has these fields (None: not at all)."""

    async def check() -> Raw:
        spec: Raw = pod_groups(world, name)[group]["spec"]
        assert {key: spec.get(key) for key in expected} == expected
        return spec

    return await eventually(check)


def ganged(world: World, name: str = "a") -> dict[str, str]:
    """The PodGroup that each pod names."""
    return {
        pod: each["metadata"].get("annotations", {}).get(GROUP_ANNOTATION, "")
        for pod, each in world.pods(name).items()
    }


@pytest.mark.covers("R11", "MS-90", "MS-99", "MS-441", "MS-291")
async def test_api_that_is_absent_comes_and_goes_must_be_followed(
    operator: OperatorProcess, world: World, serving_api: RawApi
) -> None:
    errors = await operator.metrics("controller_runtime_reconcile_errors_total")
    world.create(serving("plain", 1, team("p", 2)))
    world.create(serving("a", 1, team("p", 2), template=POLICY))
    await world.settled("plain")
    await world.settled("a")
    assert not any(ganged(world, "plain").values())

    async def told() -> None:
        condition = world.condition("Progressing")
        assert (condition["status"], condition["reason"]) == ("False", "PodGroupApiMissing")
        assert POD_GROUPS.name in condition["message"]
        assert world.events("a", "PodGroupApiMissing")

    await eventually(told)
    assert not world.events("plain", "PodGroupApiMissing")
    assert world.condition("Progressing", "plain").get("reason") != "PodGroupApiMissing"

    before = {name: world.uids(name) for name in ("a", "plain")}
    await asyncio.to_thread(_install, serving_api)
    await spec_of(world, "a-0", minMember=2, minResources={}, queue="default")
    await spec_of(world, "plain-0", "plain", minMember=4)

    async def untold() -> None:
        assert world.condition("Progressing")["reason"] == "AllGroupsReady"

    await eventually(untold)
    assert {name: world.uids(name) for name in before} == before
    world.scale(2)
    await world.settled("a")
    named = ganged(world)
    assert {named[pod] for pod in named if pod.startswith("a-1-")} == {"a-1"}
    assert {named[pod] for pod in named if pod.startswith("a-0-")} == {""}

    before = {name: world.uids(name) for name in ("a", "plain")}
    await asyncio.to_thread(_remove, serving_api)
    await eventually(told)
    for name in before:
        world.scale(3, name)
        await world.settled(name)
    named = ganged(world)
    assert {named[pod] for pod in named if pod.startswith("a-2-")} == {""}
    for name, uids in before.items():
        assert uids.items() <= world.uids(name).items()
    assert await operator.metrics("controller_runtime_reconcile_errors_total") == errors, operator.output[
        -6000:
    ]
    assert operator.running


@pytest.mark.covers(
    "MS-96", "MS-89", "MS-282", "MS-289", "MS-290", "MS-423", "MS-424", "MS-94", "MS-64", "MS-98"
)
async def test_pod_groups_must_follow_the_spec_in_place_and_go_with_their_groups(
    operator: OperatorProcess, world: World, serving_api: RawApi
) -> None:
    await asyncio.to_thread(_install, serving_api)
    await _noticed(operator, there=True)
    template = {"entryTemplate": {"spec": {"containers": [_container("0.1")]}}}
    world.create(serving("a", 2, {**team("p", 2, 0), **template}, template=TOPOLOGY))
    await world.settled()
    topology = {"mode": "hard", "highestTierAllowed": 1}
    await spec_of(world, "a-1", minMember=2, minResources={"cpu": "200m"}, networkTopology=topology)
    first = pod_groups(world)
    assert set(ganged(world).values()) == {"a-0", "a-1"}

    world.scale_role(3)
    await spec_of(world, "a-0", minMember=3, minResources={"cpu": "300m"})
    await spec_of(world, "a-1", minMember=3)
    world.edit(lambda spec: spec["template"].pop("networkTopology"))
    await spec_of(world, "a-0", networkTopology=None)
    annotations: Raw = {"scheduling.volcano.sh/queue-name": "gold"}
    world.merge(MODEL_SERVINGS, "a", {"metadata": {"annotations": annotations}})
    await spec_of(world, "a-0", queue="gold")
    world.merge(MODEL_SERVINGS, "a", {"metadata": {"annotations": dict.fromkeys(annotations)}})
    last = await spec_of(world, "a-0", queue="default")
    await world.settled()
    second = pod_groups(world)
    assert {name: each["metadata"]["uid"] for name, each in second.items()} == {
        name: each["metadata"]["uid"] for name, each in first.items()
    }

    uids = world.uids()
    world.delete(POD_GROUPS, "a-0")

    async def back() -> None:
        found = pod_groups(world)["a-0"]
        assert found["metadata"]["uid"] != second["a-0"]["metadata"]["uid"]
        assert found["spec"] == last

    await eventually(back)
    assert world.uids() == uids
    world.scale(1)
    await world.settled()

    async def only_one() -> None:
        assert set(pod_groups(world)) == {"a-0"}

    await eventually(only_one)
    world.edit(lambda spec: spec.update(schedulerName="default-scheduler"))

    async def none() -> None:
        assert not pod_groups(world)

    await eventually(none)
    assert world.uids().items() <= uids.items()
    world.delete(MODEL_SERVINGS, "a")


@pytest.mark.covers("MS-90", "MS-95")
async def test_api_without_sub_groups_must_be_written_once_and_no_more(
    operator: OperatorProcess, world: World, serving_api: RawApi
) -> None:
    await asyncio.to_thread(_remove, serving_api)
    await _noticed(operator, there=False)
    await asyncio.to_thread(_install, serving_api, sub_groups=False)
    await _noticed(operator, there=True)
    world.create(serving("a", 1, team("p", 1)))
    await spec_of(world, "a-0", minMember=2, subGroupPolicy=None)
    await world.settled()
    version = pod_groups(world)["a-0"]["metadata"]["resourceVersion"]
    decided = await operator.decisions(f"{world.namespace}/a")
    assert not [each for each in decided if "repair" in str(each["planned"])]
    assert pod_groups(world)["a-0"]["metadata"]["resourceVersion"] == version


@pytest.mark.covers("MS-92", "MS-93", "MS-94", "MS-95", "MS-287")
async def test_example_must_come_up_in_a_gang(operator: OperatorProcess, world: World) -> None:
    manifest = yaml.safe_load((ROOT / "examples" / "modelserving" / "gang.yaml").read_text("utf-8"))
    await asyncio.to_thread(_remove, world.api)
    await _noticed(operator, there=False)
    await asyncio.to_thread(_install, world.api)
    await _noticed(operator, there=True)
    world.create(manifest)
    await world.settled("gang")
    spec = await spec_of(world, "gang-0", "gang", minMember=6, minResources={"cpu": "60m", "memory": "192Mi"})
    assert spec["networkTopology"] == {"mode": "soft", "highestTierAllowed": 2}
    roles = [(each["name"], each["minSubGroups"], each["subGroupSize"]) for each in spec["subGroupPolicy"]]
    assert roles == [("prefill", 2, 2), ("decode", 1, 2)]
    assert set(ganged(world, "gang").values()) == {"gang-0"}
    assert world.condition("Available", "gang")["status"] == "True"


def _container(cpu: str) -> Raw:
    return {"name": "engine", "image": "registry.example/engine:1", "resources": {"requests": {"cpu": cpu}}}
