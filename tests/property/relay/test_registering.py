"""Any history of a registration: never silent for longer than the interval, never more than once a second
because of changes, never sooner than the answer of before allows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.pools import Grant
from isthmus.relay.plan.registering import JITTER, MIN_GAP_S, Asked, Standing, due_at, failed, granted

INTERVALS = st.floats(0.2, 600.0)
ANSWERS = st.one_of(
    st.tuples(st.just("granted"), INTERVALS, st.floats(0, 1)),
    st.tuples(st.sampled_from(["failing", "refused", "superseded"]), st.floats(0, 1e6), st.just(0.0)),
)
STEPS = st.lists(st.tuples(ANSWERS, st.integers(0, 2), st.floats(0, 3.0)), min_size=1, max_size=30)


@given(STEPS)
def test_every_history_must_keep_the_pace_of_the_contract(
    steps: list[tuple[tuple[str, float, float], int, float]],
) -> None:
    asked, now, revision = Asked(), 0.0, 1
    for (kind, number, chance), changes, took in steps:
        due = max(now, due_at(asked, revision))
        quiet = due_at(asked, asked.sent)
        revision += changes
        changed = due_at(asked, revision)
        assert changed <= quiet
        if asked.last is not None and changed < quiet:
            assert changed >= asked.last + MIN_GAP_S
            assert asked.standing == "registered"
        now = due + took
        before = asked
        if kind == "granted":
            grant = Grant(pool_id="p", heartbeat_interval_secs=number, lease_duration_secs=number * 3)
            asked = granted(before, grant, revision, now, chance)
            pause = asked.due - now
            assert number * (1 - JITTER) <= pause * 1.0000001
            assert pause <= number * (1 + JITTER) * 1.0000001
            assert (asked.failures, asked.sent, asked.standing) == (0, revision, "registered")
        else:
            standing: Standing = kind  # type: ignore[assignment] # one of them, as drawn
            asked = failed(before, standing, "x", now, retry_after_s=number)
            assert 0 < asked.due - now <= before.interval_s + 1e-6
            assert asked.interval_s == before.interval_s
            assert asked.sent == before.sent
            assert asked.until is None or asked.until > now
            if kind == "failing" and number == 0:
                assert asked.due - now <= 2.0 ** (asked.failures - 1) + 1e-6
