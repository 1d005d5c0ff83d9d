from __future__ import annotations

import pytest

from isthmus.api.meta import Object, ObjectMeta
from isthmus.kube.answers import Page, Undecodable
from isthmus.kube.watch_state import (
    Arrived,
    Bookmarked,
    Effect,
    Ended,
    Failed,
    Failure,
    Garbled,
    Input,
    Opened,
    Phase,
    Remove,
    Removed,
    Replace,
    Report,
    Settings,
    Skipped,
    State,
    Tick,
    Unknown,
    Upsert,
    Upserted,
    step,
)

SETTINGS = Settings(base_s=1, cap_s=8, healthy_s=20, relist_s=1000, relist_spread=0.2, stuck_limit=3)
START = 100.0
BAD = Undecodable("n", "x", "why")


def thing(name: str, version: str) -> Object:
    return Object(metadata=ObjectMeta(name=name, resource_version=version))


A7 = thing("a", "7")


class Machine:
    """The state machine with a clock at hand."""

    def __init__(self) -> None:
        self.state = State()
        self.now = START
        self.jitter = 1.0

    def feed(self, *events: Input) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            self.state, more = step(self.state, event, now=self.now, jitter=self.jitter, settings=SETTINGS)
            effects += more
        return effects

    def pause(self) -> float:
        """Sleep as the shell does, and say how long it was."""
        assert self.state.phase is Phase.PAUSED
        length = self.state.pause_until - self.now
        self.now = self.state.pause_until
        self.feed(Tick())
        return length


def page(
    *items: Object, version: str = "5", continue_: str = "", bad: tuple[Undecodable, ...] = ()
) -> Arrived:
    return Arrived(Page(items=list(items), resource_version=version, continue_=continue_, undecodable=bad))


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def streaming(machine: Machine) -> Machine:
    machine.feed(page(), Opened())
    assert machine.state.phase is Phase.STREAMING
    return machine


def test_list_must_be_handed_over_once_and_whole(machine: Machine) -> None:
    assert machine.feed(page(thing("a", "1"), continue_="c", bad=(BAD,))) == []
    assert (machine.state.phase, machine.state.continue_) == (Phase.LISTING, "c")
    effects = machine.feed(page(thing("b", "2"), version="5"))
    assert effects == [
        Replace([thing("a", "1"), thing("b", "2")], "5"),
        Report("undecodable", undecodable=(BAD,)),
    ]
    assert (machine.state.phase, machine.state.resource_version) == (Phase.CONNECTING, "5")
    assert machine.state.pages == ()


def test_events_must_move_the_version_they_can_be_resumed_from(streaming: Machine) -> None:
    assert streaming.feed(Upserted(A7)) == [Upsert(A7)]
    assert streaming.state.resource_version == "7"
    assert streaming.feed(Removed(thing("a", "8"))) == [Remove(thing("a", "8"))]
    assert streaming.feed(Bookmarked("9")) == []
    assert streaming.feed(Skipped("10", BAD)) == [Report("undecodable", undecodable=(BAD,))]
    assert streaming.feed(Unknown("TOMORROW")) == [Report("unknown_event", detail="TOMORROW")]
    assert (streaming.state.resource_version, streaming.state.phase) == ("10", Phase.STREAMING)


@pytest.mark.covers("R19")
@pytest.mark.parametrize("kind", [Failure.LOST, Failure.SERVER, Failure.THROTTLED, Failure.DENIED])
def test_what_may_pass_must_be_resumed_without_a_list(streaming: Machine, kind: Failure) -> None:
    streaming.feed(Upserted(A7))
    (report,) = streaming.feed(Failed(kind))
    assert report == Report(kind.value, pause_s=1)
    assert streaming.pause() == 1
    assert (streaming.state.phase, streaming.state.resource_version) == (Phase.CONNECTING, "7")


@pytest.mark.covers("R21")
@pytest.mark.parametrize("opened", [False, True])
def test_expired_version_must_be_dropped_for_a_list(machine: Machine, opened: bool) -> None:
    machine.feed(page(), *([Opened()] if opened else []))
    machine.feed(Failed(Failure.EXPIRED))
    assert machine.state.resource_version == ""
    assert machine.pause() == 1
    assert machine.state.phase is Phase.LISTING


@pytest.mark.covers("R21")
def test_410_on_every_first_watch_never_makes_a_hot_loop(machine: Machine) -> None:
    pauses = []
    for _ in range(6):
        machine.feed(page(), Opened(), Upserted(A7), Failed(Failure.EXPIRED))
        pauses.append(machine.pause())
    assert pauses == [1, 2, 4, 8, 8, 8]


@pytest.mark.covers("R21")
def test_410_on_continue_must_start_over_and_at_last_without_pages(machine: Machine) -> None:
    machine.feed(page(thing("a", "1"), continue_="c"), Failed(Failure.EXPIRED))
    machine.pause()
    state = machine.state
    assert (state.phase, state.pages, state.continue_, state.paged) == (Phase.LISTING, (), "", True)
    machine.feed(page(thing("a", "1"), continue_="c"), Failed(Failure.EXPIRED))
    machine.pause()
    state = machine.state
    assert (state.phase, state.paged) == (Phase.LISTING, False)
    assert machine.feed(page(version="6")) == [Replace([], "6")]
    assert (machine.state.phase, machine.state.paged) == (Phase.CONNECTING, True)


def test_too_large_version_must_be_waited_for_and_then_given_up(streaming: Machine) -> None:
    for _ in range(2):
        streaming.feed(Failed(Failure.TOO_LARGE))
        streaming.pause()
        assert streaming.state.phase is Phase.CONNECTING
    streaming.feed(Failed(Failure.TOO_LARGE))
    streaming.pause()
    assert (streaming.state.phase, streaming.state.resource_version) == (Phase.LISTING, "")


def test_event_that_nobody_can_read_must_end_in_a_list(streaming: Machine) -> None:
    for _ in range(2):
        (report,) = streaming.feed(Garbled("<html>"))
        assert isinstance(report, Report)
        assert (report.cause, report.detail) == ("garbled", "<html>")
        streaming.pause()
        streaming.feed(Opened())
    streaming.feed(Garbled("<html>"))
    streaming.pause()
    assert streaming.state.phase is Phase.LISTING


def test_progress_must_forgive_what_was_stuck(streaming: Machine) -> None:
    for version in range(10, 20):
        streaming.feed(Upserted(thing("a", str(version))), Garbled("x"))
        streaming.pause()
        assert streaming.state.phase is Phase.CONNECTING
        streaming.feed(Opened())


def test_planned_end_of_a_long_watch_must_be_followed_at_once(streaming: Machine) -> None:
    streaming.now += 20
    assert streaming.feed(Ended()) == []
    assert (streaming.state.phase, streaming.state.failures) == (Phase.CONNECTING, 0)


def test_stream_that_ends_at_once_never_makes_a_hot_loop(machine: Machine) -> None:
    machine.feed(page())
    pauses = []
    for _ in range(5):
        machine.feed(Opened(), Ended())
        pauses.append(machine.pause())
    assert pauses == [1, 2, 4, 8, 8]


def test_long_watch_must_end_the_run_of_failures(machine: Machine) -> None:
    for _ in range(5):
        machine.feed(Failed(Failure.LOST))
        machine.pause()
    machine.feed(page(), Opened())
    machine.now += 20
    machine.feed(Failed(Failure.LOST))
    assert machine.pause() == 1


@pytest.mark.parametrize(("jitter", "low"), [(0.0, 3.0), (1.0, 3.75)])
def test_server_that_asks_for_time_must_get_it(machine: Machine, jitter: float, low: float) -> None:
    machine.jitter = jitter
    machine.feed(Failed(Failure.THROTTLED, 3))
    assert machine.pause() == low


@pytest.mark.covers("R19")
@pytest.mark.parametrize(("jitter", "due"), [(0.0, 800), (0.5, 1000), (1.0, 1200)])
def test_list_must_come_again_even_if_nothing_seems_wrong(
    machine: Machine, jitter: float, due: float
) -> None:
    machine.jitter = jitter
    machine.feed(page())
    machine.now = START + due - 1
    machine.feed(Tick())
    assert machine.state.phase is Phase.CONNECTING
    machine.now = START + due
    machine.feed(Tick())
    assert (machine.state.phase, machine.state.resource_version) == (Phase.LISTING, "")


def test_periodic_list_must_close_an_open_watch(streaming: Machine) -> None:
    streaming.now += 1200
    streaming.feed(Tick())
    assert streaming.state.phase is Phase.LISTING


def test_list_without_a_version_never_starts_a_watch_from_nowhere(machine: Machine) -> None:
    effects = machine.feed(page(version=""))
    assert [type(effect) for effect in effects] == [Replace, Report]
    machine.pause()
    assert machine.state.phase is Phase.LISTING


@pytest.mark.parametrize("event", [Opened(), Upserted(A7), Ended(), Bookmarked("9"), Garbled("x")])
def test_input_that_makes_no_sense_must_change_nothing(machine: Machine, event: Input) -> None:
    assert machine.feed(event) == []
    assert machine.state == State()


def test_pause_must_last_until_its_end(machine: Machine) -> None:
    machine.feed(Failed(Failure.LOST))
    machine.now += 0.5
    machine.feed(Tick(), Failed(Failure.LOST), page())
    assert (machine.state.phase, machine.state.failures) == (Phase.PAUSED, 1)


def test_watch_that_brought_something_must_be_resumed_at_once_when_ended_early(streaming: Machine) -> None:
    """A busy server ends watches that it cannot serve fast enough; backing off would make us later still."""
    for version in ("8", "9", "10", "11"):
        assert Report not in [
            type(effect) for effect in streaming.feed(Upserted(thing("a", version)), Ended())
        ]
        assert streaming.pause() <= SETTINGS.resume_s
        assert streaming.state.phase is Phase.CONNECTING
        assert streaming.state.resource_version == version
        streaming.feed(Opened())
    streaming.feed(Ended())
    assert streaming.pause() == SETTINGS.base_s
