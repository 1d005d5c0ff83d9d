"""What is told of a pool's last two minutes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.router.history import RECENT, SAMPLES, SLOT_S, SLOTS, History


def test_rates_and_percentiles_must_be_of_the_last_half_minute() -> None:
    history = History()
    for number in range(60):
        history.record("a", 0.1 * (number % 10), ok=number % 3 > 0, now=100.0 + number / 10)
    found = history.traffic("a", 106.0)
    assert found.requests_per_s == 60 / (RECENT * SLOT_S)
    assert found.errors_per_s == 20 / (RECENT * SLOT_S)
    assert found.first_byte_p50_s == 0.5
    assert found.first_byte_p99_s == 0.9
    assert len(found.line) == SLOTS
    assert sum(found.line) * SLOT_S == 60
    later = history.traffic("a", 106.0 + RECENT * SLOT_S)
    assert (later.requests_per_s, later.first_byte_p50_s) == (0.0, None)
    assert sum(later.line) > 0


def test_pool_that_is_not_kept_must_be_forgotten() -> None:
    history = History()
    history.record("a", 0.1, ok=True, now=1.0)
    history.record("b", 0.1, ok=True, now=1.0)
    history.keep(["b"])
    assert history.traffic("a", 1.0).requests_per_s == 0
    assert history.traffic("b", 1.0).requests_per_s > 0


@given(st.lists(st.floats(0, 1000), max_size=300).map(sorted))
def test_memory_must_be_bounded_and_no_request_counted_twice(times: list[float]) -> None:
    history = History()
    for now in times:
        history.record("a", 0.1, ok=True, now=now)
    slots = history._pools.get("a", ())
    assert len(slots) <= SLOTS
    assert all(len(slot.first_s) <= SAMPLES for slot in slots)
    now = times[-1] if times else 0.0
    lately = [each for each in times if int(each / SLOT_S) > int(now / SLOT_S) - SLOTS]
    assert round(sum(history.traffic("a", now).line) * SLOT_S) == len(lately)
