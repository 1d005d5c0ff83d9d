"""Watches of the list over real sockets: order, resuming, too many readers, slow ones (PW-9, DS-8)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from msgspec.structs import replace

from isthmus.api.pools import Model, Registration
from isthmus.discovery import watchers
from isthmus.discovery.watchers import HEARTBEAT_S, MAX_QUEUED, MAX_WATCHERS, Watcher
from tests.support.clock import FakeClock
from tests.support.discoveries import registration
from tests.support.discoveryrun import Asking, Running, discovering
from tests.support.eventually import until


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def running(clock: FakeClock) -> AsyncIterator[Running]:
    async with discovering(clock) as found:
        yield found


@pytest.fixture
async def asking(running: Running) -> Asking:
    return running.asking


@pytest.mark.covers("D-18", "DS-8", "PW-9")
async def test_watch_must_bring_what_is_there_then_synced_then_changes(
    asking: Asking, clock: FakeClock
) -> None:
    await asking.register(registration("east"))
    await asking.register(registration("west"))
    await clock.advance(0.1)
    async with asking.watching() as events:
        there, synced = await events.until_synced()
        assert there == [("added", "east"), ("added", "west")]
        assert synced == {
            "version": (await asking.get("/pools")).json["version"],
            "complete": False,
            "resumed": False,
        }
        await asking.register(registration("east", revision=2))
        await clock.advance(0.1)
        assert (await events.until_synced())[0] == [("changed", "east")]
        await asking.ask("DELETE", "/pools/west/serving/chat")
        await clock.advance(0.1)
        name, data = await events.next()
        gone = registration("west").key
        assert (name, data) == (
            "removed",
            {"pool_id": gone.pool_id, "cluster_id": "west", "namespace": "serving", "name": "chat"},
        )


@pytest.mark.covers("PW-9", "PW-8")
async def test_watch_must_say_when_the_list_becomes_complete(asking: Asking, clock: FakeClock) -> None:
    async with asking.watching() as events:
        await events.until_synced()
        await clock.advance(16.1)
        name, data = await events.next()
        while not name:
            name, data = await events.next()
        assert (name, data["complete"]) == ("synced", True)


@pytest.mark.covers("D-18", "PW-9")
async def test_reader_that_comes_back_must_get_what_it_missed_and_no_more(
    asking: Asking, clock: FakeClock
) -> None:
    for cluster in ("east", "west"):
        await asking.register(registration(cluster))
    await clock.advance(0.1)
    async with asking.watching() as events:
        _, synced = await events.until_synced()
    await asking.register(registration("north"))
    await clock.advance(0.1)
    await asking.ask("DELETE", "/pools/east/serving/chat")
    await clock.advance(0.1)
    async with asking.watching(synced["version"]) as events:
        missed, again = await events.until_synced()
        assert (missed, again["resumed"]) == ([("added", "north"), ("removed", "east")], True)
    async with asking.watching("b-unknown") as events:
        missed, again = await events.until_synced()
        assert (missed, again["resumed"]) == ([("added", "north"), ("added", "west")], False)


@pytest.mark.covers("PW-9")
async def test_watch_must_have_a_comment_where_nothing_happens(asking: Asking, clock: FakeClock) -> None:
    await clock.advance(20.0)
    async with asking.watching() as events:
        await events.until_synced()
        due_s = clock.monotonic() + HEARTBEAT_S
        await until(lambda: due_s in [at for at, _, future in clock._sleepers if not future.done()])
        await clock.advance(HEARTBEAT_S)
        assert (await events.next())[0] == ""


@pytest.mark.covers("PW-9")
async def test_one_reader_too_many_must_be_sent_away_and_come_in_when_another_leaves(
    running: Running,
) -> None:
    asking = running.asking
    for _ in range(MAX_WATCHERS + 10):
        assert (await asking.ask("HEAD", "/pools/watch")).status == 200
    async with AsyncExitStack() as stack:
        for _ in range(MAX_WATCHERS):
            events = await stack.enter_async_context(asking.watching())
            await events.until_synced()
        assert await asking.metric("gds_watchers") == MAX_WATCHERS
        refused = await asking.get("/pools/watch")
        assert (refused.status, refused.code) == (503, "too_many_watchers")
        assert int(refused.headers["retry-after"]) > 0
    await until(lambda: len(running.discovery.service.watchers) == 0)
    async with asking.watching() as events:
        await events.until_synced()


def heavy(number: int, revision: int) -> Registration:
    """A registration of some 30 kB."""
    models = tuple(Model(id=f"m{index}", aliases=(f"{'x' * 240}-{index}",)) for index in range(100))
    return replace(registration(name=f"c{number}", revision=revision), models=models)


@pytest.mark.covers("D-18", "PW-9")
async def test_slow_reader_must_be_closed_without_holding_up_the_others(
    running: Running, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchers, "MAX_QUEUED", 20)
    asking, everybody = running.asking, running.discovery.service.watchers
    async with asking.watching() as slow, asking.watching() as quick:
        await slow.until_synced()
        await quick.until_synced()
        seen: dict[str, int] = {}
        revision = 0
        while not any(watcher.closed for watcher in everybody._all):
            revision += 1
            for number in range(10):
                await asking.register(heavy(number, revision))
            await clock.advance(0.1)
            while len(seen) < 10 or set(seen.values()) != {revision}:
                name, data = await quick.next()
                if name in ("added", "changed"):
                    seen[data["name"]] = data["revision"]
        assert sum(not watcher.closed for watcher in everybody._all) == 1
    await until(lambda: len(everybody) == 0)


async def test_queue_of_a_reader_must_be_bounded_and_one_great_change_be_let_through() -> None:
    watcher, closed = Watcher(), []
    for events in (MAX_QUEUED * 5, 1):
        watcher.put(b"piece", events)
        closed.append(watcher.closed)
    assert closed == [False, True]
    assert await watcher.take(FakeClock()) == b""


async def test_service_that_ends_must_end_its_watches(clock: FakeClock) -> None:
    async with discovering(clock) as running, running.asking.watching() as events:
        await events.until_synced()
        running.discovery.close()
        with pytest.raises(EOFError):
            await events.next()
        assert (await running.asking.get("/pools/watch")).status == 503
        assert (await running.asking.get("/readyz")).status == 503
        assert (await running.asking.get("/healthz")).status == 200
