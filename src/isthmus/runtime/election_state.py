"""Leader election by a Lease as a pure state machine: what to ask of the API server next, and who may write.

runtime/election.py carries out its effects and feeds back what came of them. It keeps, whatever the local
clocks show and whichever answers are lost or late: at most one identity may write at any time, and none later
than `renew_s` after it sent the last renewal that was accepted (INV). To that end a candidate measures a
lease's life by its own monotonic clock, from when it first saw that record; and clocks may run at different
rates as long as the faster one is not ahead by more than lease_s / renew_s. Identities must be unique.
Time is an argument.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, assert_never

RELEASED_LEASE_S: Final = 1
"""leaseDurationSeconds of a lease that its holder gave back."""


class Durations(NamedTuple):
    """Seconds, by which candidates judge and holders live; the defaults are client-go's.

    `lease_s`: how long a holder that is not heard of keeps the lease. `renew_s`: how long a holder writes
    after the last renewal that worked. `retry_s`: the time between two tries, to get it or to renew it.
    """

    lease_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    def problem(self) -> str:
        """What is wrong with them, or nothing."""
        if self.retry_s <= 0:
            return "the retry period must be above 0"
        if self.renew_s <= self.retry_s * 1.2:
            return "the renew deadline must be more than 1.2 times the retry period"
        if self.lease_s <= self.renew_s:
            return "the lease duration must be longer than the renew deadline"
        if self.lease_s != int(self.lease_s):
            return "the lease duration must be whole seconds"
        return ""


class Record(NamedTuple):
    """What a Lease says. `acquired` and `renewed` are the holder's wall clock, shown and never compared with
    ours; `version` is the Lease's resourceVersion."""

    holder: str
    lease_s: float
    transitions: int
    acquired: str
    renewed: str
    version: str

    def same_life(self, other: Record | None) -> bool:
        """Whether nobody has renewed or taken it between the two; other changes of the object don't count."""
        return other is not None and self[:5] == other[:5]


class Phase(enum.Enum):
    """Where this process stands."""

    CANDIDATE = "candidate"
    HOLDING = "holding"
    RELEASING = "releasing"
    RELEASED = "released"  # final: not holding, on purpose
    LOST = "lost"  # final: was holding


@dataclass(frozen=True, slots=True)
class State:
    """`deadline` and `deadline_wall` bound our writes while HOLDING. `unsure`: a write of ours may have
    reached the server without an answer."""

    identity: str
    durations: Durations
    phase: Phase = Phase.CANDIDATE
    observed: Record | None = None
    observed_at: float = 0.0
    deadline: float = 0.0
    deadline_wall: float = 0.0
    unsure: bool = False

    def may_write(self, now: float, wall: float) -> bool:
        """Whether a write may leave at this moment. The wall clock only ever forbids: a machine that was
        suspended may find its monotonic clock standing."""
        return self.phase is Phase.HOLDING and now < self.deadline and wall < self.deadline_wall


# Inputs. `now` is monotonic, `wall` and the text `stamp` are wall time.


class Tick(NamedTuple):
    """The time that a Wait asked for has passed (or the machine starts)."""

    now: float
    stamp: str


class Fetched(NamedTuple):
    """The Lease was read; None if there is none."""

    record: Record | None
    now: float
    stamp: str


class Accepted(NamedTuple):
    """The server took our Put, sent at `sent_at` (monotonic) and `sent_wall`; `record` has its new
    version."""

    record: Record
    sent_at: float
    sent_wall: float
    now: float


class Refused(NamedTuple):
    """The server said that somebody else had written the Lease in between."""

    now: float


class Failed(NamedTuple):
    """A read or write brought no answer, or an error."""

    now: float


class Stop(NamedTuple):
    """Give the lease back and end. May come at any time, and abandons what is under way."""

    now: float
    stamp: str


Input = Tick | Fetched | Accepted | Refused | Failed | Stop

# Effects


class Fetch(NamedTuple):
    """Read the Lease."""


class Put(NamedTuple):
    """Write `record` where the Lease still has `record.version`; "" means create it."""

    record: Record


class Wait(NamedTuple):
    """Then Tick. Candidates add jitter."""

    seconds: float


class End(NamedTuple):
    """Nothing more to do."""


Effect = Fetch | Put | Wait | End
Step = tuple[State, Effect]


def step(state: State, input_: Input) -> Step:
    """The state after `input_`, and what to do next."""
    if state.phase in (Phase.RELEASED, Phase.LOST):
        return state, End()
    if state.phase in (Phase.HOLDING, Phase.RELEASING) and input_.now >= state.deadline:
        return _end(state)
    match input_:
        case Stop(now=now, stamp=stamp):
            return _release(state, now, stamp)
        case Tick(stamp=stamp):
            if state.phase is Phase.CANDIDATE or state.observed is None:
                return state, Fetch()
            return _put(state, state.observed, stamp)
        case Fetched(record=record, now=now, stamp=stamp):
            return _fetched(state, record, now, stamp)
        case Accepted():
            return _accepted(state, input_)
        case Refused():
            state = replace(state, unsure=False)
            return (state, _retry(state)) if state.phase is Phase.CANDIDATE else (state, Fetch())
        case Failed(now=now):
            return state, _retry(state, now)
    assert_never(input_)


def _fetched(state: State, record: Record | None, now: float, stamp: str) -> Step:
    if record is None:
        if state.phase is not Phase.CANDIDATE:
            return _end(state)  # a person deleted it: whoever creates it next is the leader
        record = Record("", 0, -1, "", "", "")
        return _put(replace(state, observed=None, unsure=False), record, stamp)
    fresh = not record.same_life(state.observed)
    state = replace(state, observed=record, observed_at=now if fresh else state.observed_at)
    ours = record.holder == state.identity
    if state.phase is not Phase.CANDIDATE:
        return _put(state, record, stamp) if ours else _end(state)
    expired = now >= state.observed_at + record.lease_s
    if ours or expired or not record.holder:
        return _put(state, record, stamp)
    return state, _retry(state)


def _accepted(state: State, accepted: Accepted) -> Step:
    state = replace(state, observed=accepted.record, observed_at=accepted.now, unsure=False)
    if state.phase is Phase.RELEASING:
        return _end(state)
    deadline = accepted.sent_at + state.durations.renew_s
    if accepted.now < deadline:
        wall = accepted.sent_wall + state.durations.renew_s
        state = replace(state, phase=Phase.HOLDING, deadline=deadline, deadline_wall=wall)
    return state, _retry(state, accepted.now)


def _release(state: State, now: float, stamp: str) -> Step:
    if state.phase is Phase.RELEASING:
        return state, Fetch()
    if state.phase is Phase.HOLDING and state.observed is not None:
        return _put(replace(state, phase=Phase.RELEASING), state.observed, stamp)
    if state.unsure:  # we may hold it without knowing
        deadline = now + state.durations.renew_s
        return replace(state, phase=Phase.RELEASING, deadline=deadline), Fetch()
    return _end(state)


def _put(state: State, old: Record, stamp: str) -> Step:
    """Write the lease as ours, or as nobody's when releasing."""
    if state.phase is Phase.RELEASING:
        record = Record("", RELEASED_LEASE_S, old.transitions, stamp, stamp, old.version)
    elif old.holder == state.identity:
        record = old._replace(lease_s=state.durations.lease_s, renewed=stamp)
    else:
        lease_s = state.durations.lease_s
        record = Record(state.identity, lease_s, old.transitions + 1, stamp, stamp, old.version)
    return replace(state, unsure=True), Put(record)


def _retry(state: State, now: float | None = None) -> Wait:
    """Until the next try, but never past the deadline of what we hold."""
    seconds = state.durations.retry_s
    if now is not None and state.phase is not Phase.CANDIDATE:
        seconds = min(seconds, state.deadline - now)
    return Wait(seconds)


def _end(state: State) -> Step:
    """Out of office, for good: by wish if we were giving it back (or never had it), else by loss."""
    lost = state.phase is Phase.HOLDING
    return replace(state, phase=Phase.LOST if lost else Phase.RELEASED), End()
