"""Two replicas and one real Lease: freezes, cuts and stops; short durations, and the audit log as witness."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from isthmus.api.coordination import LEASES
from isthmus.api.meta import Object, Resource
from isthmus.api.times import parse_time
from isthmus.clock import SystemClock
from isthmus.errors import WorldError
from isthmus.kube import config
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.errors import WriteRefused
from isthmus.runtime.election import LeaderElector, LeaseLost
from isthmus.runtime.election_state import Durations
from isthmus.runtime.metrics import Metrics
from isthmus.sandbox import Cluster
from tests.support.controlplane import make_user
from tests.support.eventually import until
from tests.support.faultproxy import FaultProxy

pytestmark = pytest.mark.apiserver

DURATIONS = Durations(lease_s=3, renew_s=2, retry_s=0.5)
RETRY_S = DURATIONS.retry_s * 1.2
SERVICES = Resource(group="", version="v1", plural="services", kind="Service", type=Object)
CLOCK = SystemClock()


@dataclass
class Replica:
    """An elector and a writer that never tires, both behind a proxy of their own."""

    user: str
    namespace: str
    proxy: FaultProxy
    elector: LeaderElector
    client: Client
    refused: int = 0
    written: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    error: BaseException | None = None

    @property
    def leads(self) -> bool:
        return self.elector.leading

    async def elect(self) -> None:
        try:
            await self.elector.run()
        except LeaseLost as error:
            self.error = error
        finally:
            self.ended.set()

    async def write(self) -> None:
        while True:
            body = {"metadata": {"annotations": {"writer": self.user, "count": str(self.written)}}}
            try:
                await self.client.patch(SERVICES, self.namespace, "shared", body, kind=PatchKind.MERGE)
                self.written += 1
            except WriteRefused:
                self.refused += 1
            except WorldError:
                pass
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def replica(user: tuple[str, Path], namespace: str) -> AsyncIterator[Replica]:
    name, kubeconfig = user
    direct = config.load(kubeconfig, environ={})
    address = urlsplit(direct.server)
    assert address.hostname is not None
    assert address.port is not None
    async with contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(FaultProxy(address.hostname, address.port))
        proxied = msgspec.structs.replace(direct, server=f"https://127.0.0.1:{proxy.listen_port}")
        elector = LeaderElector(
            await stack.enter_async_context(Client(proxied)),
            lease=(namespace, "isthmus"),
            identity=name,
            clock=CLOCK,
            metrics=Metrics(),
            durations=DURATIONS,
        )
        gated = await stack.enter_async_context(Client(proxied, gate=elector, timeout_s=2))
        one = Replica(name, namespace, proxy, elector, gated)
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(one.elect()), loop.create_task(one.write())]
        try:
            yield one
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.fixture(scope="module")
def users(cluster: Cluster) -> tuple[tuple[str, Path], tuple[str, Path]]:
    return make_user(cluster, prefix="first"), make_user(cluster, prefix="second")


@pytest.fixture
async def shared(admin: Client, namespace: str) -> str:
    """A namespace with the object that both replicas write."""
    spec = {"ports": [{"port": 80}], "clusterIP": "None"}
    await admin.create(
        SERVICES,
        namespace,
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shared"}, "spec": spec},
    )
    return namespace


async def writes(cluster: Cluster, user: str, namespace: str) -> list[dict[str, Any]]:
    """The mutating calls of a user in a namespace, as the API server has audited them."""
    events = await asyncio.to_thread(cluster.audit_events, user)
    return [
        event
        for event in events
        if event["verb"] in ("create", "update", "patch", "delete")
        and event["stage"] == "ResponseComplete"
        and event.get("objectRef", {}).get("namespace") == namespace
    ]


def received(event: dict[str, Any]) -> float:
    return parse_time(event["requestReceivedTimestamp"])


@pytest.mark.covers("R15")
async def test_leader_cut_from_the_network_must_write_nothing_after_its_deadline_even_when_it_is_back(
    cluster: Cluster, users: tuple[tuple[str, Path], tuple[str, Path]], shared: str
) -> None:
    async with replica(users[0], shared) as first:
        await until(lambda: first.written > 3)
        async with replica(users[1], shared) as second:
            await until(lambda: second.refused > 3)
            first.proxy.blackhole()
            await until(lambda: second.written > 3, within_s=DURATIONS.lease_s + 2 * RETRY_S + 1)
            assert first.ended.is_set()
            assert isinstance(first.error, LeaseLost)
            deadline = first.elector._state.deadline_wall
            first.proxy.heal()
            refused = first.refused
            await until(lambda: first.refused > refused + 10 and second.written > 20)
            assert not first.leads
    of_first = await writes(cluster, users[0][0], shared)
    of_second = await writes(cluster, users[1][0], shared)
    of_second = [event for event in of_second if event["objectRef"]["resource"] == "services"]
    assert len(of_first) > 3
    assert max(map(received, of_first)) < deadline < min(map(received, of_second))


@pytest.mark.covers("R15")
async def test_leader_frozen_longer_than_its_lease_must_find_the_other_one_leading(
    cluster: Cluster, users: tuple[tuple[str, Path], tuple[str, Path]], shared: str, admin: Client
) -> None:
    async with replica(users[0], shared) as first, replica(users[1], shared) as second:
        await until(lambda: first.leads or second.leads)
        leader, other = (first, second) if first.leads else (second, first)
        await until(lambda: leader.written > 3)
        leader.proxy.freeze()
        await until(lambda: other.written > 3, within_s=DURATIONS.lease_s + 2 * RETRY_S + 1)
        leader.proxy.heal()  # delivers what was held, an old renewal among it
        await until(leader.ended.is_set)
        written = leader.written + 1  # the one that was under way when it froze
        await until(lambda: other.written > 20)
        assert leader.written <= written
        lease = await admin.get(LEASES, shared, "isthmus")
        assert lease.spec.holder_identity == other.user
        assert other.leads


async def test_stop_must_let_the_other_replica_lead_within_a_retry_period(
    users: tuple[tuple[str, Path], tuple[str, Path]], shared: str, admin: Client
) -> None:
    async with replica(users[0], shared) as first:
        await until(lambda: first.leads)
        async with replica(users[1], shared) as second:
            await until(lambda: second.elector.leader == first.user)
            first.elector.stop()
            await first.ended.wait()
            assert first.error is None
            began = CLOCK.monotonic()
            await until(lambda: second.leads)
            assert CLOCK.monotonic() - began < RETRY_S + 0.5
            lease = await admin.get(LEASES, shared, "isthmus")
            assert (lease.spec.holder_identity, lease.spec.lease_transitions) == (second.user, 1)
            second.elector.stop()
            await second.ended.wait()
    lease = await admin.get(LEASES, shared, "isthmus")
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("", 1)


async def test_renewals_must_leave_alone_what_others_put_on_the_lease(
    users: tuple[tuple[str, Path], tuple[str, Path]], shared: str, admin: Client
) -> None:
    async with replica(users[0], shared) as first:
        await until(lambda: first.leads)
        label = {"metadata": {"labels": {"team": "serving"}}}
        await admin.patch(LEASES, shared, "isthmus", label, kind=PatchKind.MERGE)
        before = (await admin.get(LEASES, shared, "isthmus")).spec.renew_time
        await asyncio.sleep(2 * RETRY_S)
        lease = await admin.get(LEASES, shared, "isthmus")
        assert lease.spec.renew_time != before
        assert lease.metadata.labels == {"team": "serving"}
        assert first.leads
