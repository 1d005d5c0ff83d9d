"""Headless Services are deleted, edited, taken over or made by others: what comes back, and what must not."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from isthmus.api.meta import Raw
from isthmus.api.pods import SERVING_PODS, SERVING_SERVICES
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.errors import NotFound
from isthmus.sandbox import Cluster
from tests.support.audit import requests_in
from tests.support.eventually import eventually, until
from tests.support.tape import Tape
from tests.support.world import PREFIX, World, is_dying, label, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator")]

STRANGER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "stranger", "controller": True}


def foreign_service(name: str, **metadata: object) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, **metadata},
        "spec": {"clusterIP": "None", "selector": {"app": "other"}},
    }


def make_stranger(world: World) -> Raw:
    """An owner reference to an object that is none of ours."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stranger"}}
    answer = world.api.call("POST", f"/api/v1/namespaces/{world.namespace}/configmaps", body)
    assert answer.code == 201, answer.body
    return {**STRANGER, "uid": answer.body["metadata"]["uid"]}


@asynccontextmanager
async def pods_kept(world: World) -> AsyncIterator[None]:
    """What happens inside must not touch a pod."""
    before = world.uids()
    yield
    assert world.uids() == before


@pytest.mark.covers("R13", "MS-89", "MS-281")
async def test_deleted_service_must_come_back_with_the_same_name_and_selector(world: World) -> None:
    world.create(serving("a", 2))
    await world.settled()
    before = world.services()["a-1-p-0-0"]
    async with pods_kept(world):
        world.delete(SERVING_SERVICES, "a-1-p-0-0")

        async def back() -> None:
            assert "a-1-p-0-0" in world.services()
            after = world.services()["a-1-p-0-0"]
            assert after["metadata"]["uid"] != before["metadata"]["uid"]
            for each in (before, after):
                each["spec"] = {k: v for k, v in each["spec"].items() if k in ("selector", "clusterIP")}
            assert after["spec"] == before["spec"]
            assert after["metadata"]["labels"] == before["metadata"]["labels"]

        await eventually(back)
        await world.settled()


@pytest.mark.covers("R13", "MS-65")
async def test_service_of_a_group_that_is_being_deleted_must_stay_gone(world: World, admin: Client) -> None:
    world.create(serving("a", 2, team(grace=30)))
    await world.settled()
    for index in range(2):
        world.fault(f"a-1-p-0-{index}", "hang-termination:2s")
    async with Tape(admin, world, SERVING_SERVICES) as tape:
        world.scale(1)

        async def dying() -> None:
            assert is_dying(world.pods()["a-1-p-0-0"])

        await eventually(dying)
        world.api.delete(SERVING_SERVICES, world.namespace, "a-1-p-0-0")
        await world.settled()
        assert {frame.what for frame in await tape.frames()} == {"LISTED", "DELETED"}


@pytest.mark.covers("R13", "MS-244")
async def test_services_must_be_gone_after_scaling_to_zero_and_stay_so(world: World) -> None:
    world.create(serving("a", 3))
    await world.settled()
    world.scale(1)
    await world.settled()
    assert set(world.services()) == {"a-0-p-0-0"}
    world.scale(0)
    await world.settled()
    assert not world.services()


@pytest.mark.covers("R13")
async def test_edited_selector_must_be_put_back(world: World) -> None:
    world.create(serving("a", 1))
    await world.settled()
    before = world.services()["a-0-p-0-0"]
    async with pods_kept(world):
        for patch in ({"app": "other"}, {PREFIX + "role-id": "p-7"}, {PREFIX + "entry": None}):
            world.merge(SERVING_SERVICES, "a-0-p-0-0", {"spec": {"selector": patch}})

            async def restored() -> None:
                after = world.services()["a-0-p-0-0"]
                assert after["spec"]["selector"] == before["spec"]["selector"]
                assert after["metadata"]["uid"] == before["metadata"]["uid"]

            await eventually(restored)


@pytest.mark.covers("R13", "MS-35")
async def test_service_given_to_another_owner_must_be_left_alone_and_reported(world: World) -> None:
    world.create(serving("a", 1))
    await world.settled()
    stranger = make_stranger(world)
    async with pods_kept(world):
        world.merge(SERVING_SERVICES, "a-0-p-0-0", {"metadata": {"ownerReferences": [stranger]}})

        async def reported() -> None:
            condition = world.condition("Progressing")
            assert condition.get("reason") == "NameTaken", world.status()
            assert "a-0-p-0-0" in condition["message"]
            assert "stranger" in condition["message"]
            (event,) = world.events(reason="NameTaken")
            assert event["type"] == "Warning"

        await eventually(reported)
        service = world.services()["a-0-p-0-0"]
        assert service["metadata"]["ownerReferences"] == [{**stranger}]
        world.delete(SERVING_SERVICES, "a-0-p-0-0")
        await world.settled()

        async def quiet() -> None:
            assert world.condition("Progressing").get("reason") != "NameTaken"

        await eventually(quiet)


@pytest.mark.covers("R13", "MS-416")
async def test_service_that_lost_its_owner_must_be_adopted(world: World) -> None:
    world.create(serving("a", 1))
    found = await world.settled()
    before = world.services()["a-0-p-0-0"]["metadata"]["uid"]
    world.merge(SERVING_SERVICES, "a-0-p-0-0", {"metadata": {"ownerReferences": None}})

    async def adopted() -> None:
        metadata = world.services()["a-0-p-0-0"]["metadata"]
        assert metadata["uid"] == before
        assert [o["uid"] for o in metadata.get("ownerReferences", [])] == [found["metadata"]["uid"]]

    await eventually(adopted)


@pytest.mark.covers("MS-416")
async def test_pod_that_lost_its_owner_must_be_adopted(world: World) -> None:
    world.create(serving("a", 1))
    found = await world.settled()
    before = world.uids()
    world.merge(SERVING_PODS, "a-0-p-0-1", {"metadata": {"ownerReferences": None}})

    async def adopted() -> None:
        owners = world.pods()["a-0-p-0-1"]["metadata"].get("ownerReferences", [])
        assert [o["uid"] for o in owners] == [found["metadata"]["uid"]]

    await eventually(adopted)
    await world.settled()
    assert world.uids() == before


@pytest.mark.covers("R13", "MS-35", "MS-245")
@pytest.mark.parametrize("labelled", [False, True], ids=["unlabelled", "with-our-labels"])
async def test_name_taken_by_others_must_be_waited_for_and_said(world: World, labelled: bool) -> None:
    stranger = make_stranger(world)
    labels = {"name": "a", "group-name": "a-0", "role": "p", "role-id": "p-0"}
    metadata = {"labels": {PREFIX + k: v for k, v in labels.items()}} if labelled else {}
    body = foreign_service("a-0-p-0-0", ownerReferences=[stranger], **metadata)
    answer = world.api.call("POST", SERVING_SERVICES.path(world.namespace), body)
    assert answer.code == 201, answer.body
    world.create(serving("a", 2))

    async def told() -> None:
        reasons = {c.get("reason") for c in world.status().get("conditions", [])}
        assert reasons & {"NameTaken", "ActionFailed"}, world.status()
        messages = [c["message"] for c in world.status()["conditions"]]
        assert any("a-0-p-0-0" in message and "stranger" in message for message in messages), messages
        assert [e for e in world.events() if e["type"] == "Warning"]
        ready = {label(p, "group-name") for p in world.pods().values()}
        assert "a-1" in ready

    await eventually(told)
    assert world.find(SERVING_SERVICES)["a-0-p-0-0"]["metadata"]["ownerReferences"] == [stranger]
    world.delete(SERVING_SERVICES, "a-0-p-0-0")
    await world.settled(within_s=90)


@pytest.mark.covers("MS-35")
async def test_pod_name_taken_by_a_stranger_must_harm_no_other_group(world: World) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a-0-p-0-1"},
        "spec": {"containers": [{"name": "c", "image": "registry.example/c"}]},
    }
    assert world.api.call("POST", SERVING_PODS.path(world.namespace), pod).code == 201
    before = world.find(SERVING_PODS)["a-0-p-0-1"]["metadata"]["uid"]
    world.create(serving("a", 2))

    async def told() -> None:
        assert world.status().get("availableReplicas") == 1
        texts = [c["message"] for c in world.status()["conditions"]]
        assert any("a-0-p-0-1" in text and "belongs to nobody" in text for text in texts), texts

    await eventually(told)
    assert world.find(SERVING_PODS)["a-0-p-0-1"]["metadata"]["uid"] == before
    world.delete(SERVING_PODS, "a-0-p-0-1")
    await world.settled(within_s=90)


@pytest.mark.covers("MS-56", "MS-66")
async def test_pods_that_others_patch_all_the_time_must_still_go(
    world: World, admin: Client, cluster: Cluster, operator_user: tuple[str, Path]
) -> None:
    """Each deletion says which version of the pod it means, so writes of others make it fail and be decided
    again."""
    world.create(serving("a", 4))
    await world.settled()
    meddled = dict.fromkeys([f"a-{group}-p-0-{index}" for group in range(1, 4) for index in range(2)], 0)

    async def meddle(name: str) -> None:
        with contextlib.suppress(NotFound):
            while True:
                patch = {"metadata": {"annotations": {"count": str(meddled[name])}}}
                await admin.patch(SERVING_PODS, world.namespace, name, patch, kind=PatchKind.MERGE)
                meddled[name] += 1

    async with asyncio.TaskGroup() as tasks:
        for name in meddled:
            tasks.create_task(meddle(name))
        await until(lambda: min(meddled.values()) > 3)
        world.scale(1)
        await world.settled()
    rows = requests_in(cluster, operator_user[0], world.namespace)
    codes = Counter(row.code for row in rows if row.verb == "delete" and row.resource == "pods")
    assert codes[200] == 6
    assert set(codes) <= {200, 409}
