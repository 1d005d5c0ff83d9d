"""What a frontend has said, after answers and failures; and counts over restarts."""

from __future__ import annotations

import pytest

from isthmus.relay.plan.heard import added, answered, failed, sampled
from isthmus.relay.plan.model import Card, Heard, Sample, Totals

CARDS = (Card("a"),)


def test_second_failure_in_a_row_must_take_the_models_away() -> None:
    said = answered(Heard(), CARDS)
    once = failed(said, "x")
    assert (once.cards, failed(once, "y").cards, failed(once, "y").problem) == (CARDS, None, "y")
    assert failed(answered(once, CARDS), "z").cards == CARDS
    assert failed(Heard(), "x").asked


@pytest.mark.covers("RL-11")
def test_totals_must_grow_over_restarts_and_departures() -> None:
    first = {"a": Sample(completed=10, failed=1, output_tokens=100)}
    totals = added({}, None, first)
    assert totals == {"a": Totals(started=11, completed=10, failed=1, output_tokens=100)}
    totals = added(totals, first, {"a": Sample(completed=12, failed=1, output_tokens=150)})
    assert totals["a"].completed == 12
    restarted = {"a": Sample(completed=3, failed=0, output_tokens=5)}
    totals = added(totals, {"a": Sample(completed=12, failed=1, output_tokens=150)}, restarted)
    assert (totals["a"].completed, totals["a"].failed, totals["a"].output_tokens) == (15, 1, 155)
    assert added(totals, None, {"b": Sample(started=4, completed=2)})["b"] == Totals(started=4, completed=2)


@pytest.mark.covers("RL-11")
def test_count_that_is_missing_for_once_never_counts_twice() -> None:
    said = sampled(Heard(), {"a": Sample(awaiting=1, completed=10)}, 1.0)
    gap = sampled(said, {"a": Sample(awaiting=2)}, 2.0)
    assert gap.load == {"a": Sample(awaiting=2, completed=10)}
    assert gap.load_at == 2.0
