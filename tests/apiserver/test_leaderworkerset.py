"""LeaderWorkerSets on a real API server, run by an operator that finds their API while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.api.leaderworkerset import LEADER_WORKER_SETS
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from tests.support import crds, lws
from tests.support.eventually import eventually
from tests.support.manifests import container, pod_template
from tests.support.operator import OperatorProcess
from tests.support.rawapi import RawApi
from tests.support.world import World, serving

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(90)]

PREFIX = "leaderworkerset.sigs.k8s.io/"


@pytest.fixture(scope="module")
def module_operator(
    operator_user: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One operator that looks often whether the API is there."""
    log = tmp_path_factory.mktemp("operator") / "log"
    with OperatorProcess(operator_user[1], log, "--api-probe-interval=0.5") as process:
        yield process


@pytest.fixture(scope="module", autouse=True)
def api_comes_and_goes(serving_api: RawApi, module_operator: OperatorProcess) -> Iterator[None]:
    """The API comes when the operator runs already, and is gone for the next module."""
    crds.wait_until(lambda: "all phases have begun" in module_operator.output, what="the operator runs")
    path = LEADER_WORKER_SETS.path("default")
    crds.install(
        serving_api, lws.leader_worker_sets(), active=lambda: serving_api.call("GET", path).code == 200
    )
    yield
    serving_api.call("DELETE", crds.CRDS.path(name=LEADER_WORKER_SETS.name))


def manifest(world: World, **fields: object) -> Raw:
    made = lws.manifest("a", leader=_template("leader:1"), worker=_template("worker:1"), **fields)
    made["metadata"] |= {"namespace": world.namespace, "labels": {"team": "x"}}
    return made


def _template(image: str) -> Raw:
    return {
        "metadata": {"labels": {"image": image.partition(":")[0]}},
        **pod_template(container(image=f"registry.example/{image}")),
    }


async def reported(world: World, replicas: int) -> None:
    async def check() -> None:
        status = world.get(LEADER_WORKER_SETS, "a")["status"]
        assert (status["replicas"], status["readyReplicas"]) == (replicas, replicas)

    await eventually(check)


@pytest.mark.covers("MS-110", "MS-111", "MS-112", "MS-297", "MS-109", "MS-438")
async def test_leader_worker_set_must_run_and_follow_its_spec(
    operator: OperatorProcess, world: World
) -> None:
    answer = world.api.create(LEADER_WORKER_SETS, manifest(world, replicas=2, size=3))
    assert answer.code == 201, answer.body

    async def made() -> None:
        found = world.serving()
        assert found["metadata"]["labels"] == {"team": "x"}
        assert found["metadata"]["ownerReferences"][0]["kind"] == "LeaderWorkerSet"

    await eventually(made)
    await world.settled()
    await reported(world, 2)
    pods = world.pods()
    assert set(pods) == {f"a-{group}-default-0-{index}" for group in (0, 1) for index in (0, 1, 2)}
    labels = pods["a-1-default-0-2"]["metadata"]["labels"]
    assert labels["image"] == "worker"
    assert {key: labels[PREFIX + key] for key in ("name", "group-index", "worker-index")} == {
        "name": "a",
        "group-index": "1",
        "worker-index": "2",
    }
    assert labels[PREFIX + "group-key"] == pods["a-1-default-0-0"]["metadata"]["labels"][PREFIX + "group-key"]
    assert pods["a-0-default-0-0"]["metadata"]["labels"]["image"] == "leader"

    generation = world.serving()["metadata"]["generation"]
    world.merge(MODEL_SERVINGS, "a", {"metadata": {"labels": {"more": "y"}}})
    world.merge(LEADER_WORKER_SETS, "a", {"spec": {"replicas": 1}})

    async def fewer() -> None:
        assert world.serving()["spec"]["replicas"] == 1

    await eventually(fewer)
    await world.settled()
    await reported(world, 1)
    assert world.serving()["metadata"]["generation"] == generation + 1
    assert world.serving()["metadata"]["labels"] == {"team": "x", "more": "y"}


@pytest.mark.covers("MS-438", "MS-110")
async def test_serving_of_somebody_else_must_be_left_alone_and_told(
    operator: OperatorProcess, world: World
) -> None:
    before = await asyncio.to_thread(world.create, serving("a", 1))
    assert world.api.create(LEADER_WORKER_SETS, manifest(world, replicas=3)).code == 201

    async def told() -> None:
        found = world.events("a", "NameTaken")
        assert [event["regarding"]["kind"] for event in found] == ["LeaderWorkerSet"]

    await eventually(told)
    assert world.serving()["spec"] == before["spec"]
