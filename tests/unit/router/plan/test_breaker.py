"""When a pool rests, and for how long."""

from __future__ import annotations

import pytest

from isthmus.router.plan.breaker import CLOSED, HALF_OPEN, OPEN, Breaker, BreakerSettings
from isthmus.router.plan.model import FAILURES, Outcome

SETTINGS = BreakerSettings(threshold=3, first_s=2.0, longest_s=5.0, probes=2)


def fail(breaker: Breaker, now: float, times: int = 1) -> None:
    for _ in range(times):
        breaker.ended(Outcome.FAILED, now, probe=breaker.began(now))


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker(SETTINGS)
    fail(breaker, now, 3)
    return breaker


@pytest.mark.parametrize("outcome", sorted(FAILURES, key=str))
def test_failures_in_a_row_must_open_it(outcome: Outcome) -> None:
    breaker = Breaker(SETTINGS)
    for _ in range(2):
        breaker.ended(outcome, 0.0, probe=False)
    assert breaker.allows(0.0)
    breaker.ended(outcome, 0.0, probe=False)
    assert (breaker.state(0.0), breaker.allows(0.0)) == (OPEN, False)


def test_success_must_begin_the_row_anew_and_a_cancelled_request_must_not() -> None:
    breaker = Breaker(SETTINGS)
    fail(breaker, 0.0, 2)
    breaker.ended(Outcome.OK, 0.0, probe=False)
    fail(breaker, 0.0, 2)
    assert breaker.state(0.0) == CLOSED
    breaker.ended(Outcome.CANCELLED, 0.0, probe=False)
    fail(breaker, 0.0)
    assert breaker.state(0.0) == OPEN


def test_rest_must_end_in_a_few_probes() -> None:
    breaker = opened()
    assert breaker.state(1.999) == OPEN
    assert breaker.state(2.0) == HALF_OPEN
    assert breaker.began(2.0)
    assert breaker.allows(2.0)
    assert breaker.began(2.0)
    assert not breaker.allows(2.0)


def test_probe_that_succeeds_must_close_it_for_good() -> None:
    breaker = opened()
    breaker.ended(Outcome.OK, 2.0, probe=breaker.began(2.0))
    assert breaker.state(2.0) == CLOSED
    assert not breaker.began(2.0)
    fail(breaker, 3.0, 3)
    assert breaker.rest_s == 2.0


def test_probe_that_fails_must_double_the_rest_up_to_the_longest() -> None:
    breaker = opened()
    fail(breaker, 2.0)
    assert breaker.state(5.999) == OPEN
    assert breaker.state(6.0) == HALF_OPEN
    fail(breaker, 6.0)
    assert breaker.rest_s == 5.0
    for round_number in range(50):
        fail(breaker, 11.0 + 5 * round_number)
    assert breaker.rest_s == 5.0


def test_probe_that_was_cancelled_must_give_its_turn_back() -> None:
    breaker = opened()
    probes = [breaker.began(2.0), breaker.began(2.0)]
    breaker.ended(Outcome.CANCELLED, 2.0, probe=probes[0])
    assert breaker.state(2.0) == HALF_OPEN
    assert breaker.allows(2.0)


def test_request_from_before_it_opened_must_change_nothing() -> None:
    breaker = opened()
    breaker.ended(Outcome.OK, 1.0, probe=False)
    assert breaker.state(1.0) == OPEN
    breaker.ended(Outcome.FAILED, 2.5, probe=False)
    assert breaker.state(2.5) == HALF_OPEN
    assert [breaker.began(2.5), breaker.began(2.5)] == [True, True]


def test_failures_while_it_rests_must_not_count_after_it() -> None:
    breaker = opened()
    for _ in range(5):
        breaker.ended(Outcome.FAILED, 1.0, probe=False)
    breaker.ended(Outcome.OK, 2.0, probe=breaker.began(2.0))
    fail(breaker, 3.0, 2)
    assert breaker.state(3.0) == CLOSED


def test_failed_probe_must_not_leave_a_row_behind() -> None:
    breaker = opened()
    fail(breaker, 2.0)
    breaker.ended(Outcome.OK, 6.0, probe=breaker.began(6.0))
    fail(breaker, 7.0, 2)
    assert breaker.state(7.0) == CLOSED


def test_probes_must_never_be_counted_below_none() -> None:
    breaker = opened()
    breaker.ended(Outcome.CANCELLED, 2.0, probe=True)
    assert [breaker.began(2.0), breaker.began(2.0)] == [True, True]
    assert not breaker.allows(2.0)
