"""What the simulated node writes into a pod's status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.meta import ObjectMeta, Raw
from isthmus.sandbox.podstatus import Aspect, Shape, status_of
from isthmus.sandbox.resources import Container, Pod, PodSpec

POD = Pod(
    metadata=ObjectMeta(name="p", namespace="n", uid="u"),
    spec=PodSpec(
        containers=(Container(name="a", image="i"), Container(name="b", image="j")),
        init_containers=(Container(name="init"),),
    ),
)
ASPECT = Aspect(address="198.18.1.0", started="2026-01-01T00:00:00Z", changed="2026-01-01T00:00:05Z")


def look(**changes: Any) -> Raw:
    return status_of(POD, msgspec.structs.replace(ASPECT, **changes))


def condition(raw_status: Raw, type_: str) -> str:
    return next(str(row["status"]) for row in raw_status["conditions"] if row["type"] == type_)


def test_ready_pod_must_have_an_address_and_all_containers_running() -> None:
    raw_status = look(ready=True)
    assert raw_status["phase"] == "Running"
    assert raw_status["podIP"] == "198.18.1.0"
    assert condition(raw_status, "Ready") == condition(raw_status, "ContainersReady") == "True"
    assert [(c["name"], c["ready"], list(c["state"])) for c in raw_status["containerStatuses"]] == [
        ("a", True, ["running"]),
        ("b", True, ["running"]),
    ]


def test_init_containers_must_have_completed() -> None:
    (init,) = look(ready=True)["initContainerStatuses"]
    assert init["state"]["terminated"]["exitCode"] == 0


def test_readiness_condition_must_say_when_it_changed() -> None:
    rows = {row["type"]: row["lastTransitionTime"] for row in look(ready=False)["conditions"]}
    assert rows["Ready"] == ASPECT.changed
    assert rows["Initialized"] == ASPECT.started


def test_restarted_container_must_show_its_last_end() -> None:
    first, second = look(restarts=2, crashed="2026-01-01T00:00:09Z")["containerStatuses"]
    assert first["restartCount"] == 2
    assert first["lastState"]["terminated"]["finishedAt"] == "2026-01-01T00:00:09Z"
    assert first["lastState"]["terminated"]["exitCode"] == 1
    assert second["restartCount"] == 0
    assert "lastState" not in second


def test_restarted_container_must_have_another_id() -> None:
    before, after = (look(restarts=n, crashed="x")["containerStatuses"][0] for n in (1, 2))
    assert before["containerID"] != after["containerID"]


def test_container_that_backs_off_must_wait_while_the_others_run() -> None:
    first, second = look(shape=Shape.BACKING_OFF, restarts=1, crashed="x")["containerStatuses"]
    assert first["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert (first["ready"], second["ready"]) == (False, True)


@pytest.mark.parametrize(("shape", "reason"), [(Shape.FAILED, None), (Shape.EVICTED, "Evicted")])
def test_pod_that_is_over_must_have_no_running_container(shape: Shape, reason: str | None) -> None:
    raw_status = look(shape=shape)
    assert (raw_status["phase"], raw_status["reason"]) == ("Failed", reason)
    assert all("terminated" in c["state"] and not c["ready"] for c in raw_status["containerStatuses"])


def test_pod_on_a_lost_node_must_be_unready_although_its_containers_were_last_seen_ready() -> None:
    raw_status = look(ready=True, lost=True)
    assert condition(raw_status, "Ready") == "False"
    assert condition(raw_status, "ContainersReady") == "True"
    assert raw_status["reason"] == "NodeLost"


def test_reason_must_be_taken_back_when_the_node_is_found_again() -> None:
    assert look(ready=True)["reason"] is None
