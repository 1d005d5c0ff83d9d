"""One pass of the controller: what it waits for, writes, reports and tells, over real caches and a real
store."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.api.decode import Unreadable
from isthmus.api.modelserving import Condition, ModelServing
from isthmus.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, ServerError, WriteRefused
from isthmus.modelserving.controller import ModelServingController
from isthmus.modelserving.report import STATUS_SPACING_S
from isthmus.runtime.controller import DONE, Again, Outcome
from isthmus.runtime.events import ObjectRef
from isthmus.runtime.expect import DEADLINE_S, Expectations
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.gang import FixedGang
from tests.support.serving import (
    NOW,
    Scene,
    crashed_status,
    decode_pod,
    decode_service,
    failed_status,
    ready_status,
    role,
    serving,
    terminating,
    unready_status,
    with_meta,
)
from tests.unit.modelserving.test_executor import ENDING, Client
from tests.unit.modelserving.test_store import A, Bench

STATUS = "patch modelservings a"
FAR = "5000"
"""A resourceVersion that no cache has reached."""


class Recorder:
    """What of an EventRecorder the controller uses."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.regarding: set[tuple[str, str]] = set()
        self.related: list[str] = []

    def emit(self, regarding: ObjectRef, **event: Any) -> None:
        assert event["action"] == "Reconcile"
        self.told.append(f"{event['type']} {event['reason']}: {event['note']}")
        self.regarding.add((regarding.kind, regarding.uid))
        if event.get("related") is not None:
            self.related.append(event["related"].name)

    def news(self) -> list[str]:
        """What was told since the last call."""
        told, self.told = self.told, []
        return told


class Rig:
    """A controller in a world of real caches and store, a fake client and clock."""

    def __init__(self, of: ModelServing | None = None, *, groups: int = 0, stored: bool = True) -> None:
        self.bench = Bench()
        self.scene = Scene(of if of is not None else serving(role("p", 2), replicas=max(1, groups)))
        self.scene.has_groups(*range(groups))
        self.bench.put(self.scene.serving, *self.scene.services.values(), *self.scene.pods.values())
        if stored:
            self.bench.put(*self.scene.revisions)
        self.client = Client()
        self.client.version = "0"
        self.clock = FakeClock(NOW)
        self.recorder = Recorder()
        self.gang = FixedGang()
        self.start()

    def start(self) -> None:
        """The operator starts, or starts again."""
        self.expectations = Expectations(self.clock, Metrics())
        self.controller = ModelServingController(
            self.client,  # type: ignore[arg-type]
            self.bench.caches,
            self.bench.store,
            self.expectations,
            self.recorder,  # type: ignore[arg-type]
            self.clock,
            self.gang,  # type: ignore[arg-type]
        )

    async def go(self) -> Outcome:
        self.client.begun.clear()
        return await self.controller.reconcile(A)

    async def fail(self) -> list[Exception]:
        """A pass in which actions fail; with what."""
        with pytest.raises(ExceptionGroup) as raised:
            await self.go()
        return list(raised.value.exceptions)

    def arrive(self) -> None:
        """The watches show what was created and what the status has become."""
        for text, body in list(self.client.sent.items()):
            if text.startswith("create pods"):
                self.bench.put(decode_pod(body, status=unready_status()))
            elif text.startswith("create services"):
                self.bench.put(decode_service(body))
        self.bench.put(*self.scene.revisions)
        self.client.sent.clear()

    def change(self, name: str, **fields: Any) -> None:
        """A pod of the scene changes."""
        self.bench.put(replace(self.scene.pods[name], **fields))

    @property
    def status(self) -> dict[str, Any]:
        """The status that was written last."""
        found: dict[str, Any] = self.client.sent[STATUS]["status"]
        return found

    @property
    def progressing(self) -> tuple[str, str, str]:
        """(status, reason, message) of the condition, as last written."""
        return next(
            (each["status"], each["reason"], each["message"])
            for each in self.status["conditions"]
            if each["type"] == "Progressing"
        )


# What a pass waits for, and whom it leaves alone


@pytest.mark.covers("MS-434", "MS-50")
async def test_pass_must_wait_until_its_own_writes_are_seen() -> None:
    rig = Rig(groups=1)
    rig.client.version = FAR
    assert await rig.go() == DONE
    assert rig.client.begun == [STATUS]
    rig.change("a-0-p-0-0", status=failed_status())
    assert await rig.go() == Again(DEADLINE_S)
    await rig.clock.advance(20)
    assert await rig.go() == Again(DEADLINE_S - 20)
    assert rig.client.begun == []
    rig.bench.caches.servings.progress("", FAR)
    await rig.go()
    assert "delete pods a-0-p-0-0" in rig.client.begun


async def test_unknown_serving_must_be_done() -> None:
    rig = Rig(groups=1)
    assert await rig.controller.reconcile(("default", "unknown")) == DONE
    assert rig.client.begun == []


@pytest.mark.covers("MS-417")
async def test_serving_that_is_being_deleted_must_be_left_alone() -> None:
    rig = Rig(groups=1)
    await rig.go()
    rig.recorder.news()
    dying = replace(rig.scene.serving.metadata, deletion_timestamp="2026-09-21T14:13:20Z")
    for spec in (rig.scene.serving.spec, Unreadable(reason="no")):
        rig.bench.put(replace(rig.scene.serving, metadata=dying, spec=spec))
        rig.bench.remove(rig.scene.pods["a-0-p-0-0"])
        assert await rig.go() == DONE
        assert rig.client.begun == []
        assert rig.recorder.news() == []


@pytest.mark.covers("MS-44", "R29")
async def test_deleted_serving_must_be_forgotten_altogether() -> None:
    rig = Rig(serving(role("p", workerReplicas=2)))
    rig.client.version = FAR
    rig.client.errors["create pods a-0-p-0-0"] = ENDING
    await rig.go()
    assert [text for text in rig.recorder.news() if "InvalidSpec" in text]
    assert rig.controller.decisions.decisions(None, None)
    for cache in rig.bench.caches.all:
        cache.progress("", FAR)
    rig.bench._version = int(FAR) + 1
    rig.bench.remove(rig.scene.serving)
    assert await rig.go() == DONE
    assert rig.client.begun == []
    assert len(rig.expectations) == 0
    assert list(rig.controller.decisions.decisions(None, None)) == []
    # The same again, as if it had never been: told, written and tried anew, though it has the same UID.
    rig.bench.put(rig.scene.serving)
    await rig.go()
    assert [text for text in rig.recorder.news() if "InvalidSpec" in text]
    assert "create pods a-0-p-0-0" in rig.client.begun
    assert STATUS in rig.client.begun


@pytest.mark.covers("R29")
async def test_deleted_servings_must_leave_nothing_behind() -> None:
    rig = Rig(groups=1)
    empty = _held(rig.controller)
    rig.client.version = FAR
    rig.change("a-0-p-0-0", status=unready_status())
    await rig.go()
    assert _held(rig.controller) != empty
    await rig.clock.advance(DEADLINE_S)
    rig.bench.remove(rig.scene.serving)
    await rig.go()
    assert _held(rig.controller) == empty


def _held(obj: Any) -> dict[str, int]:
    """Sizes of all maps that a controller and its parts keep by key, by attribute."""
    parts = {"": obj, "status": obj._status, "executor": obj._executor, "waits": obj._expectations}
    return {
        f"{part}.{name}": len(value)
        for part, owner in parts.items()
        for name, value in vars(owner).items()
        if isinstance(value, dict)
    }


@pytest.mark.covers("R05", "MS-106")
@pytest.mark.parametrize("how", ["acted on", "refused"])
async def test_successor_of_the_same_name_must_be_told_of_anew(how: str) -> None:
    bad = role("p", workerReplicas=2) if how == "acted on" else role("p", -1)
    rig = Rig(serving(bad), stored=False)
    await rig.go()
    told = rig.recorder.news()
    assert told
    # Its deletion and creation are seen while another pass runs, so that no pass sees that it was gone.
    metadata = replace(rig.scene.serving.metadata, uid="second")
    rig.bench.put(replace(rig.scene.serving, metadata=metadata))
    rig.client.begun.clear()
    await rig.go()
    assert rig.recorder.news() == told
    assert rig.recorder.regarding == {("ModelServing", "uid-a"), ("ModelServing", "second")}


async def test_deleted_serving_must_drop_what_it_waited_for() -> None:
    rig = Rig(groups=1)
    rig.client.version = FAR
    await rig.go()
    rig.bench.remove(rig.scene.serving)
    await rig.clock.advance(DEADLINE_S)
    assert await rig.go() == DONE
    assert len(rig.expectations) == 0


# Specs that cannot be acted on


@pytest.mark.covers("MS-24", "R14", "MS-106")
@pytest.mark.parametrize("how", ["unreadable", "blocking"])
async def test_refused_spec_must_be_reported_once_and_leave_pods_alone(how: str) -> None:
    rig = Rig(groups=1)
    if how == "unreadable":
        bad = replace(rig.scene.serving, spec=Unreadable(reason="spec.replicas: too many"))
        bad = replace(bad, metadata=replace(bad.metadata, generation=2))
    else:
        bad = serving(role("p", -1), generation=2)
    rig.bench.put(bad)
    rig.bench.remove(rig.scene.pods["a-0-p-0-0"])
    assert await rig.go() == DONE
    assert rig.client.begun == [STATUS]
    assert rig.status["observedGeneration"] == 2
    kind, reason, message = rig.progressing
    assert (kind, reason) == ("False", "InvalidSpec")
    assert "replicas" in message
    assert rig.recorder.news() == [f"Warning InvalidSpec: {message}"]
    assert rig.recorder.regarding == {("ModelServing", "uid-a")}
    assert await rig.go() == DONE
    assert rig.recorder.news() == []


async def test_status_that_the_server_refuses_for_its_spec_must_be_no_failure() -> None:
    rig = Rig()
    rig.bench.put(replace(rig.scene.serving, spec=Unreadable(reason="no")))
    rig.client.errors[STATUS] = Invalid(422)
    assert await rig.go() == DONE
    rig.client.errors[STATUS] = ServerError(500)
    with pytest.raises(ServerError):
        await rig.go()


@pytest.mark.covers("MS-36")
async def test_spec_with_a_problem_must_be_acted_on_and_reported() -> None:
    rig = Rig(serving(role("p", workerReplicas=2)))
    await rig.go()
    assert "create pods a-0-p-0-0" in rig.client.begun
    assert "create pods a-0-p-0-1" not in rig.client.begun
    assert rig.progressing[:2] == ("False", "InvalidSpec")
    assert "workerTemplate" in rig.progressing[2]
    (warning,) = [text for text in rig.recorder.news() if text.startswith("Warning")]
    assert warning == f"Warning InvalidSpec: {rig.progressing[2]}"
    rig.arrive()
    await rig.go()
    assert rig.recorder.news() == []


# Failures


@pytest.mark.covers("MS-422", "MS-411", "MS-106")
async def test_failed_action_must_be_in_status_and_told_once() -> None:
    rig = Rig()
    rig.client.errors["create pods a-0-p-0-0"] = Forbidden(403, "Forbidden", "quota is used up")
    assert await rig.fail() == [rig.client.errors["create pods a-0-p-0-0"]]
    assert "create pods a-0-p-1-0" in rig.client.begun
    assert rig.progressing == ("False", "ActionFailed", "quota is used up")
    assert "Warning ActionFailed: quota is used up" in rig.recorder.news()
    await rig.fail()
    assert rig.recorder.news() == []
    (first, *_) = rig.controller.decisions.decisions(None, None)
    assert first.outcome == "failed: 403 Forbidden: quota is used up"


async def test_problem_that_comes_back_must_be_told_again() -> None:
    rig = Rig()
    text = "create pods a-0-p-0-0"
    for _ in range(2):
        rig.client.errors[text] = Forbidden(403, "Forbidden", "quota is used up")
        await rig.fail()
        assert "Warning ActionFailed: quota is used up" in rig.recorder.news()
        del rig.client.errors[text]
        await rig.go()


@pytest.mark.covers("MS-35", "MS-422")
async def test_taken_name_must_be_in_status_and_told() -> None:
    rig = Rig()
    rig.client.errors["create pods a-0-p-0-0"] = AlreadyExists(409, "AlreadyExists")
    pod = Scene(rig.scene.serving).has_group(0).pods["a-0-p-0-0"]
    rig.client.found["a-0-p-0-0"] = with_meta(pod, owner_references=())
    await rig.fail()
    assert "Pod a-0-p-0-0 exists and belongs to nobody" in rig.progressing[2]
    # The same, seen before it is tried.
    rig = Rig()
    stranger = replace(pod.metadata.owner_references[0], kind="Other", name="x", uid="x")
    rig.bench.put(with_meta(pod, owner_references=(stranger,)))
    await rig.go()
    assert "create pods a-0-p-0-0" not in rig.client.begun
    assert rig.progressing[:2] == ("False", "NameTaken")
    assert [text for text in rig.recorder.news() if text.startswith("Warning NameTaken:")]
    await rig.go()
    assert [text for text in rig.recorder.news() if text.startswith("Warning")] == []


async def test_many_failures_must_be_one_short_line() -> None:
    rig = Rig(serving(role("p", 9)))
    for number in range(9):
        text = "full" if number < 5 else f"odd {number}"
        rig.client.errors[f"create pods a-0-p-{number}-0"] = Forbidden(403, "Forbidden", text)
    assert len(await rig.fail()) == 9
    assert rig.progressing[2] == "full; odd 5; odd 6; and 2 more"
    (decision,) = rig.controller.decisions.decisions(None, None)
    assert decision.outcome == "failed: " + "; ".join(["403 Forbidden: full"] * 3)
    rig = Rig(serving(role("p", 1)))
    rig.client.errors["create pods a-0-p-0-0"] = Forbidden(403, "Forbidden", "x" * 5000)
    await rig.fail()
    assert len(rig.progressing[2]) == 1000


async def test_conflict_must_be_tried_again_and_be_no_problem() -> None:
    rig = Rig(groups=1)
    rig.change("a-0-p-0-0", status=failed_status())
    conflict = Conflict(409, "Conflict", "somebody else")
    rig.client.errors["delete pods a-0-p-0-0"] = conflict
    assert await rig.fail() == [conflict]
    assert rig.status["availableReplicas"] is None
    assert "somebody else" not in str(rig.status)
    warnings = [text for text in rig.recorder.news() if text.startswith("Warning")]
    assert warnings == [
        "Warning PodFailed: a-0 was recovered because of pod a-0-p-0-0: Evicted: node is full"
    ]
    (decision,) = rig.controller.decisions.decisions(None, None)
    assert "somebody else" in decision.outcome


@pytest.mark.covers("MS-430", "R15")
async def test_process_that_may_not_write_must_stop_there() -> None:
    rig = Rig()
    rig.client.errors["create pods a-0-p-0-0"] = WriteRefused("the lease is lost")
    with pytest.raises(WriteRefused):
        await rig.go()
    assert STATUS not in rig.client.begun
    assert rig.recorder.news() == []


@pytest.mark.covers("MS-422")
async def test_status_that_cannot_be_written_must_fail_the_pass() -> None:
    rig = Rig(groups=1)
    rig.client.errors[STATUS] = ServerError(500)
    with pytest.raises(ServerError):
        await rig.go()
    del rig.client.errors[STATUS]
    assert await rig.go() == DONE
    assert rig.client.begun == [STATUS]


# Events


@pytest.mark.covers("MS-106")
async def test_transitions_of_roles_must_be_told_and_nothing_else() -> None:
    rig = Rig(serving(role("pre-fill", 2), role("q", 0)), stored=False)
    await rig.go()
    assert rig.recorder.news() == [
        "Normal RoleCreating: Roles pre-fill/pre-fill-0 in ServingGroup a-0, "
        "pre-fill/pre-fill-1 in ServingGroup a-0 are now Creating"
    ]
    assert rig.recorder.related == ["a-0-pre-fill-0-0"]
    assert rig.recorder.regarding == {("ModelServing", "uid-a")}
    rig.arrive()
    await rig.go()
    assert rig.recorder.news() == []
    pods = rig.bench.caches.pods
    for pod in list(pods.values()):
        rig.bench.put(replace(pod, status=ready_status()))
    await rig.go()
    assert rig.recorder.news() == [
        "Normal RoleRunning: Roles pre-fill/pre-fill-0 in ServingGroup a-0, "
        "pre-fill/pre-fill-1 in ServingGroup a-0 are now Running"
    ]
    rig.bench.put(serving(role("pre-fill", 1), role("q", 0), generation=2))
    await rig.go()
    told = ["Normal RoleDeleting: Role pre-fill/pre-fill-1 in ServingGroup a-0 is now Deleting"]
    assert rig.recorder.news() == told
    last = pods.get(("default", "a-0-pre-fill-1-0"))
    assert last is not None
    rig.bench.put(terminating(last))
    await rig.go()
    rig.bench.remove(last)
    await rig.go()
    assert rig.recorder.news() == []


@pytest.mark.covers("MS-106")
async def test_restart_must_be_no_news() -> None:
    rig = Rig(groups=2)
    rig.change("a-1-p-0-0", status=unready_status())
    rig.bench.put(terminating(rig.scene.pods["a-1-p-1-0"]))
    await rig.go()
    assert rig.recorder.news() == []
    rig.bench.put(serving(role("p", 2), replicas=3, generation=2))
    rig.start()
    await rig.go()
    assert rig.recorder.news() == [
        "Normal RoleCreating: Roles p/p-0 in ServingGroup a-2, p/p-1 in ServingGroup a-2 are now Creating"
    ]


@pytest.mark.covers("MS-106", "MS-403")
async def test_lost_readiness_must_be_told_when_it_goes_and_when_it_comes() -> None:
    rig = Rig(groups=1)
    await rig.go()
    rig.change("a-0-p-0-0", status=unready_status())
    await rig.go()
    assert rig.recorder.news() == ["Normal RoleCreating: Role p/p-0 in ServingGroup a-0 is now Creating"]
    rig.change("a-0-p-0-0", status=ready_status())
    await rig.go()
    assert rig.recorder.news() == ["Normal RoleRunning: Role p/p-0 in ServingGroup a-0 is now Running"]


# When to come again


@pytest.mark.covers("MS-49", "MS-83")
async def test_pass_must_come_again_when_a_grace_ends() -> None:
    rig = Rig(serving(role("p", 2), template={"restartGracePeriodSeconds": 30}), groups=1)
    rig.change("a-0-p-0-0", status=crashed_status(at=NOW - 10))
    assert await rig.go() == Again(20)
    await rig.clock.advance(20)
    assert await rig.go() == DONE
    assert "delete pods a-0-p-0-0" in rig.client.begun


async def test_grace_that_ends_while_a_pass_runs_must_be_due_at_once() -> None:
    rig = Rig(serving(role("p", 2), template={"restartGracePeriodSeconds": 30}), groups=1)
    rig.change("a-0-p-0-0", status=crashed_status(at=NOW - 10))
    rig.client.meanwhile = lambda: rig.clock.step_wall(100)
    assert await rig.go() == Again(0)


async def test_status_that_was_put_off_must_be_written_in_time() -> None:
    rig = Rig(groups=1)
    await rig.go()
    message = Condition(type="Available", status="True", reason="AllGroupsReady", message="old")
    status = replace(rig.scene.plan().status, conditions=(message,))
    rig.bench.put(replace(rig.scene.serving, status=status))
    assert await rig.go() == Again(STATUS_SPACING_S)
    assert rig.client.begun == []
    await rig.clock.advance(STATUS_SPACING_S)
    assert await rig.go() == DONE
    assert rig.client.begun == [STATUS]


async def test_pass_must_come_again_for_whatever_is_first() -> None:
    rig = Rig(serving(role("p", 2), template={"restartGracePeriodSeconds": 30}), groups=1)
    rig.change("a-0-p-0-0", status=crashed_status(at=NOW - 10))
    await rig.go()
    scene = Scene(rig.scene.serving).has_group(0)
    scene.pods["a-0-p-0-0"] = replace(rig.scene.pods["a-0-p-0-0"], status=crashed_status(at=NOW - 10))
    status = scene.plan().status
    quiet = tuple(replace(each, message="old") for each in status.conditions)
    rig.bench.put(replace(rig.scene.serving, status=replace(status, conditions=quiet)))
    assert await rig.go() == Again(STATUS_SPACING_S)
    await rig.clock.advance(STATUS_SPACING_S / 2)
    assert await rig.go() == Again(STATUS_SPACING_S / 2)


# What is kept of a pass


async def test_decision_must_say_what_was_seen() -> None:
    rig = Rig(groups=2)
    rig.change("a-1-p-0-0", status=unready_status())
    rig.bench.put(terminating(rig.scene.pods["a-1-p-1-0"]))
    await rig.go()
    (decision,) = rig.controller.decisions.decisions("default", "a")
    assert decision.observed == {
        "generation": 1,
        "revision": rig.scene.desired.revision.name,
        "replicas": 2,
        "pods": 3,
        "groupsRunning": 1,
        "groupsCreating": 1,
    }
    assert decision.outcome.startswith("waiting: ")
    assert decision.duration_seconds == 0


@pytest.mark.covers("R05")
async def test_decision_must_not_count_what_others_left_as_groups() -> None:
    rig = Rig()
    rig.bench.put(*Scene(serving(role("p"), uid="former")).has_group(0).pods.values())
    await rig.go()
    (decision,) = rig.controller.decisions.decisions("default", "a")
    assert set(decision.observed) == {"generation", "revision", "replicas", "pods"}


@pytest.mark.covers("MS-401", "R08")
async def test_pass_must_settle_losses_that_call_for_nothing() -> None:
    rig = Rig(serving(role("p", 1, 1), recovery="None"), groups=1)
    rig.bench.remove(rig.scene.pods["a-0-p-0-1"])
    assert rig.bench.store.sizes()["remembered"] == 1
    await rig.go()
    assert "create pods a-0-p-0-1" in rig.client.begun
    assert rig.bench.store.sizes()["remembered"] == 0


@pytest.mark.covers("MS-8", "MS-83", "MS-106")
async def test_recovery_must_be_written_before_the_pod_goes_and_be_told_once() -> None:
    rig = Rig(groups=1)
    rig.change("a-0-p-0-0", status=failed_status())
    assert await rig.go() == DONE
    assert rig.client.begun == [STATUS, "delete pods a-0-p-0-0"]
    (last,) = rig.status["recoveries"]
    assert (last["group"], last["pod"], last["reason"]) == ("a-0", "a-0-p-0-0", "Evicted")
    assert "Warning PodFailed: a-0 was recovered because of pod a-0-p-0-0: Evicted: node is full" in (
        rig.recorder.news()
    )
    assert "a-0-p-0-0" in rig.recorder.related


async def test_recovery_that_cannot_be_written_must_delete_nothing() -> None:
    rig = Rig(groups=1)
    rig.change("a-0-p-0-0", status=failed_status())
    rig.client.errors[STATUS] = ServerError(500, "InternalError", "no")
    with pytest.raises(ServerError):
        await rig.go()
    assert "delete pods a-0-p-0-0" not in rig.client.begun
