"""Who works in a namespace, as claims on it are made, renewed, given back and left to run out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.coordination import LEASES, Lease
from isthmus.api.meta import Raw, Resource
from isthmus.kube.client import PatchKind, Written
from isthmus.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, ServerError
from isthmus.runtime.cache import Cache
from isthmus.runtime.claims import (
    HANDOVER_S,
    LABEL,
    NAME,
    RECHECK_S,
    RETRY_S,
    Claimant,
    NoClaims,
    OtherClaims,
    Times,
    guard,
    holder_name,
)
from isthmus.runtime.controller import DONE, Again
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock

TIMES = Times(duration_s=30, renew_s=10)
TEAM = "team-a"
KEY = (TEAM, NAME)


class Server:
    """The Leases of an API server, by namespace, and what may go wrong with it."""

    def __init__(self) -> None:
        self.leases: dict[str, Raw] = {}
        self.error: Exception | None = None
        self.version = 0
        self.clock = FakeClock()

    def claimant(self, holder: str = "one", *namespaces: str) -> Claimant:
        return Claimant(self, namespaces or (TEAM,), holder=holder, clock=self.clock, times=TIMES)

    async def get(self, resource: Resource[Lease], namespace: str, name: str) -> Lease:
        self._check()
        if namespace not in self.leases:
            raise NotFound(404)
        return self.lease(namespace)

    def lease(self, namespace: str = TEAM) -> Lease:
        return msgspec.convert(self.leases[namespace], Lease)

    async def create(self, resource: Resource[Any], namespace: str, body: Raw) -> Written:
        if namespace in self.leases:
            raise AlreadyExists(409)
        return self._store(namespace, {**body, "metadata": {**body["metadata"], "uid": "u"}})

    async def patch(
        self, resource: Resource[Any], namespace: str, name: str, body: Raw, *, kind: PatchKind
    ) -> Written:
        held = self.leases[namespace]
        if body["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"]:
            raise Conflict(409)
        metadata = held["metadata"] | body["metadata"]
        return self._store(namespace, {**held, "metadata": metadata, "spec": held["spec"] | body["spec"]})

    def _store(self, namespace: str, body: Raw) -> Written:
        self._check()
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.leases[namespace] = body
        return Written(
            name=NAME, namespace=namespace, uid="u", resource_version=body["metadata"]["resourceVersion"]
        )

    def _check(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.mark.covers("R33")
async def test_new_claim_must_be_visible_and_acted_on_after_the_handover(server: Server) -> None:
    one = server.claimant()
    assert one.keys() == [KEY]
    assert one.wait_s(TEAM) == RETRY_S
    assert await one.reconcile(KEY) == Again(TIMES.renew_s)
    lease = server.lease()
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("one", 30)
    assert lease.metadata.labels == {LABEL: "true"}
    assert one.wait_s(TEAM) == HANDOVER_S
    assert one.wait_s("elsewhere") == 0
    await server.clock.advance(HANDOVER_S)
    assert one.wait_s(TEAM) == 0


@pytest.mark.covers("R33")
async def test_claim_must_last_while_it_is_renewed_and_no_longer(server: Server) -> None:
    one = server.claimant()
    for _ in range(5):
        await one.reconcile(KEY)
        await server.clock.advance(TIMES.renew_s)
        assert one.wait_s(TEAM) == 0
    server.error = ServerError(500)
    with pytest.raises(ServerError):
        await one.reconcile(KEY)
    await server.clock.advance(TIMES.duration_s - TIMES.renew_s)
    assert one.wait_s(TEAM) == RETRY_S


@pytest.mark.covers("R33")
async def test_second_claimant_must_wait_until_the_first_has_gone(server: Server) -> None:
    one, two = server.claimant("one"), server.claimant("two")
    await one.reconcile(KEY)
    assert await two.reconcile(KEY) == Again(RETRY_S)
    await server.clock.advance(20)
    await one.reconcile(KEY)
    assert await two.reconcile(KEY) == Again(RETRY_S)
    await server.clock.advance(29)
    assert await two.reconcile(KEY) == Again(RETRY_S)
    assert two.wait_s(TEAM) > 0
    await server.clock.advance(1)
    assert await two.reconcile(KEY) == Again(TIMES.renew_s)
    assert server.lease().spec.holder_identity == "two"
    assert one.wait_s(TEAM) > 0
    assert await one.reconcile(KEY) == Again(RETRY_S)


@pytest.mark.covers("R33")
async def test_claim_that_is_given_back_must_be_free_at_once(server: Server) -> None:
    one, two = server.claimant("one"), server.claimant("two")
    await one.reconcile(KEY)
    await one.release()
    assert one.wait_s(TEAM) > 0
    assert await two.reconcile(KEY) == Again(TIMES.renew_s)
    await one.release()
    assert server.lease().spec.holder_identity == "two"


@pytest.mark.covers("R33")
async def test_claim_that_another_has_by_now_must_not_be_given_back(server: Server) -> None:
    one, two = server.claimant("one"), server.claimant("two")
    await one.reconcile(KEY)
    await two.reconcile(KEY)
    await server.clock.advance(TIMES.duration_s)
    await two.reconcile(KEY)
    await one.release()
    assert server.lease().spec.holder_identity == "two"


async def test_claim_must_say_since_when_it_is_held(server: Server) -> None:
    one = server.claimant()
    await one.reconcile(KEY)
    since = server.lease().spec.acquire_time
    await server.clock.advance(TIMES.renew_s)
    await one.reconcile(KEY)
    assert server.lease().spec.acquire_time == since
    assert server.lease().spec.renew_time != since
    await one.release()
    await server.claimant("two").reconcile(KEY)
    assert server.lease().spec.acquire_time != since


async def test_same_holder_must_go_on_at_once_after_a_restart(server: Server) -> None:
    await server.claimant().reconcile(KEY)
    await server.clock.advance(5)
    again = server.claimant()
    await again.reconcile(KEY)
    assert again.wait_s(TEAM) == 0


async def test_claim_that_somebody_was_faster_with_must_be_tried_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = server.claimant()

    async def nothing(*_: object) -> Lease:
        raise NotFound(404)

    await server.claimant("two").reconcile(KEY)
    monkeypatch.setattr(server, "get", nothing)
    assert await one.reconcile(KEY) == Again(RETRY_S)
    stale = server.lease()
    server.leases[TEAM]["metadata"]["resourceVersion"] = "99"
    server.leases[TEAM]["spec"]["holderIdentity"] = ""

    async def old(*_: object) -> Lease:
        return msgspec.structs.replace(stale, spec=msgspec.structs.replace(stale.spec, holder_identity=""))

    monkeypatch.setattr(server, "get", old)
    assert await one.reconcile(KEY) == Again(RETRY_S)


@pytest.mark.covers("R33")
async def test_missing_right_must_be_told_and_stop_nobody(server: Server) -> None:
    one = server.claimant()
    server.error = Forbidden(403, "Forbidden", "no leases")
    assert await one.reconcile(KEY) == Again(TIMES.renew_s)
    assert one.wait_s(TEAM) == 0
    server.error = None
    await one.reconcile(KEY)
    assert one.wait_s(TEAM) == HANDOVER_S


# The whole cluster


class Wide:
    """An operator of the whole cluster, and the Leases that it sees."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cache: Cache[Lease] = Cache(LEASES, metrics=Metrics())
        self.claims = OtherClaims(self.cache, server.clock)

    def see(self) -> None:
        for namespace in self.server.leases:
            self.cache.upsert("", self.server.lease(namespace))


@pytest.mark.covers("R33", "PR-101", "GD-54")
async def test_claimed_namespace_must_be_left_alone_until_the_claim_has_run_out(server: Server) -> None:
    wide, one = Wide(server), server.claimant()
    assert wide.claims.wait_s(TEAM) == 0
    await one.reconcile(KEY)
    wide.see()
    assert wide.claims.wait_s(TEAM) == RECHECK_S
    assert wide.claims.wait_s("team-b") == 0
    await server.clock.advance(20)
    await one.reconcile(KEY)
    wide.see()
    await server.clock.advance(29)
    assert wide.claims.wait_s(TEAM) == 1
    await server.clock.advance(1)
    assert wide.claims.wait_s(TEAM) == 0


@pytest.mark.covers("R33")
async def test_namespace_must_be_ours_again_once_the_claim_is_given_back_or_deleted(server: Server) -> None:
    wide, one = Wide(server), server.claimant()
    await one.reconcile(KEY)
    wide.see()
    await one.release()
    wide.see()
    assert wide.claims.wait_s(TEAM) == 0
    await one.reconcile(KEY)
    wide.see()
    assert wide.claims.wait_s(TEAM) > 0
    lease = server.lease()
    newer = msgspec.structs.replace(lease.metadata, resource_version="99")
    wide.cache.remove("", msgspec.structs.replace(lease, metadata=newer))
    assert wide.claims.wait_s(TEAM) == 0


async def test_keys_of_claimed_namespaces_must_be_put_off(server: Server) -> None:
    wide, one = Wide(server), server.claimant()
    done = []

    async def reconcile(key: tuple[str, str]) -> Any:
        done.append(key)
        return DONE

    guarded = guard(wide.claims, reconcile)
    await one.reconcile(KEY)
    wide.see()
    assert await guarded((TEAM, "a")) == Again(RECHECK_S)
    assert await guarded(("team-b", "a")) == DONE
    assert await guarded(("", "sweep")) == DONE
    assert done == [("team-b", "a"), ("", "sweep")]
    assert await guard(NoClaims(), reconcile)((TEAM, "a")) == DONE


def test_replicas_of_one_install_must_hold_one_claim() -> None:
    assert holder_name("sys", "isthmus", elected=True) == "sys/isthmus"
    assert holder_name("sys", "isthmus", elected=False) == holder_name("x", "y", elected=False)
