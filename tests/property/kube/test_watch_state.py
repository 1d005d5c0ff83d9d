"""The watch machine against a model of an API server: any interleaving of changes, faults and time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.api.meta import Object, ObjectMeta
from isthmus.kube.answers import Page, Undecodable
from isthmus.kube.watch_state import (
    Arrived,
    Bookmarked,
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

pytestmark = pytest.mark.covers("R19", "R21")

SETTINGS = Settings(relist_s=300)
PAGE = 2
NAMES = st.sampled_from("abcde")
SOFT = st.sampled_from([kind for kind in Failure if kind is not Failure.EXPIRED])
JITTER = st.floats(0, 1, exclude_max=True)


class World:
    """What the server holds: its history since the floor, below which versions have expired."""

    def __init__(self) -> None:
        self.version = 10
        self.floor = 10
        self.snapshots: dict[int, dict[str, Object]] = {10: {}}
        self.events: dict[int, tuple[str, Object]] = {}

    def change(self, name: str, delete: bool) -> None:
        content = dict(self.snapshots[self.version])
        if delete and name not in content:
            return
        self.version += 1
        obj = Object(metadata=ObjectMeta(name=name, resource_version=str(self.version)))
        if delete:
            del content[name]
        else:
            content[name] = obj
        self.snapshots[self.version] = content
        self.events[self.version] = ("DELETED" if delete else "MODIFIED", obj)


class WatchMachine(RuleBasedStateMachine):
    """The shell's part is played by the rules; faults come where the rules like."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.state = State()
        self.now = 0.0
        self.sink: dict[str, Object] = {}
        self.sent = 0  # the stream has delivered up to here
        self.listing = 0  # version of the list under way
        self.expired: set[str] = set()

    def feed(self, event: Input, jitter: float = 0.0) -> None:
        self.state, effects = step(self.state, event, now=self.now, jitter=jitter, settings=SETTINGS)
        for effect in effects:
            match effect:
                case Replace(items=items):
                    self.sink = {item.metadata.name: item for item in items}
                case Upsert(object=obj):
                    self.sink[obj.metadata.name] = obj
                case Remove(object=obj):
                    self.sink.pop(obj.metadata.name)
                case Report():
                    pass

    def content_at(self, version: int) -> dict[str, Object]:
        return self.world.snapshots[version]

    @rule(name=NAMES, delete=st.booleans())
    def change(self, name: str, delete: bool) -> None:
        self.world.change(name, delete)

    @rule()
    def compact(self) -> None:
        self.world.floor = self.world.version

    @rule(seconds=st.floats(0.1, 400), jitter=JITTER)
    def time_passes(self, seconds: float, jitter: float) -> None:
        self.now += seconds
        self.feed(Tick(), jitter)

    @precondition(lambda self: self.state.phase is Phase.LISTING)
    @rule(jitter=JITTER)
    def page(self, jitter: float) -> None:
        token = self.state.continue_
        if not token:
            self.listing, start = self.world.version, 0
        else:
            start = int(token)
        if token and self.listing < self.world.floor:
            self.feed(Failed(Failure.EXPIRED), jitter)
            return
        items = sorted(self.content_at(self.listing).values(), key=lambda item: item.metadata.name)
        size = PAGE if self.state.paged else len(items)
        rest = str(start + size) if start + size < len(items) else ""
        self.feed(
            Arrived(
                Page(
                    items=items[start : start + size],
                    resource_version=str(self.listing),
                    continue_=rest,
                )
            ),
            jitter,
        )

    @precondition(lambda self: self.state.phase is Phase.CONNECTING)
    @rule(jitter=JITTER, in_stream=st.booleans())
    def open(self, jitter: float, in_stream: bool) -> None:
        version = self.state.resource_version
        assert version
        assert version not in self.expired
        if int(version) < self.world.floor:
            if in_stream:
                self.feed(Opened())
            self.expired.add(version)
            self.feed(Failed(Failure.EXPIRED), jitter)
        else:
            self.feed(Opened())
            self.sent = int(version)

    @precondition(lambda self: self.state.phase is Phase.STREAMING)
    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        for _ in range(count):
            if self.sent == self.world.version:
                return
            self.sent += 1
            type_, obj = self.world.events[self.sent]
            self.feed(Removed(obj) if type_ == "DELETED" else Upserted(obj))

    @precondition(lambda self: self.state.phase is Phase.STREAMING)
    @rule()
    def bookmark(self) -> None:
        self.feed(Bookmarked(str(self.sent)))

    @precondition(lambda self: self.state.phase is not Phase.PAUSED)
    @rule(kind=SOFT, jitter=JITTER)
    def fail(self, kind: Failure, jitter: float) -> None:
        self.feed(Failed(kind), jitter)

    @precondition(lambda self: self.state.phase is Phase.STREAMING)
    @rule(jitter=JITTER, event=st.sampled_from([Garbled("x"), Ended(), Failed(Failure.LOST), Unknown("X")]))
    def break_stream(self, jitter: float, event: Input) -> None:
        self.feed(event, jitter)

    @invariant()
    def sink_must_show_the_version_it_is_said_to_show(self) -> None:
        version = self.state.resource_version
        if version:
            assert self.sink == self.content_at(int(version))

    @invariant()
    def caught_up_stream_must_show_the_truth(self) -> None:
        if self.state.phase is Phase.STREAMING and self.sent == self.world.version:
            assert self.sink == self.content_at(self.world.version)

    @invariant()
    def watch_never_starts_without_a_version(self) -> None:
        if self.state.phase in (Phase.CONNECTING, Phase.STREAMING):
            assert self.state.resource_version

    def teardown(self) -> None:
        """However it was left, without further faults it must come to the truth."""
        for _ in range(200):
            match self.state.phase:
                case Phase.PAUSED:
                    self.now = self.state.pause_until
                    self.feed(Tick())
                case Phase.LISTING:
                    self.page(0.0)
                case Phase.CONNECTING:
                    self.open(0.0, False)
                case Phase.STREAMING:
                    self.deliver(5)
                    if self.sent == self.world.version:
                        break
        assert self.sink == self.content_at(self.world.version)


TestWatchMachine = WatchMachine.TestCase
TestWatchMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)

THING = Object(metadata=ObjectMeta(name="a", resource_version="7"))
ANY_INPUT: st.SearchStrategy[Input] = st.one_of(
    st.builds(
        Arrived,
        st.builds(
            lambda version, more: Page[Any](items=[THING], resource_version=version, continue_=more),
            st.sampled_from(["", "5"]),
            st.sampled_from(["", "c"]),
        ),
    ),
    st.builds(Failed, st.sampled_from(list(Failure)), st.floats(0, 5)),
    st.sampled_from(
        [Opened(), Upserted(THING), Removed(THING), Bookmarked("8"), Bookmarked(""), Unknown("x")]
    ),
    st.sampled_from([Garbled("x"), Ended(), Tick(), Skipped("9", Undecodable("", "", ""))]),
)


@given(script=st.lists(st.tuples(ANY_INPUT, JITTER), max_size=80))
def test_any_script_never_makes_a_hot_loop(script: list[tuple[Input, float]]) -> None:
    """An adversary's server: time moves only by the machine's own pauses, so each failure costs time."""
    state = State()
    now = 0.0
    failures = lists = 0
    least = 0.0
    for event, jitter in script:
        before = state
        state, effects = step(state, event, now=now, jitter=jitter, settings=SETTINGS)
        lists += sum(isinstance(effect, Replace) for effect in effects)
        if state.phase is Phase.PAUSED and before.phase is not Phase.PAUSED:
            if state.failures:  # else a watch that brought something was ended early, which costs no list
                failures += 1
                least += min(SETTINGS.cap_s, SETTINGS.base_s * 2 ** (state.failures - 1)) / 2
            now = state.pause_until
            state, _ = step(state, Tick(), now=now, jitter=jitter, settings=SETTINGS)
        assert state.phase is not Phase.PAUSED
        assert (state.phase is Phase.LISTING) == (state.resource_version == "")
    relists = int(now / (SETTINGS.relist_s * (1 - SETTINGS.relist_spread)))
    assert lists <= failures + relists + 1
    assert now >= least
