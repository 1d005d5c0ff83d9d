"""When a status is written, and what is sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.modelserving import Condition, ModelServing, Status
from isthmus.kube.client import PatchKind
from isthmus.kube.errors import Conflict, NotFound
from isthmus.modelserving.report import STATUS_SPACING_S, StatusWriter, is_urgent, patch
from isthmus.runtime.expect import Expectations
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.serving import role, serving


class Client:
    """What of a client the writer uses: it writes down what was sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.error: Exception | None = None

    async def patch(
        self, resource: Any, namespace: str, name: str, body: bytes, *, kind: PatchKind, subresource: str
    ) -> Any:
        if self.error is not None:
            raise self.error
        assert (namespace, name, kind, subresource) == ("default", "a", PatchKind.MERGE, "status")
        self.sent.append(msgspec.json.decode(body))
        return msgspec.defstruct("Written", [("resource_version", str)])("77")


class Bench:
    """A writer, its clock, and the ModelServing as the cache would have it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.client = Client()
        self.expectations = Expectations(self.clock, Metrics())
        self.writer = StatusWriter(self.client, self.expectations, self.clock)  # type: ignore[arg-type]
        self.serving: ModelServing = serving(role())

    async def write(self, status: Status) -> float | None:
        before = len(self.client.sent)
        deferred = await self.writer.write(self.serving, status)
        if len(self.client.sent) > before:
            self.serving = replace(self.serving, status=status)
        return deferred


AVAILABLE = Condition(type="Available", status="False", reason="GroupProgressing", message="1")
BASE = Status(observed_generation=1, replicas=3, available_replicas=1, conditions=(AVAILABLE,))


@pytest.mark.covers("MS-434")
async def test_equal_status_never_is_written() -> None:
    bench = Bench()
    assert await bench.write(BASE) is None
    assert await bench.write(replace(BASE)) is None
    assert len(bench.client.sent) == 1


@pytest.mark.covers("MS-8")
async def test_patch_must_carry_the_uid_and_null_what_is_empty() -> None:
    sent = msgspec.json.decode(patch(serving(role()), BASE))
    assert sent["metadata"] == {"uid": "uid-a"}
    assert sent["status"] == {
        "observedGeneration": 1,
        "replicas": 3,
        "currentReplicas": None,
        "updatedReplicas": None,
        "availableReplicas": 1,
        "currentRevision": None,
        "updateRevision": None,
        "labelSelector": None,
        "recoveries": None,
        "conditions": [
            {
                "type": "Available",
                "status": "False",
                "reason": "GroupProgressing",
                "message": "1",
                "lastTransitionTime": "",
                "observedGeneration": 0,
            }
        ],
    }


async def test_counts_that_grow_must_wait_and_then_go_out() -> None:
    bench = Bench()
    await bench.write(BASE)
    more = replace(BASE, available_replicas=2)
    assert await bench.write(more) == pytest.approx(STATUS_SPACING_S)
    await bench.clock.advance(0.75)
    assert await bench.write(more) == pytest.approx(STATUS_SPACING_S - 0.75)
    await bench.clock.advance(STATUS_SPACING_S - 0.75)
    assert await bench.write(more) is None
    assert [each["status"]["availableReplicas"] for each in bench.client.sent] == [1, 2]


@pytest.mark.covers("R09", "MS-432")
@pytest.mark.parametrize(
    "news",
    [
        replace(BASE, available_replicas=0),
        replace(BASE, observed_generation=2),
        replace(BASE, current_revision="x"),
        replace(BASE, update_revision="x"),
        replace(BASE, conditions=(replace(AVAILABLE, status="True"),)),
        replace(BASE, conditions=(replace(AVAILABLE, reason="Other"),)),
        replace(BASE, conditions=()),
    ],
)
async def test_news_must_go_out_at_once(news: Status) -> None:
    assert is_urgent(BASE, news)
    bench = Bench()
    await bench.write(BASE)
    assert await bench.write(news) is None
    assert len(bench.client.sent) == 2


@pytest.mark.parametrize(
    "quiet",
    [
        replace(BASE, available_replicas=2),
        replace(BASE, updated_replicas=1),
        replace(BASE, conditions=(replace(AVAILABLE, message="2"),)),
    ],
)
def test_growing_counts_and_changing_texts_never_are_urgent(quiet: Status) -> None:
    assert not is_urgent(BASE, quiet)


async def test_status_of_a_serving_that_is_gone_must_be_nobodys_concern() -> None:
    bench = Bench()
    bench.client.error = NotFound(404, "NotFound", "gone")
    assert await bench.write(BASE) is None
    assert bench.expectations.satisfied(("default", "a"), {})


async def test_refused_status_must_be_raised_and_tried_again_at_once() -> None:
    bench = Bench()
    bench.client.error = Conflict(409, "Conflict", "another")
    with pytest.raises(Conflict):
        await bench.write(BASE)
    bench.client.error = None
    assert await bench.write(BASE) is None
    assert len(bench.client.sent) == 1


async def test_written_status_must_be_expected() -> None:
    bench = Bench()
    await bench.write(BASE)
    assert len(bench.expectations) == 1


async def test_forgotten_serving_must_be_written_at_once() -> None:
    bench = Bench()
    await bench.write(BASE)
    bench.writer.forget(("default", "a"))
    bench.writer.forget(("default", "a"))
    assert await bench.write(replace(BASE, available_replicas=2)) is None
