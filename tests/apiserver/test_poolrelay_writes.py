"""Writes of exports that come too late, on a real API server: what was read is no longer what is there.

The fault between read and write is a change that the test makes after it has read the export for the
executor. The executor is the controller's own; nothing else of the operator runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from isthmus.api.dynamo.names import GRAPH_LABEL
from isthmus.api.meta import Raw
from isthmus.api.poolrelay import POOL_RELAYS, DynamoPoolRelay, ServiceExport, service_exports
from isthmus.errors import IsthmusError
from isthmus.kube import config
from isthmus.kube.client import Client
from isthmus.kube.errors import AlreadyExists, Conflict
from isthmus.poolrelay.executor import Executor
from isthmus.poolrelay.plan.exports import creation, repair
from isthmus.poolrelay.plan.model import CreateExport, DeleteExport, ExportAction, RepairExport
from isthmus.runtime.expect import Expectations
from isthmus.sandbox import Cluster, multicluster
from tests.support.clock import FakeClock
from tests.support.pools import PoolWorld, relay
from tests.support.rawapi import RawApi
from tests.support.relays import graph, settings
from tests.support.relaystore import Cluster as Caches

UNDER = settings()
EXPORTS = service_exports("v1alpha1")
NAME = "east-frontend"


@pytest.fixture(scope="module", autouse=True)
def _exports(cluster: Cluster) -> None:
    """The shared control plane serves exports from now on."""
    cluster.install_crds([multicluster.service_exports()])


@pytest.fixture
def east(serving_api: RawApi, namespace: str) -> PoolWorld:
    return PoolWorld(serving_api, namespace)


class Late:
    """The executor, an export as it was read, and what comes of acting on it later."""

    def __init__(self, client: Client, east: PoolWorld) -> None:
        caches = Caches()
        self.executor = Executor(client, caches.caches, Expectations(FakeClock(), caches.metrics), UNDER)
        self.east = east
        self.key = (east.namespace, "east")
        self.relay = _typed(east.put(POOL_RELAYS, relay("east")), DynamoPoolRelay)

    async def do(self, action: ExportAction) -> Any:
        """What comes of one action."""
        ((_, result),) = await self.executor.export(self.key, [action])
        return result

    async def make(self) -> ServiceExport:
        """Create the relay's export, and read it."""
        result = await self.do(CreateExport(NAME, self.body))
        assert not isinstance(result, IsthmusError), result
        return self.read()

    @property
    def body(self) -> Raw:
        """A new export."""
        return creation(NAME, self.relay, graph("east", []), UNDER)

    def read(self) -> ServiceExport:
        """The export as it is now."""
        found: ServiceExport = _typed(self.east.get(EXPORTS, NAME), ServiceExport)
        return found

    def repair(self, export: ServiceExport) -> RepairExport:
        """The repair of an export that was read."""
        return RepairExport(export, repair(export, self.relay, graph("east", []), UNDER))


def _typed(raw: Raw, type_: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(raw), type=type_)


@pytest.fixture
async def late(admin_kubeconfig: Path, east: PoolWorld) -> AsyncIterator[Late]:
    async with Client(config.load(admin_kubeconfig, environ={})) as client:
        yield Late(client, east)


@pytest.mark.covers("PR-60", "PR-61", "T-26")
async def test_name_that_was_taken_must_not_be_adopted(late: Late, east: PoolWorld) -> None:
    theirs = {"apiVersion": EXPORTS.api_version, "kind": EXPORTS.kind, "metadata": {"name": NAME}}
    before = east.put(EXPORTS, theirs)
    assert isinstance(await late.do(CreateExport(NAME, late.body)), AlreadyExists)
    assert east.get(EXPORTS, NAME) == before


@pytest.mark.covers("PR-62", "PR-63", "PR-65", "T-29", "T-32")
async def test_repair_must_change_nothing_but_what_is_ours(late: Late, east: PoolWorld) -> None:
    await late.make()
    east.take(EXPORTS, NAME, labels={GRAPH_LABEL: None, "a": "b"}, finalizers=["example.com/hold"])
    east.merge(EXPORTS, NAME, {"spec": {"exportedLabels": {"team": "a"}}})
    status = {"status": {"conditions": [_condition()]}}
    path = EXPORTS.path(east.namespace, NAME, "status")
    assert east.api.call("PATCH", path, status, content_type="application/merge-patch+json").code == 200
    before = east.get(EXPORTS, NAME)
    result = await late.do(late.repair(late.read()))
    assert not isinstance(result, IsthmusError), result
    after = east.get(EXPORTS, NAME)
    assert after["metadata"]["labels"] == {GRAPH_LABEL: "east", "a": "b"}
    for meta in (before["metadata"], after["metadata"]):
        for changing in ("labels", "managedFields", "resourceVersion", "generation"):
            meta.pop(changing, None)
    assert after == before
    again = await late.do(late.repair(late.read()))
    assert again.resource_version == late.read().metadata.resource_version
    east.take(EXPORTS, NAME, finalizers=None)


@pytest.mark.covers("PR-63", "PR-64", "PR-66", "T-34", "T-106")
async def test_repair_of_an_export_that_was_taken_over_must_be_refused(late: Late, east: PoolWorld) -> None:
    read = await late.make()
    east.take(
        EXPORTS, NAME, ownerReferences=[east.somebody | {"controller": True}], labels={GRAPH_LABEL: "x"}
    )
    before = east.get(EXPORTS, NAME)
    assert isinstance(await late.do(late.repair(read)), Conflict)
    assert east.get(EXPORTS, NAME) == before


@pytest.mark.covers("PR-64", "T-35", "T-105")
async def test_repair_of_an_export_that_is_gone_must_not_make_it_anew(late: Late, east: PoolWorld) -> None:
    read = await late.make()
    east.delete(EXPORTS, NAME)
    assert isinstance(await late.do(late.repair(read)), Conflict)
    assert NAME not in east.find(EXPORTS)


@pytest.mark.covers("PR-64")
async def test_repair_of_an_export_that_was_replaced_must_be_refused(late: Late, east: PoolWorld) -> None:
    read = await late.make()
    east.delete(EXPORTS, NAME)
    await late.make()
    before = east.get(EXPORTS, NAME)
    assert isinstance(await late.do(late.repair(read)), Conflict)
    assert east.get(EXPORTS, NAME) == before


@pytest.mark.covers("PR-67", "PR-68", "T-36", "T-107")
async def test_deletion_of_an_export_that_was_freed_must_be_refused(late: Late, east: PoolWorld) -> None:
    read = await late.make()
    east.take(EXPORTS, NAME, ownerReferences=None)
    assert isinstance(await late.do(DeleteExport(read)), Conflict)
    assert NAME in east.find(EXPORTS)


@pytest.mark.covers("PR-67", "T-37")
async def test_deletion_of_an_export_that_another_relay_took_must_be_refused(
    late: Late, east: PoolWorld
) -> None:
    read = await late.make()
    west = east.put(POOL_RELAYS, relay("west"))["metadata"]["uid"]
    owner = east.get(EXPORTS, NAME)["metadata"]["ownerReferences"][0]
    east.take(EXPORTS, NAME, ownerReferences=[owner | {"name": "west", "uid": west}])
    assert isinstance(await late.do(DeleteExport(read)), Conflict)
    assert NAME in east.find(EXPORTS)


@pytest.mark.covers("PR-68", "T-14")
async def test_deletion_of_an_export_that_is_gone_or_was_done_must_be_no_failure(
    late: Late, east: PoolWorld
) -> None:
    read = await late.make()
    assert await late.do(DeleteExport(read)) is None
    assert NAME not in east.find(EXPORTS)


def _condition() -> Raw:
    return {
        "type": "Valid",
        "status": "True",
        "reason": "Valid",
        "message": "",
        "lastTransitionTime": "2026-09-21T14:13:20Z",
    }
