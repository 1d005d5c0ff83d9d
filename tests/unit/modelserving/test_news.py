"""Which states of role replicas are told, in which words, and when."""

from __future__ import annotations

import pytest

from isthmus.modelserving.news import MAX_CHARS, SPACING_S, Message, News
from isthmus.modelserving.plan.model import State

ONE, OTHER = ("a-0", "p-0"), ("a-1", "pre-fill-12")
DELETING, CREATING, RUNNING = State.DELETING, State.CREATING, State.RUNNING


def test_first_state_must_be_told_at_once() -> None:
    news = News()
    news.note({ONE: CREATING, OTHER: CREATING})
    assert news.take([CREATING, CREATING], 7.0) == [Message(CREATING, (ONE, OTHER))]
    assert news.take([CREATING, CREATING], 8.0) == []
    assert news.remaining_s(8.0) is None


@pytest.mark.covers("MS-106")
def test_next_of_a_state_must_wait_while_others_change() -> None:
    news = News()
    news.note({ONE: CREATING})
    news.take([CREATING], 0.0)
    news.note({OTHER: CREATING, ONE: RUNNING})
    assert news.take([CREATING, RUNNING], 1.0) == [Message(RUNNING, (ONE,))]
    assert news.remaining_s(1.0) == SPACING_S - 1.0
    assert news.take([CREATING, RUNNING], SPACING_S - 0.1) == []
    assert news.take([CREATING, RUNNING], SPACING_S) == [Message(CREATING, (OTHER,))]


@pytest.mark.covers("MS-106")
def test_what_waits_must_be_told_when_nothing_changes_any_more_with_its_last_state() -> None:
    news = News()
    for state in (DELETING, CREATING, RUNNING):
        news.note({ONE: state})
        news.take([state, CREATING], 0.0)
    for state in (DELETING, CREATING):
        news.note({OTHER: state})
        assert news.take([state, RUNNING], 1.0) == []
    news.note({OTHER: RUNNING})
    assert news.take([RUNNING, RUNNING], 2.0) == [Message(RUNNING, (OTHER,))]
    assert news.remaining_s(2.0) is None


def test_what_waits_must_be_told_when_nothing_is_left() -> None:
    news = News()
    news.note({ONE: DELETING})
    news.take([DELETING, DELETING], 0.0)
    news.note({OTHER: DELETING})
    assert news.take([], 1.0) == [Message(DELETING, (OTHER,))]


def test_note_must_name_role_replica_and_group() -> None:
    assert Message(RUNNING, (OTHER,)).note == "Role pre-fill/pre-fill-12 in ServingGroup a-1 is now Running"
    both = "Roles p/p-0 in ServingGroup a-0, pre-fill/pre-fill-12 in ServingGroup a-1 are now Deleting"
    assert Message(DELETING, (ONE, OTHER)).note == both


def test_long_note_must_count_what_it_leaves_out() -> None:
    note = Message(CREATING, tuple((f"a-{n}", "p-0") for n in range(500))).note
    named = note.count("ServingGroup")
    assert note.endswith(f", and {500 - named} more are now Creating")
    assert MAX_CHARS - 60 < len(note) < 1024
