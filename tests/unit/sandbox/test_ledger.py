"""Requests are counted by how they ended and by who answered."""

from __future__ import annotations

from isthmus.sandbox.ledger import KEPT, Ledger, Outcome, Result, Tally, unserved


def result(outcome: Outcome, by: str = "", ended: float = 1.0) -> Result:
    return Result(outcome=outcome, began=0.0, ended=ended, by=by)


def test_each_outcome_must_be_counted_and_troubles_kept() -> None:
    ledger = Ledger()
    cut, failed = result(Outcome.CUT, "west"), result(Outcome.FAILED)
    for each in (result(Outcome.ANSWERED, "east"), result(Outcome.ANSWERED, "east", 5.0), cut, failed):
        ledger.add(each)
    assert ledger.tally() == Tally(answered={"east": 2}, cut=1, failed=1)
    assert ledger.tally().total == 4
    assert list(ledger.troubles) == [cut, failed]
    assert ledger.last_answer("east") == 5.0
    assert ledger.last_answer("west") == float("-inf")


def test_difference_must_be_what_came_since() -> None:
    earlier = Tally(answered={"east": 2, "west": 3}, cut=1)
    later = Tally(answered={"east": 5, "west": 3, "south": 1}, cut=1, failed=2)
    assert later.minus(earlier) == Tally(answered={"east": 3, "south": 1}, cut=0, failed=2)
    assert later.minus(later).describe() == "0 answered, 0 cut, 0 failed"
    assert later.describe() == "9 answered (east 5, south 1, west 3), 1 cut, 2 failed"


def test_troubles_must_be_bounded() -> None:
    ledger = Ledger()
    for _ in range(KEPT + 1):
        ledger.add(result(Outcome.FAILED))
    assert len(ledger.troubles) == KEPT
    assert ledger.tally().failed == KEPT + 1


def test_only_cut_answers_of_a_lost_cluster_must_be_nobodys_fault() -> None:
    of_west, of_east = result(Outcome.CUT, "west"), result(Outcome.CUT, "east")
    failed, failed_there = result(Outcome.FAILED), result(Outcome.FAILED, "west")
    troubles = [of_west, of_east, failed, failed_there]
    assert unserved(troubles, lost="west") == [of_east, failed, failed_there]
    assert unserved(troubles) == troubles
    assert unserved([result(Outcome.CUT)]) == [result(Outcome.CUT)]
