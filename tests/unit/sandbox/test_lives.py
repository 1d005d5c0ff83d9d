"""What the process of a real pod means for the pod's status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.sandbox import faults
from isthmus.sandbox.lives import real_changes
from isthmus.sandbox.podstatus import Aspect, Shape
from isthmus.sandbox.workload import State

ASPECT = Aspect(address="198.18.1.0", started="2026-01-01T00:00:00Z", changed="2026-01-01T00:00:00Z")
ENDED = 1767225600.0


def after(state: State, asked: str = "", aspect: Aspect = ASPECT) -> Aspect:
    return msgspec.structs.replace(aspect, **real_changes(aspect, state, faults.parse(asked)))


def test_nothing_must_be_said_before_the_process_has_run() -> None:
    assert real_changes(ASPECT, State(), ()) == {}
    assert real_changes(ASPECT, State(running=True), ()) == {}


def test_process_must_be_ready_when_it_says_so() -> None:
    assert after(State(running=True, ready=True)).ready


@pytest.mark.parametrize("fault", ["never-ready", "unready"])
def test_fault_must_take_readiness_away(fault: str) -> None:
    assert not after(State(running=True, ready=True), fault).ready


def test_process_that_ended_must_back_off_with_its_exit_code() -> None:
    found = after(State(exit_code=3, ended_at=ENDED, restarts=1))
    assert (found.shape, found.ready, found.exit_code) == (Shape.BACKING_OFF, False, 3)
    assert (found.crashed, found.restarts) == ("2026-01-01T00:00:00Z", 1)
    again = after(State(running=True, ready=True, exit_code=3, ended_at=ENDED, restarts=1), aspect=found)
    assert (again.shape, again.ready, again.restarts) == (Shape.RUNNING, True, 1)


@pytest.mark.parametrize(("code", "shape"), [(0, Shape.SUCCEEDED), (1, Shape.FAILED)])
def test_process_that_is_over_must_have_succeeded_or_failed(code: int, shape: Shape) -> None:
    assert after(State(exit_code=code, ended_at=ENDED, over=True)).shape is shape


def test_status_that_is_so_already_must_need_no_write() -> None:
    state: Any = State(running=True, ready=True)
    assert real_changes(after(state), state, ()) == {}
