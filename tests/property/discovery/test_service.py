"""The whole service over generated histories: what is listed, its version, what readers of events end with.

Registrations, renewals, withdrawals, ends of leases, slices and imports come in any order, and imports cannot
be seen for a while; readers come, fall behind, go and come back. What must be listed is said by a second
reading of the rules in the rules below.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from isthmus.api.pools import read_pool_list
from isthmus.discovery.plan.imports import Endpoints, ServiceImport, Source, of_mcs
from isthmus.discovery.plan.join import MCS, Suffixes
from isthmus.discovery.plan.leases import ACCEPTED, Verdict
from isthmus.discovery.service import Service
from isthmus.discovery.store import MemoryStore
from isthmus.discovery.watchers import Watcher
from tests.support.clock import FakeClock
from tests.support.discoveries import mcs_slice, registration, service_import

CLUSTERS, SERVICES = ("east", "west"), ("chat-pool-relay", "chat-frontend")
LEASE_S = 15.0
clusters, services, runs = st.sampled_from(CLUSTERS), st.sampled_from(SERVICES), st.sampled_from("ab")


class Imports:
    """What isthmus.discovery.sources would give."""

    def __init__(self) -> None:
        self.slices: dict[tuple[str, str], tuple[bool | None, bool, int]] = {}
        self.lists: dict[str, frozenset[str] | None] = {}
        self.hidden = False

    def endpoints(self) -> Mapping[Source, Endpoints] | None:
        if self.hidden:
            return None
        found = [
            mcs_slice(cluster, service, ready=ready, terminating=leaving, port=("p", port))
            for (cluster, service), (ready, leaving, port) in self.slices.items()
        ]
        told = [
            service_import(service, None if listed is None else sorted(listed))
            for service, listed in self.lists.items()
        ]
        known: dict[tuple[str, str], ServiceImport] = {each.key: each for each in told}
        return of_mcs(found, known)

    def problem(self) -> str | None:
        return "hidden" if self.hidden else None

    def stale(self) -> str | None:
        return None

    def usable(self, cluster: str, service: str) -> int | None:
        """The port of its ready endpoint, by the words of the rules; None where there is none."""
        ready, leaving, port = self.slices.get((cluster, service), (False, False, 0))
        listed = self.lists.get(service, frozenset())
        imported = listed is None or cluster in listed
        return port if imported and ready is not False and not leaving else None


class Reader:
    """A router that applies events, and may lag."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.pools: dict[str, Any] = {}
        self.version = ""

    def read(self) -> None:
        data = b"".join(self.watcher._queue).decode()
        self.watcher._queue.clear()
        self.watcher._waiting = 0
        for block in filter(None, data.split("\n\n")):
            name, body = block.removeprefix("event: ").split("\ndata: ")
            told = json.loads(body)
            if name == "synced":
                self.version = told["version"]
                continue
            told.pop("expires_in_secs", None)
            if name == "removed":
                del self.pools[told["pool_id"]]
            else:
                assert (name == "changed") == (told["pool_id"] in self.pools)
                self.pools[told["pool_id"]] = told


class Discovery(RuleBasedStateMachine):
    """See the module."""

    @initialize()
    def begin(self) -> None:
        self.clock = FakeClock()
        self.imports = Imports()
        self.store = MemoryStore(LEASE_S, self.clock)
        self.service = Service(
            self.store,
            self.imports,  # type: ignore[arg-type]  # it has what the service asks for
            self.clock,
            mode=MCS,
            suffixes=Suffixes(),
        )
        self.held: dict[str, tuple[str, int, float]] = {}
        self.kept: set[str] = set()
        self.reader: Reader | None = None
        self.left: Reader | None = None
        self.seen: tuple[Any, str] | None = None
        self.lazy = False
        for cluster in CLUSTERS:
            self.register(cluster, "a", 1)
            for service in SERVICES:
                self.mirror(cluster, service, True, False, 1)
                self.import_(service, frozenset(CLUSTERS))

    @rule(lazy=st.booleans())
    def dawdle(self, lazy: bool) -> None:
        """Whether several things happen before the service looks."""
        self.lazy = lazy

    @invariant()
    def look_at_once(self) -> None:
        if not getattr(self, "lazy", True):
            self.look()

    @rule(cluster=clusters, run=runs, revision=st.integers(1, 3))
    def register(self, cluster: str, run: str, revision: int) -> None:
        told = registration(cluster, run=run, revision=revision)
        verdict = finish(self.store.put(told))
        if verdict in ACCEPTED:
            self.held[cluster] = (run, revision, self.clock.monotonic() + LEASE_S)

    @rule(cluster=clusters, run=runs)
    def withdraw(self, cluster: str, run: str) -> None:
        if finish(self.store.remove(registration(cluster).key, run)) is Verdict.REMOVED:
            assert self.held[cluster][0] == run
            del self.held[cluster]

    @rule(seconds=st.sampled_from([0.5, 5.0, 14.9, 15.1]))
    def wait(self, seconds: float) -> None:
        self.clock._move_to(self.clock.monotonic() + seconds)

    @rule(
        cluster=clusters,
        service=services,
        ready=st.sampled_from([True, False, None]),
        leaving=st.booleans(),
        port=st.integers(1, 2),
    )
    def mirror(self, cluster: str, service: str, ready: bool | None, leaving: bool, port: int) -> None:
        self.imports.slices[cluster, service] = (ready, leaving, port)

    @rule(cluster=clusters, service=services)
    def lose_slice(self, cluster: str, service: str) -> None:
        self.imports.slices.pop((cluster, service), None)

    @rule(service=services, listed=st.none() | st.frozensets(clusters))
    def import_(self, service: str, listed: frozenset[str] | None) -> None:
        self.imports.lists[service] = listed

    @rule(service=services)
    def lose_import(self, service: str) -> None:
        self.imports.lists.pop(service, None)

    @rule(hidden=st.booleans())
    def see(self, hidden: bool) -> None:
        self.imports.hidden = hidden

    @rule()
    def look(self) -> None:
        self.service.refresh()
        now = self.clock.monotonic()
        live = {cluster for cluster, (_, _, end) in self.held.items() if end > now}
        if self.imports.hidden:
            self.kept &= live
        else:
            self.kept = {each for each in live if self.imports.usable(each, SERVICES[0]) is not None}
        listed = self.service.listing.pools
        assert [pool.cluster_id for pool in listed] == sorted(self.kept)
        for pool in listed:
            if not self.imports.hidden:
                assert (pool.incarnation, pool.revision) == self.held[pool.cluster_id][:2]
                port = self.imports.usable(pool.cluster_id, SERVICES[1])
                urls = () if port is None else (f"http://10.1.0.7:{port}",)
                assert pool.frontend_urls == urls
        assert not (self.service.listing.complete and self.imports.hidden)

    @rule()
    def come(self) -> None:
        if self.reader is None:
            version = self.left.version if self.left is not None else None
            watcher = self.service.watch(version)
            assert watcher is not None
            resumed = b'"resumed":true' in watcher._queue[0]
            self.reader = Reader(watcher)
            if resumed and self.left is not None:
                self.reader.pools = self.left.pools

    @rule()
    def go(self) -> None:
        if self.reader is not None:
            self.reader.read()
            self.service.watchers.leave(self.reader.watcher)
            self.left, self.reader = self.reader, None

    @rule(cluster=clusters, service=services)
    def miss(self, cluster: str, service: str) -> None:
        """A reader that is away while something happens."""
        self.come()
        self.go()
        self.lose_slice(cluster, service)
        self.look()
        self.come()
        self.read()

    @rule()
    def read(self) -> None:
        if self.reader is not None:
            self.reader.read()
            told = json.loads(self.service.body())
            for pool in told["pools"]:
                pool.pop("expires_in_secs")
            assert self.reader.pools == {pool["pool_id"]: pool for pool in told["pools"]}
            assert self.reader.version == told["version"]

    @invariant()
    def version_must_be_another_exactly_where_the_list_is(self) -> None:
        if not hasattr(self, "service"):
            return
        listing = self.service.listing
        content = (listing.pools, listing.complete)
        if self.seen is not None:
            assert (self.seen[1] == listing.version) is (self.seen[0] == content)
        self.seen = (content, listing.version)
        assert read_pool_list(self.service.body()).version == listing.version


def finish(work: Any) -> Any:
    """What a coroutine that waits for nothing returns."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


Discovery.TestCase.settings = settings(deadline=None, stateful_step_count=40)
TestDiscovery = pytest.mark.covers("R37", "DS-8", "DS-14", "PW-7", "PW-9", "D-18")(Discovery.TestCase)
