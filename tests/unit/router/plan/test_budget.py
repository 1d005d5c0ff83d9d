"""How many retries there may be."""

from __future__ import annotations

import pytest

from isthmus.router.plan.budget import CAP_REQUESTS, CAP_S, RetryBudget


def spend(budget: RetryBudget, now: float) -> int:
    """How many retries it gives at once."""
    count = 0
    while count < 10_000 and budget.take(now):
        count += 1
    return count


@pytest.mark.covers("PW-18")
def test_budget_must_begin_full_and_refill_with_time() -> None:
    budget = RetryBudget(0.0, 2.0, 100.0)
    assert spend(budget, 100.0) == 2 * CAP_S
    assert spend(budget, 101.5) == 3
    assert spend(budget, 101.9) == 0
    assert spend(budget, 102.0) == 1
    assert spend(budget, 100_000.0) == 2 * CAP_S


@pytest.mark.covers("PW-18")
def test_requests_must_earn_their_share() -> None:
    budget = RetryBudget(0.25, 0.0, 0.0)
    assert spend(budget, 0.0) == 0.25 * CAP_REQUESTS
    for _ in range(7):
        budget.request(0.0)
    assert spend(budget, 0.0) == 1
    for _ in range(1000):
        budget.request(0.0)
    assert spend(budget, 0.0) == 0.25 * CAP_REQUESTS


def test_time_must_count_once_however_it_is_asked() -> None:
    budget = RetryBudget(0.0, 1.0, 0.0)
    spend(budget, 0.0)
    budget.request(0.6)
    assert spend(budget, 1.0) == 1
    assert spend(budget, 1.0) == 0


def test_clock_that_goes_back_must_give_nothing() -> None:
    budget = RetryBudget(0.0, 1.0, 100.0)
    spend(budget, 100.0)
    assert spend(budget, 50.0) == 0
    assert spend(budget, 100.5) == 0
    assert spend(budget, 101.0) == 1


def test_budget_of_nothing_must_have_one_retry() -> None:
    budget = RetryBudget(0.0, 0.0, 0.0)
    assert spend(budget, 0.0) == 1
    assert spend(budget, 1e6) == 0
