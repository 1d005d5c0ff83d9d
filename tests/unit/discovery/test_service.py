"""When the list is joined anew, and when it may be called complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from isthmus.discovery import service as module
from isthmus.discovery.plan.imports import Endpoints, Source, of_mcs
from isthmus.discovery.plan.join import MCS, Suffixes
from isthmus.discovery.service import Service
from isthmus.discovery.store import MemoryStore
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import Supervisor
from tests.support.clock import FakeClock
from tests.support.discoveries import mcs_slice, registration

LEASE_S = 15.0


class Imports:
    """The imports of one pool, and how they are seen."""

    def __init__(self) -> None:
        self.missing: str | None = None
        self.silent: str | None = None
        self.looked = 0

    def endpoints(self) -> Mapping[Source, Endpoints] | None:
        self.looked += 1
        slices = [mcs_slice("east", "chat-pool-relay"), mcs_slice("east", "chat-frontend")]
        return None if self.missing else of_mcs(slices, None)

    def problem(self) -> str | None:
        return self.missing

    def stale(self) -> str | None:
        return self.silent


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def imports() -> Imports:
    return Imports()


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(LEASE_S, clock)


@pytest.fixture
def service(clock: FakeClock, store: MemoryStore, imports: Any) -> Service:
    made = Service(store, imports, clock, mode=MCS, suffixes=Suffixes())
    store.changed = made.touch
    return made


async def test_renewal_must_not_make_the_list_anew(
    clock: FakeClock, store: MemoryStore, imports: Imports, service: Service
) -> None:
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("list", service.run)
        await store.put(registration())
        await clock.advance(1.0)
        looked, version = imports.looked, service.listing.version
        for _ in range(5):
            await store.put(registration())
            await clock.advance(1.0)
        assert (imports.looked, service.listing.version) == (looked, version)
        await store.put(registration(revision=2))
        await clock.advance(module.PAUSE_S)
        assert (imports.looked, service.listing.version == version) == (looked + 1, False)


async def test_many_changes_at_once_must_be_one_join(
    clock: FakeClock, store: MemoryStore, imports: Imports, service: Service
) -> None:
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("list", service.run)
        await clock.advance(module.PAUSE_S)
        looked = imports.looked
        for number in range(100):
            await store.put(registration(name=f"p{number}"))
        await clock.advance(2 * module.PAUSE_S)
        assert imports.looked <= looked + 2


@pytest.mark.covers("PW-6", "D-10")
async def test_end_of_a_lease_must_be_seen_when_it_comes(
    clock: FakeClock, store: MemoryStore, service: Service
) -> None:
    async with Supervisor(clock, Metrics()) as tasks:
        tasks.start("list", service.run)
        await clock.advance(0.3)
        await store.put(registration())
        await clock.advance(LEASE_S - 0.01)
        counts = [len(service.listing.pools)]
        await clock.advance(0.1)
        assert [*counts, len(service.listing.pools)] == [1, 0]


@pytest.mark.covers("DS-3", "DS-14", "PW-8")
@pytest.mark.parametrize("what", ["missing", "silent"])
def test_list_must_not_be_complete_while_imports_are_not_heard_of(
    clock: FakeClock, imports: Imports, service: Service, what: str
) -> None:
    clock._move_to(clock.monotonic() + LEASE_S)
    service.refresh()
    assert service.listing.complete
    setattr(imports, what, "away")
    service.refresh()
    assert not service.listing.complete
