"""Three electors whose clocks differ in offset and rate, a server that keeps one Lease, and a network that
loses, delays and reorders: never two writers, and none after its renew deadline."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from isthmus.runtime.election_state import (
    Accepted,
    Durations,
    Effect,
    End,
    Failed,
    Fetch,
    Fetched,
    Input,
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

DURATIONS = Durations()
WHO = st.integers(0, 2)
RATES = (1.0, 1.2, 1.45)  # as far apart as lease_s / renew_s allows


class Server:
    """One Lease with optimistic concurrency."""

    def __init__(self) -> None:
        self.lease: Record | None = None
        self.version = 0

    def put(self, record: Record) -> Record | None:
        if record.version != (self.lease.version if self.lease is not None else ""):
            return None
        self.version += 1
        self.lease = record._replace(version=str(self.version))
        return self.lease


class Elector:
    """A process: its state, its clocks, and what is under way."""

    def __init__(self, identity: str, rate: float, offset: float, real: float) -> None:
        self.rate = rate
        self.offset = offset
        self.wall_step = 0.0
        self.state = State(identity, DURATIONS)
        self.effect: Effect = Wait(0)
        self.since = self.now(real)
        self.answer: Input | None = None
        self.sent_real = real
        self.accepted_sent_real = real
        self.feed(Tick(self.now(real), "t"), real)

    def now(self, real: float) -> float:
        return real * self.rate + self.offset

    def wall(self, real: float) -> float:
        return self.now(real) + self.wall_step

    def feed(self, input_: Input, real: float) -> None:
        if isinstance(input_, Accepted):
            self.accepted_sent_real = self.sent_real
        self.state, self.effect = step(self.state, input_)
        self.since = self.now(real)
        self.sent_real = real
        self.sent_wall = self.wall(real)
        self.answer = None

    def may_write(self, real: float) -> bool:
        return self.state.may_write(self.now(real), self.wall(real))


class ElectionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.real = 0.0
        self.server = Server()
        self.electors = [Elector(f"e{i}", RATES[i], 1000.0 * i, 0) for i in range(3)]
        self.stray: list[Record] = []  # writes whose sender no longer waits, and which may still arrive
        self.born = 3

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 2.4, 5.0, 9.9, 10.0, 15.0, 16.0]))
    def wait(self, seconds: float) -> None:
        self.real += seconds

    @rule(who=WHO)
    def serve(self, who: int) -> None:
        """The request arrives at the server; the answer is on its way."""
        elector = self.electors[who]
        if elector.answer is not None:
            return
        match elector.effect:
            case Fetch():
                elector.answer = Fetched(self.server.lease, 0, "")
            case Put(record=record):
                taken = self.server.put(record)
                sent_at, sent_wall = elector.since, elector.sent_wall
                elector.answer = Accepted(taken, sent_at, sent_wall, 0) if taken else Refused(0)

    @rule(who=WHO)
    def deliver(self, who: int) -> None:
        """The answer arrives, or the time that was waited for has come."""
        elector = self.electors[who]
        now = elector.now(self.real)
        if isinstance(elector.effect, Wait):
            if now >= elector.since + elector.effect.seconds:
                elector.feed(Tick(now, f"t{self.real}"), self.real)
        elif elector.answer is not None:
            answer = elector.answer._replace(now=now)
            if isinstance(answer, Fetched):
                answer = answer._replace(stamp=f"t{self.real}")
            elector.feed(answer, self.real)
        elif isinstance(elector.effect, End):
            self.born += 1
            self.electors[who] = Elector(f"e{self.born}", elector.rate, elector.offset, self.real)

    @rule(who=WHO)
    def go_on(self, who: int) -> None:
        """Both at once, which is how it mostly goes."""
        self.serve(who)
        self.deliver(who)

    @rule(who=st.sets(WHO, min_size=1), seconds=st.sampled_from([1, 4, 8, 12, 20]))
    def run_while_the_others_are_frozen(self, who: set[int], seconds: int) -> None:
        for _ in range(seconds * 2):
            for index in sorted(who):
                self.go_on(index)
                self.two_never_may_write()
            self.real += 0.5
            self.two_never_may_write()

    @rule(who=WHO, seconds=st.sampled_from([1.0, 4.0, 9.0]))
    def answer_slowly(self, who: int, seconds: float) -> None:
        self.serve(who)
        self.real += seconds
        self.deliver(who)

    @rule(who=WHO)
    def give_up(self, who: int) -> None:
        """The sender stops waiting: the answer is lost, or the request itself is still under way."""
        elector = self.electors[who]
        if isinstance(elector.effect, Put) and elector.answer is None:
            self.stray.append(elector.effect.record)
        if not isinstance(elector.effect, Wait | End):
            elector.feed(Failed(elector.now(self.real)), self.real)

    @rule(which=st.integers(0, 5))
    def stray_write_arrives(self, which: int) -> None:
        if which < len(self.stray):
            self.server.put(self.stray.pop(which))

    @rule(who=WHO)
    def stop(self, who: int) -> None:
        elector = self.electors[who]
        if isinstance(elector.effect, Put) and elector.answer is None:
            self.stray.append(elector.effect.record)
        elector.feed(Stop(elector.now(self.real), f"t{self.real}"), self.real)
        assert not elector.may_write(self.real)

    @rule(who=WHO, seconds=st.sampled_from([-3600.0, -1.0, 5.0, 3600.0]))
    def step_wall_clock(self, who: int, seconds: float) -> None:
        self.electors[who].wall_step += seconds

    @invariant()
    def two_never_may_write(self) -> None:
        writers = [e.state.identity for e in self.electors if e.may_write(self.real)]
        assert len(writers) <= 1, writers

    @invariant()
    def nobody_ever_may_write_past_its_deadline(self) -> None:
        for elector in self.electors:
            if elector.may_write(self.real):
                passed = (self.real - elector.accepted_sent_real) * elector.rate
                assert passed < DURATIONS.renew_s

    @invariant()
    def office_that_is_lost_never_comes_back(self) -> None:
        for elector in self.electors:
            if elector.state.phase in (Phase.LOST, Phase.RELEASED):
                assert isinstance(elector.effect, End)


ElectionMachine.TestCase.settings = settings(deadline=None, stateful_step_count=30, max_examples=200)
TestElectionState = pytest.mark.covers("R15")(ElectionMachine.TestCase)


@pytest.mark.parametrize("seed", range(20))
def test_electors_left_in_peace_must_agree_on_a_leader_soon(seed: int) -> None:
    """Whatever happened before, two lease lifetimes of a network that works are enough."""
    server = Server()
    server.put(Record("a process long gone", 15, 3, "t", "t", ""))
    electors = [Elector(f"e{i}", RATES[(seed + i) % 3], 1000.0 * i, 0) for i in range(3)]
    real = 0.0
    while real < 2 * DURATIONS.lease_s:
        real += 0.1
        for index in range(3):
            elector = electors[(index + seed) % 3]
            now = elector.now(real)
            match elector.effect:
                case Wait(seconds=seconds) if now >= elector.since + seconds:
                    elector.feed(Tick(now, f"t{real}"), real)
                case Fetch():
                    elector.feed(Fetched(server.lease, now, f"t{real}"), real)
                case Put(record=record):
                    taken = server.put(record)
                    accepted = Accepted(taken, now, elector.wall(real), now) if taken else Refused(now)
                    elector.feed(accepted, real)
    assert [e.may_write(real) for e in electors].count(True) == 1
    assert server.lease is not None
    assert server.lease.transitions == 4
