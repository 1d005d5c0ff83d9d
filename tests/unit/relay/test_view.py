"""The relay's view of its pool: when it publishes what, and what counts as a change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.relay.plan.heard import answered, failed
from isthmus.relay.plan.model import Card, Roster, Sample, Selection
from isthmus.relay.view import View
from tests.support.clock import FakeClock
from tests.support.relayfacts import crew, door, options, roster

ONE, TWO = door(1), door(2)
TINY = (Card("tiny"),)


class Looking:
    """A view, and the roster that it reads."""

    def __init__(self, **told: Any) -> None:
        self.roster: Roster | None = None
        self.clock = FakeClock()
        self.asked: list[Selection] = []
        self.view = View(options(**told), self.read, self.clock)

    def read(self, selection: Selection) -> Roster | None:
        self.asked.append(selection)
        return self.roster

    def look(self, *, window: bool = False) -> None:
        self.view.refresh(self.clock.monotonic(), window=window)

    def answer(self, url: str, cards: tuple[Card, ...] = TINY) -> None:
        self.view.tell(url, lambda heard: answered(heard, cards))


@pytest.fixture
def looking() -> Looking:
    found = Looking()
    found.roster = roster(ONE)
    return found


def revisions(view: View) -> tuple[int, int, int, int]:
    return view.revision, view.catalog.revision, view.readiness.revision, view.load.revision


def test_nothing_must_be_published_before_the_pool_is_listed_and_everybody_asked() -> None:
    found = Looking()
    found.look()
    assert found.view.facts is None
    found.roster = roster(ONE, TWO)
    found.look()
    found.answer(ONE.url)
    found.look()
    assert (found.view.facts, revisions(found.view)) == (None, (0, 0, 0, 0))
    found.view.tell(TWO.url, lambda heard: failed(heard, "x"))
    found.look()
    assert revisions(found.view) == (1, 1, 1, 1)
    assert found.view.changed.is_set()


def test_empty_pool_must_be_published_at_once() -> None:
    found = Looking()
    found.roster = Roster()
    found.look()
    assert (found.view.facts and found.view.facts.status, found.view.revision) == ("unavailable", 1)


@pytest.mark.covers("RL-9", "RL-14")
def test_revision_must_move_with_what_it_is_of_and_nothing_else(looking: Looking) -> None:
    looking.look()
    looking.answer(ONE.url)
    looking.look()
    assert revisions(looking.view) == (1, 1, 1, 1)
    looking.look()
    assert revisions(looking.view) == (1, 1, 1, 1), "the same again is no news"
    looking.look(window=True)
    assert revisions(looking.view) == (1, 1, 1, 2), "a window of load"
    looking.view.tell_load(ONE.url, {"tiny": Sample(awaiting=3, generating=1)})
    looking.look()
    assert revisions(looking.view) == (1, 1, 1, 2), "the load comes with its window"
    looking.roster = roster(ONE, crews=(crew(ready=0),))
    looking.look()
    assert revisions(looking.view) == (2, 1, 2, 2), "readiness alone"
    looking.answer(ONE.url, (Card("other"),))
    looking.look()
    assert revisions(looking.view) == (3, 2, 3, 2)


def test_frontend_that_left_never_is_heard_again(looking: Looking) -> None:
    looking.look()
    looking.answer(ONE.url)
    looking.roster = roster(TWO)
    looking.look()
    assert looking.view.heard.keys() == {TWO.url}
    assert looking.view.moved.is_set()
    looking.answer(ONE.url)
    looking.view.tell_load(ONE.url, {"tiny": Sample(awaiting=1)})
    assert looking.view.heard.keys() == {TWO.url}


@pytest.mark.covers("RL-11")
def test_totals_must_outlive_their_frontends(looking: Looking) -> None:
    looking.look()
    looking.view.tell_load(ONE.url, {"tiny": Sample(awaiting=0, completed=5)})
    looking.view.tell_load(ONE.url, {"tiny": Sample(awaiting=0, completed=7)})
    looking.roster = roster(TWO)
    looking.look()
    looking.view.tell_load(TWO.url, {"tiny": Sample(awaiting=0, completed=2)})
    assert looking.view.totals["tiny"].completed == 9


def test_totals_must_be_bounded(looking: Looking) -> None:
    looking.look()
    for start in range(0, 2000, 200):
        names = (f"m{number}" for number in range(start, start + 200))
        looking.view.tell_load(ONE.url, {name: Sample(awaiting=0, completed=1) for name in names})
    assert len(looking.view.totals) <= 1024


@pytest.mark.covers("PW-1")
def test_registration_must_have_the_present_revision(looking: Looking) -> None:
    looking.look()
    looking.answer(ONE.url)
    looking.look()
    found = looking.view.registration()
    assert (found.key, found.relay.revision) == (looking.view.options.key, 1)
    assert [model.id for model in found.models] == ["tiny"]
    assert [frontend.url for frontend in found.frontends] == [ONE.url]


@pytest.mark.covers("RL-3")
def test_other_sources_must_be_asked_for(looking: Looking) -> None:
    looking.view.select(("a", "b"))
    looking.look()
    assert looking.asked[-1].namespaces == ("a", "b")
    assert looking.asked[-1].name == "east"


def test_pool_that_the_api_server_is_silent_about_must_be_degraded(looking: Looking) -> None:
    looking.look()
    looking.answer(ONE.url)
    looking.look()
    looking.roster = roster(ONE, stale=True)
    looking.look()
    assert looking.view.facts is not None
    assert looking.view.facts.status == "degraded"
    assert [model.ready for model in looking.view.facts.models] == [True]


async def test_load_must_be_published_in_each_window_and_changes_soon(looking: Looking) -> None:
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(looking.view.keep())
        await looking.clock.advance(0.1)
        looking.answer(ONE.url)
        await looking.clock.advance(0.2)
        assert looking.view.revision == 1
        before = looking.view.load.revision
        await looking.clock.advance(3.0)
        assert 2 <= looking.view.load.revision - before <= 3
        looking.roster = roster(ONE, crews=(crew(ready=0),))
        looking.view.touch()
        await looking.clock.advance(0.11)
        assert looking.view.revision == 2
        keeping.cancel()
