"""When a relay registers, and what each answer means for the next time."""

from __future__ import annotations

import pytest

from isthmus.api.pools import Grant
from isthmus.relay.plan.registering import Asked, Standing, due_at, failed, granted, standing_of

GRANT = Grant(pool_id="p", heartbeat_interval_secs=10.0, lease_duration_secs=30.0)


@pytest.mark.covers("PW-4")
def test_renewal_must_be_due_at_the_interval_of_the_answer_give_or_take_a_tenth() -> None:
    for chance, due in ((0.0, 109.0), (0.5, 110.0), (1.0, 111.0)):
        assert granted(Asked(), GRANT, 1, 100.0, chance).due == pytest.approx(due)


@pytest.mark.covers("PW-4")
def test_change_must_be_told_at_once_but_not_within_a_second_of_the_last() -> None:
    asked = granted(Asked(), GRANT, 1, 100.0, 0.5)
    assert due_at(asked, 1) == 110.0
    assert due_at(asked, 2) == 101.0
    assert due_at(granted(asked, GRANT, 2, 105.0, 0.5), 2) == 115.0


@pytest.mark.covers("PW-4")
def test_failures_must_be_tried_again_after_1_2_4_and_at_most_the_interval() -> None:
    asked, pauses = granted(Asked(), GRANT, 1, 100.0, 0.5), []
    for _ in range(6):
        asked = failed(asked, "failing", "x", 200.0)
        pauses.append(asked.due - 200.0)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert due_at(asked, 9) == asked.due, "a change does not break through a pause"
    again = granted(asked, GRANT, 2, 300.0, 0.5)
    assert failed(again, "failing", "x", 400.0).due == 401.0


def test_what_the_service_asks_for_must_be_kept_to_up_to_the_interval() -> None:
    asked = granted(Asked(), GRANT, 1, 100.0, 0.5)
    assert failed(asked, "failing", "x", 200.0, retry_after_s=7.0).due == 207.0
    assert failed(asked, "failing", "x", 200.0, retry_after_s=3600.0).due == 210.0


@pytest.mark.covers("PW-2")
@pytest.mark.parametrize(
    ("status", "code", "standing", "pause"),
    [
        (409, "stale_incarnation", "superseded", 10.0),
        (409, "stale_revision", "failing", 1.0),
        (400, "invalid_field", "refused", 10.0),
        (401, "", "refused", 10.0),
        (403, "", "refused", 10.0),
        (503, "store_unavailable", "failing", 1.0),
        (500, "", "failing", 1.0),
        (0, "", "failing", 1.0),
    ],
)
def test_refusal_must_mean_what_the_contract_says(
    status: int, code: str, standing: Standing, pause: float
) -> None:
    assert standing_of(status, code) == standing
    asked = failed(granted(Asked(), GRANT, 1, 100.0, 0.5), standing, "x", 105.0)
    assert (asked.standing, asked.due - 105.0) == (standing, pause)


def test_lease_must_be_known_until_it_ends() -> None:
    asked = granted(Asked(), GRANT, 1, 100.0, 0.5)
    assert failed(asked, "failing", "x", 129.9).until == 130.0
    assert failed(asked, "failing", "x", 130.0).until is None


def test_first_registration_must_be_due_at_once() -> None:
    assert due_at(Asked(), 1) <= 0.0


def test_service_never_makes_a_relay_ask_without_a_pause() -> None:
    hasty = Grant(pool_id="p", heartbeat_interval_secs=1e-9, lease_duration_secs=1)
    assert granted(Asked(), hasty, 1, 0.0, 0.0).due >= 0.09
