"""The reflector on a scripted wire: faults of the stream, and a sink that must end with the truth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from isthmus.kube import watch_state
from isthmus.kube.client import Client
from isthmus.kube.config import ClusterConfig
from isthmus.kube.metrics import WatchMetrics
from isthmus.kube.watch import Reflector, Settings
from isthmus.kube.watch_state import Phase
from tests.support.clock import InstantClock
from tests.support.eventually import until
from tests.support.rawhttp import RawServer, Request, Wire
from tests.unit.kube.conftest import THINGS, Thing, stored

QUICK = Settings(watch_s=2, state=watch_state.Settings(base_s=0.01, cap_s=0.05))


class Memory:
    """A sink that remembers, and can be told to stumble over one name."""

    def __init__(self, stumble: str = "") -> None:
        self.content: dict[str, str] = {}
        self.version = ""
        self.replaced = 0
        self.stumble = stumble

    def replace(self, source: str, items: list[Thing], resource_version: str) -> None:
        self.content = {item.metadata.name: item.metadata.resource_version for item in items}
        self.version = resource_version
        self.replaced += 1

    def upsert(self, source: str, obj: Thing) -> None:
        if obj.metadata.name == self.stumble:
            raise RuntimeError("a bug in a subscriber")
        self.content[obj.metadata.name] = obj.metadata.resource_version

    def remove(self, source: str, obj: Thing) -> None:
        self.content.pop(obj.metadata.name, None)

    def progress(self, source: str, resource_version: str) -> None:
        self.version = resource_version


def event(type_: str, name: str, version: str, **extra: Any) -> bytes:
    return json.dumps({"type": type_, "object": stored(name, version, **extra)}).encode() + b"\n"


def status(code: int, **extra: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code} | extra


Player = Callable[[Request, Wire], Awaitable[None]]


class Stage:
    """Answers lists with `content` at `version`, and plays one act per watch; after the last it is mute."""

    def __init__(self, *acts: Player, content: dict[str, str] | None = None, version: str = "5") -> None:
        self.acts = list(acts)
        self.content = content if content is not None else {"a": "1"}
        self.version = version
        self.lists = 0
        self.watched: list[str] = []
        self.finished = asyncio.Event()

    async def __call__(self, request: Request, wire: Wire) -> None:
        if "watch" not in request.query:
            self.lists += 1
            items = [stored(name, version) for name, version in self.content.items()]
            await wire.answer({"metadata": {"resourceVersion": self.version}, "items": items})
            return
        self.watched.append(request.query["resourceVersion"])
        if self.acts:
            await self.acts.pop(0)(request, wire)
            return
        await wire.start_chunked()
        self.finished.set()
        await asyncio.Event().wait()


@asynccontextmanager
async def reflecting(
    stage: Player,
    *,
    sink: Memory | None = None,
    clock: InstantClock | None = None,
    metrics: WatchMetrics | None = None,
    settings: Settings = QUICK,
) -> AsyncIterator[tuple[Reflector[Thing], Memory, RawServer]]:
    memory = sink or Memory()
    async with RawServer(stage) as server, Client(ClusterConfig(server=server.url)) as client:
        reflector = Reflector(
            client,
            THINGS,
            sink=memory,
            namespace="n",
            clock=clock or InstantClock(),
            metrics=metrics,
            settings=settings,
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(reflector.run())
            try:
                async with asyncio.timeout(10):
                    yield reflector, memory, server
            finally:
                task.cancel()


async def quiet(memory: Memory, **content: str) -> None:
    """Wait, with the deadline of `reflecting`, until the sink shows this content."""
    await until(lambda: memory.content == content, seen=lambda: memory.content)


def play(*pieces: bytes, ending: str = "end_chunked") -> Player:
    async def act(request: Request, wire: Wire) -> None:
        await wire.start_chunked()
        for piece in pieces:
            await wire.chunk(piece)
        if ending == "end_chunked":
            await wire.end_chunked()
        else:
            await asyncio.sleep(0.02)
            getattr(wire, ending)()

    return act


def reply(body: Any, code: int = 200) -> Player:
    async def act(request: Request, wire: Wire) -> None:
        await wire.answer(body, code)

    return act


async def test_reflector_must_list_then_follow() -> None:
    stage = Stage(
        play(
            event("ADDED", "b", "6"),
            event("MODIFIED", "a", "7"),
            event("DELETED", "b", "8"),
            event("BOOKMARK", "x", "9"),
        )
    )
    async with reflecting(stage) as (reflector, memory, _):
        await reflector.synced.wait()
        await stage.finished.wait()
        await until(lambda: reflector.phase is Phase.STREAMING)
        assert (memory.content, memory.version, memory.replaced) == ({"a": "7"}, "9", 1)
        assert stage.watched == ["5", "9"]
        assert reflector.age(reflector.last_activity + 3) == 3


@pytest.mark.covers("R22")
@pytest.mark.parametrize("ending", ["reset", "close"])
async def test_stream_cut_at_any_byte_must_be_resumed(ending: str) -> None:
    body = event("ADDED", "b", "6") + event("DELETED", "a", "7")
    step = 23
    acts = [play(body[:cut], ending=ending) for cut in range(1, len(body), step)]
    stage = Stage(*acts, play(body))
    async with reflecting(stage) as (_, memory, _):
        await stage.finished.wait()
        assert memory.content == {"b": "6"}
        assert stage.lists == 1
        assert stage.watched[-1] == "7"
        first = len(event("ADDED", "b", "6")) // step + 1
        assert set(stage.watched[1:first]) == {"5"}
        assert set(stage.watched[first + 1 : -1]) == {"6"}


@pytest.mark.covers("R22")
async def test_reset_before_an_answer_must_be_survived_many_times() -> None:
    async def reset(request: Request, wire: Wire) -> None:
        wire.reset()

    stage = Stage(*[reset] * 20, play(event("ADDED", "b", "6")))
    async with reflecting(stage) as (_, memory, _):
        await quiet(memory, a="1", b="6")
        assert stage.lists == 1


@pytest.mark.covers("R21")
@pytest.mark.parametrize(
    "act",
    [
        play(b'{"type":"ERROR","object":%s}\n' % json.dumps(status(410, reason="Expired")).encode()),
        play(event("ADDED", "z", "6"), b'{"type":"ERROR","object":%s}\n' % json.dumps(status(410)).encode()),
        reply({"type": "ERROR", "object": status(410)}),
        reply(status(410, reason="Gone")),
        reply(status(410), 410),
        reply(b"too old resource version", 410),
    ],
)
async def test_410_in_any_form_must_lead_to_a_new_list(act: Player) -> None:
    stage = Stage(*[act] * 5, play(event("ADDED", "b", "12")))
    async with reflecting(stage) as (_, memory, _):
        stage.content, stage.version = {"a": "1"}, "5"
        await until(lambda: len(stage.watched) >= 2)
        stage.content, stage.version = {"c": "10"}, "10"
        await quiet(memory, c="10", b="12")
        assert stage.lists == 6


@pytest.mark.covers("R19")
async def test_object_deleted_in_a_gap_must_vanish() -> None:
    stage = Stage(play(event("ADDED", "b", "6")), reply(status(410), 410))
    async with reflecting(stage) as (reflector, memory, _):
        await reflector.synced.wait()
        stage.content, stage.version = {"b": "6"}, "20"
        await stage.finished.wait()
        assert memory.content == {"b": "6"}
        assert stage.watched == ["5", "6", "20"]


async def test_busy_storage_must_be_waited_for() -> None:
    clock = InstantClock()
    first = [reply(status(429, message="storage is (re)initializing", details={"retryAfterSeconds": 1}), 429)]
    stage = Stage(*first)
    async with reflecting(stage, clock=clock) as (_, _, _):
        await stage.finished.wait()
    assert any(1 <= pause <= 1.25 for pause in clock.slept)
    assert stage.lists == 1


async def test_missing_resource_must_be_found_once_it_is_there() -> None:
    served = False

    async def handler(request: Request, wire: Wire) -> None:
        if served:
            await stage(request, wire)
        else:
            await wire.answer(b"404 page not found", 404)

    stage = Stage()
    async with reflecting(handler) as (reflector, memory, server):
        await until(lambda: len(server.requests) >= 5)
        assert not reflector.synced.is_set()
        served = True
        await quiet(memory, a="1")


@pytest.mark.covers("R22")
async def test_sink_that_raises_never_ends_the_watch() -> None:
    registry = CollectorRegistry()
    stage = Stage(play(event("ADDED", "bad", "6"), event("ADDED", "b", "7")))
    sink = Memory(stumble="bad")
    async with reflecting(stage, sink=sink, metrics=WatchMetrics(registry)) as (_, memory, _):
        await quiet(memory, a="1", b="7")
    assert (
        registry.get_sample_value("isthmus_watch_sink_errors_total", {"resource": "things.example.com"}) == 1
    )
    assert registry.get_sample_value("isthmus_watch_lists_total", {"resource": "things.example.com"}) == 1


async def test_objects_that_do_not_fit_must_be_passed_over_and_counted() -> None:
    registry = CollectorRegistry()
    bad = {"spec": {"replicas": "many"}}

    async def handler(request: Request, wire: Wire) -> None:
        if "watch" in request.query:
            await stage(request, wire)
        else:
            items = [stored("bad", "1", **bad), stored("a", "2")]
            await wire.answer({"metadata": {"resourceVersion": "5"}, "items": items})

    stage = Stage(play(event("MODIFIED", "bad", "6", **bad), event("ADDED", "b", "7")))
    async with reflecting(handler, metrics=WatchMetrics(registry)) as (_, memory, _):
        await quiet(memory, a="2", b="7")
        await stage.finished.wait()
    assert (
        registry.get_sample_value("isthmus_watch_undecodable_total", {"resource": "things.example.com"}) == 2
    )
    assert stage.watched == ["5", "7"]


async def test_rubbish_in_the_stream_must_end_in_a_list() -> None:
    registry = CollectorRegistry()
    stage = Stage(*[play(b"<html>busy</html>\n")] * 3)
    async with reflecting(stage, metrics=WatchMetrics(registry)) as (_, _, _):
        await stage.finished.wait()
    assert stage.lists == 2
    labels = {"resource": "things.example.com", "cause": "garbled"}
    assert registry.get_sample_value("isthmus_watch_interruptions_total", labels) == 3


async def test_endless_line_must_end_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(play(b"x" * 3000), play(event("ADDED", "b", "6")))
    monkeypatch.setattr("isthmus.kube.stream.WatchStream.__init__.__defaults__", (1000,))
    async with reflecting(stage) as (_, memory, _):
        await quiet(memory, a="1", b="6")


async def test_short_watch_that_ends_on_time_must_be_healthy() -> None:
    clock = InstantClock()

    async def on_time(request: Request, wire: Wire) -> None:
        await wire.start_chunked()
        await clock.advance(QUICK.watch_s - 0.5)
        await wire.end_chunked()

    stage = Stage(*[on_time] * 3)
    async with reflecting(stage, clock=clock) as (_, _, _):
        await stage.finished.wait()
    assert clock.slept == []


@pytest.mark.covers("R19")
async def test_full_list_must_come_again_by_itself() -> None:
    """The fake clock moves only by the pauses after each short watch, so it soon passes relist_s."""
    machine = watch_state.Settings(base_s=1, cap_s=1, resume_s=1, relist_s=10, healthy_s=5)
    stage = Stage(*[play(event("BOOKMARK", "x", "6"))] * 100)
    async with reflecting(stage, settings=Settings(watch_s=20, state=machine)) as (_, _, _):
        await until(lambda: stage.lists >= 3)
    assert 6 <= len(stage.watched) <= 100


async def test_pages_must_be_fetched_and_survive_an_expired_token() -> None:
    refused = False

    async def handler(request: Request, wire: Wire) -> None:
        nonlocal refused
        token = request.query.get("continue")
        if "watch" in request.query:
            await stage(request, wire)
        elif token is None:
            page = {"metadata": {"resourceVersion": "5", "continue": "t"}, "items": [stored("a", "1")]}
            await wire.answer(page)
        elif not refused:
            refused = True
            await wire.answer(status(410, reason="Expired"), 410)
        else:
            await wire.answer({"metadata": {"resourceVersion": "5"}, "items": [stored("b", "2")]})

    stage = Stage()
    async with reflecting(handler) as (_, memory, server):
        await quiet(memory, a="1", b="2")
        assert memory.replaced == 1
        assert [r.query.get("continue") for r in server.requests[:4]] == [None, "t", None, "t"]
        assert {r.query["limit"] for r in server.requests[:4]} == {"500"}


@pytest.mark.covers("R18")
async def test_silent_watch_must_be_opened_anew_without_an_alarm_or_a_list() -> None:
    registry = CollectorRegistry()
    stage, counted = Stage(), WatchMetrics(registry)
    calm = Settings(idle_s=0.05, state=watch_state.Settings(healthy_s=0))
    async with reflecting(stage, metrics=counted, settings=calm) as (_, _, _):
        await until(lambda: len(stage.watched) >= 3)
    assert set(stage.watched) == {"5"}
    assert stage.lists == 1
    samples = [sample.name for family in registry.collect() for sample in family.samples]
    assert "isthmus_watch_lists_total" in samples
    assert "isthmus_watch_interruptions_total" not in samples
