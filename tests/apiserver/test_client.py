"""The client's verbs against the real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from isthmus.api.meta import Frozen, Object, Raw, Resource
from isthmus.kube import errors
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.credentials import Fixed
from tests.support.places import CONFIG_MAPS, config_map, load, own_namespace

pytestmark = pytest.mark.apiserver


class DeploymentStatus(Frozen, frozen=True, kw_only=True):
    """status of a Deployment, as far as this test sets it."""

    replicas: int = 0


class Deployment(Object, frozen=True, kw_only=True):
    """A Deployment, as far as this test reads it."""

    status: DeploymentStatus = DeploymentStatus()


DEPLOYMENTS = Resource(group="apps", version="v1", plural="deployments", kind="Deployment", type=Deployment)


async def test_write_must_answer_with_what_is_stored(admin_kubeconfig: Path) -> None:
    async with own_namespace(admin_kubeconfig) as (client, namespace):
        for written in (
            await client.create(CONFIG_MAPS, namespace, config_map("a", x="1")),
            await client.apply(CONFIG_MAPS, namespace, "a", config_map("a", y="2"), field_manager="me"),
            await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"z": "3"}}, kind=PatchKind.MERGE),
            await client.patch(
                CONFIG_MAPS, namespace, "a", [{"op": "remove", "path": "/data/z"}], kind=PatchKind.JSON
            ),
        ):
            assert (written.name, written.namespace) == ("a", namespace)
            assert written.uid
        got = await client.get(CONFIG_MAPS, namespace, "a")
        assert (got.metadata.uid, got.metadata.resource_version) == (written.uid, written.resource_version)
        assert got.data == {"x": "1", "y": "2"}
        body = config_map("a", w="4")
        body["metadata"]["resourceVersion"] = written.resource_version
        await client.update(CONFIG_MAPS, namespace, "a", body)
        with pytest.raises(errors.Conflict):
            await client.update(CONFIG_MAPS, namespace, "a", body)


async def test_preconditions_must_protect_what_is_not_meant(admin_kubeconfig: Path) -> None:
    async with own_namespace(admin_kubeconfig) as (client, namespace):
        first = await client.create(CONFIG_MAPS, namespace, config_map("a"))
        with pytest.raises(errors.AlreadyExists):
            await client.create(CONFIG_MAPS, namespace, config_map("a"))
        await client.patch(CONFIG_MAPS, namespace, "a", {"data": {"z": "3"}}, kind=PatchKind.MERGE)
        with pytest.raises(errors.Conflict):
            await client.delete(CONFIG_MAPS, namespace, "a", uid="other")
        with pytest.raises(errors.Conflict):
            await client.delete(
                CONFIG_MAPS, namespace, "a", uid=first.uid, resource_version=first.resource_version
            )
        stale = {"metadata": {"resourceVersion": first.resource_version}, "data": {"z": "4"}}
        with pytest.raises(errors.Conflict):
            await client.patch(CONFIG_MAPS, namespace, "a", stale, kind=PatchKind.MERGE)
        await client.delete(CONFIG_MAPS, namespace, "a", uid=first.uid, propagation="Background")
        with pytest.raises(errors.NotFound):
            await client.get(CONFIG_MAPS, namespace, "a")
        with pytest.raises(errors.NotFound):
            await client.delete(CONFIG_MAPS, namespace, "a")


async def test_apply_must_tell_whose_field_it_is(admin_kubeconfig: Path) -> None:
    async with own_namespace(admin_kubeconfig) as (client, namespace):
        await client.apply(CONFIG_MAPS, namespace, "a", config_map("a", x="1"), field_manager="one")
        with pytest.raises(errors.Conflict, match='conflict with "one"') as caught:
            await client.apply(CONFIG_MAPS, namespace, "a", config_map("a", x="2"), field_manager="two")
        assert caught.value.causes[0][0] == ".data.x"
        await client.apply(
            CONFIG_MAPS, namespace, "a", config_map("a", x="2"), field_manager="two", force=True
        )
        assert (await client.get(CONFIG_MAPS, namespace, "a")).data == {"x": "2"}


async def test_status_must_be_written_by_its_subresource_alone(admin_kubeconfig: Path) -> None:
    container = {"name": "c", "image": "i"}
    deployment: Raw = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "labels": {"test": "yes"}},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
        },
    }
    async with own_namespace(admin_kubeconfig) as (client, namespace):
        await client.create(DEPLOYMENTS, namespace, deployment | {"status": {"replicas": 5}})
        assert (await client.get(DEPLOYMENTS, namespace, "a")).status.replicas == 0
        # A replica count that the deployment controller, where one runs, would not keep: a message is kept.
        condition = {"type": "Seen", "status": "True", "reason": "Test", "message": "by a test"}
        status = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "a"},
            "status": {"conditions": [condition]},
        }
        written = await client.apply(
            DEPLOYMENTS, namespace, "a", status, field_manager="me", force=True, subresource="status"
        )
        assert written.name == "a"
        await client.delete_collection(DEPLOYMENTS, namespace, label_selector="test=yes")


async def test_list_must_be_of_one_instant_page_by_page(admin_kubeconfig: Path) -> None:
    async with own_namespace(admin_kubeconfig) as (client, namespace):
        names = [f"m-{number:02}" for number in range(25)]
        await asyncio.gather(*(client.create(CONFIG_MAPS, namespace, config_map(name)) for name in names))
        pages = []
        async for page in client.list_all(CONFIG_MAPS, namespace, label_selector="test=yes", limit=10):
            pages.append(page)
            if len(pages) == 1:
                await client.delete(CONFIG_MAPS, namespace, "m-24")
                await client.create(CONFIG_MAPS, namespace, config_map("m-99"))
        assert [len(page.items) for page in pages] == [10, 10, 5]
        assert [item.metadata.name for page in pages for item in page.items] == names
        assert len({page.resource_version for page in pages}) == 1
        assert not any(item.metadata.name == "m-99" for page in pages for item in page.items)


async def test_refusals_must_say_what_is_wrong(admin_kubeconfig: Path) -> None:
    async with own_namespace(admin_kubeconfig) as (client, namespace):
        with pytest.raises(errors.Invalid, match="RFC 1123") as caught:
            await client.create(CONFIG_MAPS, namespace, config_map("Not_A_Name"))
        assert caught.value.causes[0][0] == "metadata.name"
        with pytest.raises(errors.Invalid):
            await client.create(CONFIG_MAPS, namespace, b"{")
        with pytest.raises(errors.NotFound):
            await client.create(CONFIG_MAPS, "no-such-namespace-here", config_map("a"))


async def test_version_from_the_future_must_be_told_apart(admin_kubeconfig: Path) -> None:
    async with own_namespace(admin_kubeconfig) as (client, namespace):
        with pytest.raises(errors.TooLargeResourceVersion):
            await client.list_page(
                CONFIG_MAPS,
                namespace,
                resource_version="999999999",
                resource_version_match="NotOlderThan",
                limit=0,
            )


async def test_discovery_must_know_what_is_served(admin_kubeconfig: Path) -> None:
    absent = Resource(group="no.such.group", version="v1", plural="things", kind="Thing", type=Object)
    async with own_namespace(admin_kubeconfig) as (client, _):
        assert await client.served(DEPLOYMENTS)
        assert await client.served(CONFIG_MAPS)
        assert not await client.served(absent)
        assert not await client.served(msgspec.structs.replace(DEPLOYMENTS, plural="others"))
        assert b"gitVersion" in await client.get_raw("/version")


async def test_stranger_must_be_unauthorized(admin_kubeconfig: Path) -> None:
    loaded = await load(admin_kubeconfig)
    stranger = msgspec.structs.replace(
        loaded,
        credentials=Fixed.token("nobody"),
        tls=msgspec.structs.replace(loaded.tls, certificate=None, certificate_path=None, key_path=None),
    )
    async with Client(stranger) as client:
        with pytest.raises(errors.Unauthorized):
            await client.list_page(CONFIG_MAPS)
