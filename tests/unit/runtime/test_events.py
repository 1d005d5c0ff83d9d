import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from isthmus.api.meta import Raw, Resource
from isthmus.kube.client import PatchKind, Written
from isthmus.kube.errors import AlreadyExists, Forbidden, NotFound, Throttled, Unreachable, WriteRefused
from isthmus.runtime import events
from isthmus.runtime.event_state import BURST, SERIES_S
from isthmus.runtime.events import EventRecorder, ObjectRef
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock, settle
from tests.support.things import THINGS, thing

OWNER = ObjectRef.to(THINGS, thing("owner", 7))
POD = ObjectRef("v1", "Pod", "ns", "owner-0", "p0")


class Server:
    """Takes events; `errors` are raised by the next requests, one each."""

    def __init__(self) -> None:
        self.events: dict[str, Raw] = {}
        self.requests: list[str] = []
        self.errors: list[Exception] = []
        self.hang: asyncio.Event | None = None

    async def _request(self, verb: str) -> None:
        self.requests.append(verb)
        if self.hang is not None:
            await self.hang.wait()
        if self.errors:
            raise self.errors.pop(0)

    async def create(self, resource: Resource[Any], namespace: str, body: Raw) -> Written:
        await self._request("create")
        name = body["metadata"]["name"]
        assert body["metadata"]["namespace"] == namespace
        self.events[name] = body
        return Written(name=name, namespace=namespace, uid="u", resource_version="1")

    async def patch(
        self, resource: Resource[Any], namespace: str, name: str, body: Raw, *, kind: PatchKind
    ) -> Written:
        await self._request("patch")
        assert kind is PatchKind.MERGE
        if name not in self.events:
            raise NotFound(404)
        self.events[name].update(body)
        return Written(name=name, namespace=namespace, uid="u", resource_version="2")


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = Server()
        self.metrics = Metrics()
        self.recorder = EventRecorder(
            self.server,
            controller="isthmus.dev/operator",
            instance="pod-1",
            clock=self.clock,
            metrics=self.metrics,
        )

    def emit(self, reason: str = "Created", *, about: ObjectRef = OWNER, note: str = "hello") -> None:
        self.recorder.emit(about, type="Normal", reason=reason, action="Create", note=note)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.recorder.run())
            yield
            self.recorder.stop()

    def dropped(self, cause: str) -> float | None:
        return self.metrics.value("isthmus_events_dropped_total", cause=cause)

    def only(self) -> Raw:
        (event,) = self.server.events.values()
        return event


@pytest.fixture
def world() -> World:
    return World()


async def test_event_must_have_every_field_that_the_api_wants(world: World) -> None:
    async with world.running():
        world.recorder.emit(OWNER, type="Warning", reason="Failed", action="Restart", note="why", related=POD)
        await settle()
    event = world.only()
    name = event["metadata"].pop("name")
    assert name.startswith("owner.")
    assert len(name) == len("owner.") + 16
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "ns"},
        "eventTime": "2026-09-21T14:13:20.000000Z",
        "reportingController": "isthmus.dev/operator",
        "reportingInstance": "pod-1",
        "type": "Warning",
        "reason": "Failed",
        "action": "Restart",
        "note": "why",
        "regarding": {
            "apiVersion": "test.isthmus.dev/v1",
            "kind": "Thing",
            "namespace": "ns",
            "name": "owner",
            "uid": "owner",
            "resourceVersion": "7",
        },
        "related": {"apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "owner-0", "uid": "p0"},
    }


async def test_event_about_a_cluster_scoped_object_must_go_to_the_default_namespace(world: World) -> None:
    async with world.running():
        world.emit(about=ObjectRef("v1", "Node", "", "n1", "u"))
    assert world.only()["metadata"]["namespace"] == "default"


async def test_repeats_must_become_one_series_told_at_intervals(world: World) -> None:
    async with world.running():
        for _ in range(3):
            world.emit()
            await world.clock.advance(1)
        assert world.server.requests == ["create"]
        await world.clock.advance(10)
        assert world.server.requests == ["create", "patch"]
        assert world.only()["series"]["count"] == 3
        assert world.only()["series"]["lastObservedTime"] == "2026-09-21T14:13:22.000000Z"
        for _ in range(5):
            world.emit()
            await world.clock.advance(1)
        await world.clock.advance(20)
        assert world.server.requests == ["create", "patch", "patch"]
    assert world.only()["series"]["count"] == 8


async def test_repeats_before_the_first_was_sent_must_cost_one_request(world: World) -> None:
    for _ in range(4):
        world.emit()
    async with world.running():
        await settle()
        assert world.server.requests == ["create"]
        assert world.only()["series"]["count"] == 4


async def test_different_things_must_be_different_events(world: World) -> None:
    async with world.running():
        world.emit("Created")
        world.emit("Deleted")
        world.emit(about=POD)
        world.recorder.emit(OWNER, type="Normal", reason="Created", action="Create", note="", related=POD)
    assert world.server.requests == ["create"] * 4


@pytest.mark.covers("PR-79", "PR-80", "T-38", "T-115", "T-116")
async def test_another_state_of_the_related_object_must_be_a_new_event(world: World) -> None:
    async with world.running():
        for version in ("1", "1", "2"):
            related = POD._replace(resource_version=version)
            world.recorder.emit(
                OWNER, type="Warning", reason="Bad", action="Do", note=version, related=related
            )
            await settle()
        again = POD._replace(name="owner-1", resource_version="1")
        world.recorder.emit(OWNER, type="Warning", reason="Bad", action="Do", note="other", related=again)
    assert world.server.requests == ["create", "create", "create", "patch"]
    assert [event["note"] for event in world.server.events.values()] == ["1", "2", "other"]


@pytest.mark.covers("PR-79")
async def test_another_state_of_the_subject_must_be_a_repeat(world: World) -> None:
    async with world.running():
        world.emit(about=OWNER._replace(resource_version="1"))
        await settle()
        world.emit(about=OWNER._replace(resource_version="2"))
    assert world.server.requests == ["create", "patch"]


async def test_thing_that_happens_again_much_later_must_be_a_new_event(world: World) -> None:
    async with world.running():
        world.emit()
        await world.clock.advance(SERIES_S + 1)
        world.emit()
    assert world.server.requests == ["create", "create"]


async def test_series_whose_event_expired_must_be_told_anew(world: World) -> None:
    async with world.running():
        world.emit()
        await world.clock.advance(20)
        world.server.events.clear()
        world.emit()
        await world.clock.advance(0)
        assert world.server.requests == ["create", "patch", "create"]
        assert world.only()["series"]["count"] == 2
        world.emit()
        await world.clock.advance(10)
    assert world.only()["series"]["count"] == 3


async def test_noisy_object_must_be_silenced_and_others_heard(world: World) -> None:
    async with world.running():
        for number in range(BURST + 10):
            world.emit(f"Reason{number}")
        world.emit(about=POD)
    assert len(world.server.requests) == BURST + 1
    assert world.dropped("too many") == 10


async def test_silenced_repeats_must_still_be_counted_once_the_series_is_told_again(world: World) -> None:
    async with world.running():
        for _ in range(BURST + 10):
            world.emit()
        await world.clock.advance(300)
        world.emit()
        await world.clock.advance(10)
    assert world.only()["series"]["count"] == BURST + 11


async def test_emit_must_drop_what_does_not_fit_the_queue(world: World) -> None:
    for number in range(events.QUEUE_LIMIT + 5):
        world.emit(about=ObjectRef("v1", "Pod", "ns", f"p{number}", str(number)))
    assert world.recorder.backlog == events.QUEUE_LIMIT
    assert world.dropped("queue full") == 5


async def test_emit_must_never_raise(world: World) -> None:
    with capture_logs() as logs:
        world.recorder.emit(None, type="Normal", reason="R", action="A", note="")  # type: ignore[arg-type]
    assert world.dropped("error") == 1
    assert logs[0]["log_level"] == "error"


async def test_server_in_trouble_must_be_tried_again_with_backoff(world: World) -> None:
    world.server.errors = [Unreachable("down"), Throttled(429, retry_after_s=30)]
    async with world.running():
        world.emit()
        await world.clock.advance(0.9)
        assert len(world.server.requests) == 1
        await world.clock.advance(0.1)
        assert len(world.server.requests) == 2
        await world.clock.advance(29)
        assert len(world.server.requests) == 2
        await world.clock.advance(1)
        assert len(world.server.events) == 1


async def test_event_that_was_received_after_all_must_count_as_sent(world: World) -> None:
    world.server.errors = [AlreadyExists(409)]
    async with world.running():
        world.emit()
    assert world.metrics.value("isthmus_events_sent_total") == 1


async def test_event_must_be_given_up_after_some_tries(world: World) -> None:
    world.server.errors = [Unreachable("down")] * events.TRIES
    async with world.running():
        world.emit()
        await world.clock.advance(1 + 2 + 4 + 8)
        assert world.dropped("failed") == 1
        world.emit()
        await world.clock.advance(0)
    assert world.only()["series"]["count"] == 2


async def test_refusals_must_be_logged_once_per_sort_and_never_retried(world: World) -> None:
    world.server.errors = [Forbidden(403), Forbidden(403), WriteRefused("not the leader")]
    with capture_logs() as logs:
        async with world.running():
            for reason in "ABC":
                world.emit(reason)
    assert world.server.requests == ["create"] * 3
    assert (world.dropped("failed"), world.dropped("not leading")) == (2, 1)
    assert len(logs) == 1


async def test_stop_must_send_what_waits_without_spacing(world: World) -> None:
    async with world.running():
        world.emit()
        await world.clock.advance(1)
        world.emit()
        await world.clock.advance(1)
        assert world.server.requests == ["create"]
    assert world.server.requests == ["create", "patch"]


async def test_stop_must_not_wait_for_a_server_in_trouble(world: World) -> None:
    world.server.errors = [Unreachable("down")] * 3
    async with world.running():
        world.emit()
        await settle()
    assert len(world.server.requests) == 2
    assert world.dropped("failed") == 1


async def test_idle_recorder_must_forget_and_then_sleep_for_good(world: World) -> None:
    async with world.running():
        world.emit()
        await world.clock.advance(1000)
        assert world.clock.sleepers == 0
        assert (len(world.recorder._book), len(world.recorder._spam)) == (0, 0)


async def test_repeat_while_its_event_is_being_sent_must_be_told_next(world: World) -> None:
    world.server.hang = asyncio.Event()
    async with world.running():
        world.emit()
        await settle()
        world.emit()
        world.server.hang.set()
        await settle()
        assert world.server.requests == ["create", "patch"]


async def test_long_texts_must_be_cut_to_what_the_server_takes(world: World) -> None:
    async with world.running():
        world.recorder.emit(
            ObjectRef("v1", "Pod", "ns", "x" * 252 + "y"),
            type="Normal",
            reason="R" * 200,
            action="A" * 200,
            note="ü" * 1000,
        )
        world.emit("Short", note="ü" * 512)
    long, short = world.server.events.values()
    assert len(long["metadata"]["name"]) <= 253
    assert (len(long["reason"]), len(long["action"])) == (128, 128)
    assert 1020 <= len(long["note"].encode()) <= 1024
    assert long["note"].endswith("ü…")
    assert short["note"] == "ü" * 512
