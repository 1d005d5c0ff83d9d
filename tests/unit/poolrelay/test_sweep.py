"""What is cleaned up once exporting is off (PR-110)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from isthmus.api.meta import Resource
from isthmus.api.poolrelay import ServiceExport
from isthmus.kube.answers import Page
from isthmus.kube.client import Client
from isthmus.kube.errors import Conflict, Forbidden, ServerError, WriteRefused
from isthmus.poolrelay.sweep import leftovers, sweep
from tests.support.relays import export, owner, relay

OURS = export("east-frontend", owner())
KEPT = [
    export("a-users"),
    export("another-relays", owner(uid="gone")),
    export("not-controlled", owner(controller=False)),
    export("another-kinds", owner(kind="ConfigMap")),
    export("dying", owner(), dying=True),
    export("elsewhere", owner(), namespace="other"),
]


class Cluster:
    """What the sweep asks of a client."""

    def __init__(self, *versions: str, fails: Exception | None = None) -> None:
        self.versions = versions
        self.fails = fails
        self.deleted: list[tuple[str, str, str | None, str | None]] = []

    async def served(self, resource: Resource[Any]) -> bool:
        if isinstance(self.fails, ServerError):
            raise self.fails
        return resource.version in self.versions

    async def list_all(
        self, resource: Resource[Any], namespace: str, *, limit: int
    ) -> AsyncIterator[Page[ServiceExport]]:
        if isinstance(self.fails, Forbidden):
            raise self.fails
        for item in (OURS, *KEPT):
            yield Page(items=[item], resource_version="1")

    async def delete(
        self, resource: Resource[Any], namespace: str, name: str, *, uid: str, resource_version: str
    ) -> None:
        self.deleted.append((resource.version, name, uid, resource_version))
        if isinstance(self.fails, Conflict | WriteRefused):
            raise self.fails


async def swept(cluster: Cluster) -> int:
    return await sweep(cast(Client, cluster), [relay()], "serving")


@pytest.mark.covers("PR-110", "T-141")
def test_only_what_an_existing_relay_controls_must_go() -> None:
    assert leftovers([OURS, *KEPT], [relay()]) == [OURS]
    assert leftovers([OURS, *KEPT], []) == []


@pytest.mark.covers("PR-110", "T-141")
@pytest.mark.parametrize(
    ("versions", "used"), [(["v1alpha1", "v1beta1"], "v1alpha1"), (["v1beta1"], "v1beta1")]
)
async def test_sweep_must_delete_with_what_was_read(versions: list[str], used: str) -> None:
    cluster = Cluster(*versions)
    assert await swept(cluster) == 1
    assert cluster.deleted == [(used, "east-frontend", "east-frontend-uid", "11")]


@pytest.mark.covers("PR-110")
async def test_cluster_without_the_api_must_be_left_alone() -> None:
    cluster = Cluster()
    assert await swept(cluster) == 0
    assert cluster.deleted == []


@pytest.mark.covers("PR-110")
@pytest.mark.parametrize("error", [ServerError(500), Forbidden(403), Conflict(409)])
async def test_sweep_that_fails_must_never_be_fatal(error: Exception) -> None:
    assert await swept(Cluster("v1alpha1", fails=error)) == 0


async def test_sweep_that_may_not_write_must_stop() -> None:
    with pytest.raises(WriteRefused):
        await swept(Cluster("v1alpha1", fails=WriteRefused("not leading")))
