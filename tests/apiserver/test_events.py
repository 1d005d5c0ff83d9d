"""What the recorder sends, as the API server took it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from isthmus.api.coordination import EVENTS, Event
from isthmus.api.times import parse_time
from isthmus.clock import SystemClock
from isthmus.kube import config
from isthmus.kube.client import Client
from isthmus.runtime import events
from isthmus.runtime.events import EventRecorder, ObjectRef
from isthmus.runtime.metrics import Metrics
from tests.support.eventually import eventually, until

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def recorder(
    operator_kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EventRecorder]:
    """A recorder with the operator's rights and little spacing."""
    monkeypatch.setattr(events, "SPACING_S", 0.3)
    async with Client(config.load(operator_kubeconfig, environ={})) as client:
        one = EventRecorder(
            client,
            controller="isthmus.dev/operator",
            instance="operator-abc_12345678",
            clock=SystemClock(),
            metrics=Metrics(),
        )
        task = asyncio.get_running_loop().create_task(one.run())
        yield one
        one.stop()
        async with asyncio.timeout(5):
            await task


def pod(namespace: str, name: str = "p-0") -> ObjectRef:
    return ObjectRef("v1", "Pod", namespace, name, f"uid-of-{name}")


async def listed(admin: Client, namespace: str) -> list[Event]:
    return (await admin.list_page(EVENTS, namespace)).items


async def test_events_must_appear_with_their_fields_and_repeats_counted_in_a_series(
    recorder: EventRecorder, admin: Client, namespace: str
) -> None:
    def emit() -> None:
        recorder.emit(
            pod(namespace),
            type="Warning",
            reason="Restarted",
            action="RestartGroup",
            note="group 0 was restarted",
            related=pod(namespace, "p-1"),
        )

    emit()

    async def one_event() -> Event:
        found = await listed(admin, namespace)
        assert len(found) == 1
        return found[0]

    event = await eventually(one_event, within_s=5)
    assert event.metadata.name.startswith("p-0.")
    assert (event.type, event.reason, event.action) == ("Warning", "Restarted", "RestartGroup")
    assert event.note == "group 0 was restarted"
    assert event.reporting_controller == "isthmus.dev/operator"
    assert event.reporting_instance == "operator-abc_12345678"
    assert event.series is None
    for _ in range(4):
        emit()

    async def series_of_five() -> Event:
        again = await one_event()
        assert again.series is not None
        assert again.series.count == 5
        return again

    last = await eventually(series_of_five, within_s=5)
    assert last.metadata.uid == event.metadata.uid
    assert last.series is not None
    assert event.event_time is not None
    assert parse_time(last.series.last_observed_time) > parse_time(event.event_time)


async def test_series_whose_event_is_gone_must_begin_a_new_event(
    recorder: EventRecorder, admin: Client, namespace: str
) -> None:
    def emit() -> None:
        recorder.emit(pod(namespace), type="Normal", reason="Created", action="Create", note="")

    emit()

    async def one_event() -> Event:
        found = await listed(admin, namespace)
        assert len(found) == 1
        return found[0]

    first = await eventually(one_event, within_s=5)
    await admin.delete(EVENTS, namespace, first.metadata.name, uid=first.metadata.uid)
    emit()
    second = await eventually(one_event, within_s=5)
    assert second.metadata.name != first.metadata.name
    assert second.series is not None
    assert second.series.count == 2


async def test_longest_texts_and_names_must_be_taken(
    recorder: EventRecorder, admin: Client, namespace: str
) -> None:
    name = ".".join(["x" * 63] * 4)[:253]
    recorder.emit(pod(namespace, name), type="Normal", reason="R" * 200, action="A" * 200, note="ü" * 2000)
    recorder.emit(pod(namespace), type="Normal", reason="Empty", action="Create", note="")
    await until(lambda: recorder.backlog == 0)

    async def two_events() -> list[Event]:
        found = await listed(admin, namespace)
        assert len(found) == 2
        return found

    assert {event.reason for event in await eventually(two_events, within_s=5)} == {"R" * 128, "Empty"}


async def test_event_about_a_cluster_scoped_object_must_be_taken_in_the_default_namespace(
    recorder: EventRecorder, admin: Client, namespace: str
) -> None:
    node = ObjectRef("v1", "Node", "", f"node-of-{namespace}", "uid")
    recorder.emit(node, type="Normal", reason="Seen", action="Look", note="")

    async def found() -> Event:
        names = [e for e in await listed(admin, "default") if e.metadata.name.startswith(f"{node.name}.")]
        assert len(names) == 1
        return names[0]

    event = await eventually(found, within_s=5)
    with contextlib.suppress(Exception):
        await admin.delete(EVENTS, "default", event.metadata.name)


async def test_event_in_a_namespace_that_is_not_there_must_be_dropped_and_later_ones_sent(
    recorder: EventRecorder, admin: Client, namespace: str
) -> None:
    recorder.emit(pod("no-such-namespace"), type="Normal", reason="Lost", action="Create", note="")
    recorder.emit(pod(namespace), type="Normal", reason="Found", action="Create", note="")

    async def found() -> None:
        assert [event.reason for event in await listed(admin, namespace)] == ["Found"]

    await eventually(found, within_s=5)
