import pytest

from isthmus.runtime.election_state import (
    Accepted,
    Durations,
    End,
    Failed,
    Fetch,
    Fetched,
    Phase,
    Put,
    Record,
    Refused,
    State,
    Stop,
    Tick,
    Wait,
    step,
)

OTHERS = Record("other", 15, 1, "a", "r", "7")
NEW = State("me", Durations())


def lead(now: float = 100.0, *, sent_at: float = 100.0) -> State:
    """A state that took a free lease with a request sent at `sent_at` and answered at `now`."""
    state, effect = step(NEW, Fetched(None, sent_at, "s"))
    assert effect == Put(Record("me", 15, 0, "s", "s", ""))
    assert isinstance(effect, Put)
    state, effect = step(state, Accepted(effect.record._replace(version="1"), sent_at, 5000 + sent_at, now))
    assert isinstance(effect, Wait)
    return state


def test_candidate_must_read_first() -> None:
    assert step(NEW, Tick(0, "s"))[1] == Fetch()


def test_holder_must_write_only_until_renew_s_after_it_sent_the_renewal() -> None:
    state = lead(now=104, sent_at=100)
    assert state.may_write(109.99, 5109.99)
    assert not state.may_write(110, 5000)
    assert not state.may_write(105, 5110)
    assert not NEW.may_write(0, 0)


def test_lease_taken_by_an_answer_that_came_too_late_must_not_count() -> None:
    state, effect = step(NEW, Fetched(None, 100, "s"))
    assert isinstance(effect, Put)
    state, effect = step(state, Accepted(effect.record._replace(version="1"), 100, 100, 110))
    assert (state.phase, effect) == (Phase.CANDIDATE, Wait(2))
    state, effect = step(state, Fetched(state.observed, 112, "t"))
    assert isinstance(effect, Put)
    assert (effect.record.holder, effect.record.acquired, effect.record.renewed) == ("me", "s", "t")


def test_candidate_must_wait_a_lease_life_from_when_it_first_saw_the_record() -> None:
    state, effect = step(NEW, Fetched(OTHERS, 100, "s"))
    assert effect == Wait(2)
    state, effect = step(state, Fetched(OTHERS._replace(version="8"), 114.9, "s"))  # an edit is no renewal
    assert effect == Wait(2)
    renewed = OTHERS._replace(renewed="later", version="9")
    state, effect = step(state, Fetched(renewed, 115.5, "s"))
    assert effect == Wait(2)
    state, effect = step(state, Fetched(renewed, 130.4, "s"))
    assert effect == Wait(2)
    state, effect = step(state, Fetched(renewed, 130.5, "s"))
    assert effect == Put(Record("me", 15, 2, "s", "s", "9"))


def test_released_lease_must_be_taken_at_once() -> None:
    _, effect = step(NEW, Fetched(Record("", 1, 4, "a", "r", "7"), 100, "s"))
    assert effect == Put(Record("me", 15, 5, "s", "s", "7"))


def test_candidate_that_came_second_must_wait() -> None:
    state, effect = step(NEW, Fetched(None, 100, "s"))
    assert state.unsure
    state, effect = step(state, Refused(100))
    assert (state.unsure, effect) == (False, Wait(2))


def test_holder_must_renew_without_reading() -> None:
    state = lead()
    _, effect = step(state, Tick(102, "t"))
    assert effect == Put(Record("me", 15, 0, "s", "t", "1"))


def test_holder_whose_answer_was_lost_must_find_itself_and_go_on() -> None:
    state = lead()
    state, effect = step(state, Tick(102, "t"))
    assert isinstance(effect, Put)
    arrived = effect.record._replace(version="2")
    state, effect = step(state, Failed(103))
    assert effect == Wait(2)
    state, effect = step(state, Refused(105))
    assert effect == Fetch()
    state, effect = step(state, Fetched(arrived, 106, "u"))
    assert effect == Put(Record("me", 15, 0, "s", "u", "2"))


def test_holder_must_never_wait_past_its_deadline() -> None:
    state, effect = step(lead(), Failed(109))
    assert effect == Wait(1)
    state, effect = step(state, Tick(110, "t"))
    assert (state.phase, effect) == (Phase.LOST, End())
    assert step(state, Tick(111, "t")) == (state, End())


@pytest.mark.parametrize("found", [OTHERS, None])
def test_holder_that_finds_another_holder_or_no_lease_must_end_at_once(found: Record | None) -> None:
    state, effect = step(lead(), Fetched(found, 103, "t"))
    assert (state.phase, effect) == (Phase.LOST, End())


def test_stop_must_forbid_writes_and_give_the_lease_back() -> None:
    state, effect = step(lead(), Stop(103, "t"))
    assert effect == Put(Record("", 1, 0, "t", "t", "1"))
    assert not state.may_write(103, 5103)
    assert step(state, Accepted(OTHERS, 103, 5103, 104))[0].phase is Phase.RELEASED


def test_release_must_survive_a_conflict_with_an_own_renewal() -> None:
    state, _ = step(lead(), Stop(103, "t"))
    state, effect = step(state, Refused(104))
    assert effect == Fetch()
    mine = Record("me", 15, 0, "s", "u", "2")
    state, effect = step(state, Fetched(mine, 104, "v"))
    assert effect == Put(Record("", 1, 0, "v", "v", "2"))
    state, effect = step(state, Failed(105))
    assert effect == Wait(2)
    again, effect = step(state, Tick(107, "w"))
    assert effect == Put(Record("", 1, 0, "w", "w", "2"))
    assert step(again, Stop(107, "w"))[1] == Fetch()
    assert step(again, Fetched(OTHERS, 108, "w"))[0].phase is Phase.RELEASED
    assert step(again, Failed(110))[0].phase is Phase.RELEASED


def test_candidate_must_stop_at_once_unless_it_may_hold_the_lease_without_knowing() -> None:
    assert step(NEW, Stop(100, "t")) == (State("me", Durations(), phase=Phase.RELEASED), End())
    state, _ = step(NEW, Fetched(None, 100, "s"))
    state, effect = step(state, Stop(101, "t"))
    assert (state.phase, effect) == (Phase.RELEASING, Fetch())
    assert step(state, Fetched(None, 102, "u"))[0].phase is Phase.RELEASED
    assert step(state, Tick(102, "u"))[1] == Fetch()
    _, effect = step(state, Fetched(Record("me", 15, 0, "s", "s", "1"), 102, "u"))
    assert effect == Put(Record("", 1, 0, "u", "u", "1"))


@pytest.mark.parametrize(
    ("durations", "word"),
    [
        (Durations(15, 10, 0), "above 0"),
        (Durations(15, 2.4, 2), "1.2 times"),
        (Durations(10, 10, 2), "longer"),
        (Durations(15.5, 10, 2), "whole"),
    ],
)
def test_durations_that_do_not_fit_must_be_named(durations: Durations, word: str) -> None:
    assert word in durations.problem()
    assert Durations().problem() == ""
