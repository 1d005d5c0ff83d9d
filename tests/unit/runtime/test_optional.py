"""An API that comes, goes and changes its version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.api.meta import Object, Resource
from isthmus.errors import WorldError
from isthmus.runtime.cache import Cache
from isthmus.runtime.manager import Watch
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.optional import NUDGE_S, PROBE_S, RETRY_S, OptionalApi
from tests.support.clock import FakeClock, settle
from tests.support.things import THINGS, thing

OLDER = replace(THINGS, version="v1alpha1")


class Discovery:
    def __init__(self) -> None:
        self.versions: set[str] = set()
        self.error: Exception | None = None
        self.asked = 0

    async def served(self, resource: Resource[Any]) -> bool:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return resource.version in self.versions


class FakeWatch:
    def __init__(self, resource: Resource[Any]) -> None:
        self.name = resource.version
        self.source = ""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def age(self, now: float) -> float:
        return 0.0


class World:
    """An optional API, the watches that it has running, and what its subscriber saw."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.discovery = Discovery()
        self.cache: Cache[Object] = Cache(THINGS, metrics=Metrics())
        self.running: list[str] = []
        self.told: list[str | None] = []
        self.api: OptionalApi[Object] = OptionalApi(
            self.discovery,
            (THINGS, OLDER),
            self.cache,
            lambda resource: [FakeWatch(resource)],
            clock=self.clock,
        )
        self.api.subscribe(lambda: self.told.append(self.version))
        self.task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.api.run(self))
        await settle()

    @property
    def version(self) -> str | None:
        return self.api.served.version if self.api.served is not None else None

    def start_watch(self, watch: Watch) -> None:
        self.running.append(watch.name)

    async def stop_watch(self, watch: Watch) -> None:
        self.running.remove(watch.name)

    async def pass_time(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await settle()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    if made.task is not None:
        made.task.cancel()


async def test_absent_api_must_leave_its_cache_complete_and_empty(world: World) -> None:
    await world.begin()
    assert world.api.known
    assert world.cache.absent
    assert (world.running, world.told) == ([], [None])


async def test_api_that_comes_must_be_unknown_until_it_was_listed(world: World) -> None:
    await world.begin()
    world.discovery.versions.add(THINGS.version)
    await world.pass_time(PROBE_S)
    assert world.running == [THINGS.version]
    assert (world.api.known, world.told) == (False, [None])
    world.cache.replace("", [thing("a", 1)], "1")
    await settle()
    assert (world.api.known, world.told) == (True, [None, THINGS.version])
    assert not world.cache.absent


async def test_api_that_goes_must_take_its_objects_and_its_watch_along(world: World) -> None:
    world.discovery.versions.add(THINGS.version)
    await world.begin()
    world.cache.replace("", [thing("a", 1)], "1")
    await settle()
    world.discovery.versions.clear()
    await world.pass_time(PROBE_S)
    assert world.cache.absent
    assert len(world.cache) == 0
    assert (world.running, world.told) == ([], [THINGS.version, None])


async def test_best_served_version_must_be_watched(world: World) -> None:
    world.discovery.versions |= {OLDER.version}
    await world.begin()
    world.cache.replace("", [], "1")
    await settle()
    assert world.running == [OLDER.version]
    world.discovery.versions |= {THINGS.version}
    await world.pass_time(PROBE_S)
    assert world.running == [THINGS.version]


async def test_nudge_must_bring_the_next_look_forward_once(world: World) -> None:
    world.discovery.versions.add(THINGS.version)
    await world.begin()
    world.cache.replace("", [], "1")
    await settle()
    world.discovery.versions.clear()
    world.api.nudge()
    world.api.nudge()
    await settle()
    assert world.running == [THINGS.version]
    asked = world.discovery.asked
    await world.pass_time(NUDGE_S)
    assert world.cache.absent
    await world.pass_time(PROBE_S / 2)
    assert world.discovery.asked == asked + 2  # one look at each version


async def test_probe_that_fails_must_change_nothing(world: World) -> None:
    world.discovery.versions.add(THINGS.version)
    await world.begin()
    world.cache.replace("", [thing("a", 1)], "1")
    await settle()
    world.discovery.error = WorldError("no answer")
    await world.pass_time(PROBE_S)
    assert world.api.known
    assert (len(world.cache), world.running) == (1, [THINGS.version])


async def test_first_probe_that_fails_must_leave_everything_unknown_and_be_taken_again(world: World) -> None:
    world.discovery.error = WorldError("no answer")
    await world.begin()
    assert not world.api.known
    assert not world.cache.complete
    world.discovery.error = None
    await world.pass_time(RETRY_S)
    assert world.api.known


async def test_look_before_the_start_must_not_be_taken_twice(world: World) -> None:
    await world.api.look()
    asked = world.discovery.asked
    await world.begin()
    assert world.discovery.asked == asked


async def test_list_that_never_comes_must_not_keep_it_from_seeing_the_api_go(world: World) -> None:
    world.discovery.versions.add(THINGS.version)
    await world.begin()
    assert world.told == []
    await world.pass_time(PROBE_S)
    world.discovery.versions.clear()
    await world.pass_time(PROBE_S)
    assert world.cache.absent
    assert world.running == []
