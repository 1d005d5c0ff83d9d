"""What a request asks for, what is known of a pool's load, and what comes of choosing.

facts.py makes RequestFacts of a body, loads.py a Load of a relay's snapshot, selector.py a Choice of both
and of the pools in the directory; proxy.py acts on the Choice and says how each try ended. Times are seconds
on the caller's monotonic clock.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from isthmus.api.pools import Location, Pool


class RequestFacts(msgspec.Struct, frozen=True, gc=False):
    """What a body says that a decision needs. `prompt_tokens` is counted where the prompt is token IDs
    (`exact`), and else an estimate (GR-13); the others are None where the client did not say (GR-14, GR-15).
    """

    model: str
    stream: bool = False
    prompt_tokens: int = 0
    exact: bool = False
    priority: int | None = None
    ttft_target_ms: float | None = None
    itl_target_ms: float | None = None


class Load(msgspec.Struct, frozen=True, gc=False):
    """A pool's load for one model as its relays told it (GR-27), in requests. `max_concurrency` 0: not said.
    `whole`: every frontend that is expected was observed. `taken_s`: when the sample was true."""

    running: int
    max_concurrency: int
    whole: bool
    taken_s: float


class Outcome(Enum):
    """How a try at a pool ended."""

    OK = "ok"
    """An answer that is not the pool's fault, a client error included."""
    FAILED = "failed"
    """It answered 502, 503 or 504, or something that is no answer."""
    UNREACHABLE = "unreachable"
    """No connection, or one that ended before an answer began."""
    TIMEOUT = "timeout"
    """It said nothing in time."""
    BROKEN = "broken"
    """Its answer ended in the middle."""
    CANCELLED = "cancelled"
    """The client went: nothing is known of the pool."""


FAILURES: Final = frozenset({Outcome.FAILED, Outcome.UNREACHABLE, Outcome.TIMEOUT, Outcome.BROKEN})


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where the router itself is. Empty text: not said."""

    region: str = ""
    zone: str = ""

    def distance(self, location: Location) -> int:
        """0 in the router's own zone, 1 in its region, 2 elsewhere or not known."""
        if self.region and location.region and location.region != self.region:
            return 2
        if self.zone and location.availability_zone == self.zone:
            return 0
        return 1 if self.region and location.region == self.region else 2


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A pool that may be chosen now: what a policy goes by. `in_flight` are this router's own requests there,
    `since_sample` those that it sent after `load` was taken; `limit` is how many it may have there, 0 for no
    limit."""

    pool: Pool
    in_flight: int = 0
    since_sample: int = 0
    load: Load | None = None
    limit: int = 0
    weight: float = 1.0


class Ranked(NamedTuple):
    """A candidate with what its place in the order is due to. `cost` is in requests, or a share of the pool's
    capacity."""

    pool_id: str
    cost: float
    basis: str


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why no pool is chosen. `status` is 404 for a model that no pool has, 503 where none can take it now;
    `reasons` has a line for each pool that has the model."""

    status: int
    message: str
    reasons: tuple[str, ...] = ()


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The pools to try, in this order; none where there is a `refusal`. `name` is the policy's."""

    order: tuple[Ranked, ...] = ()
    policy: str = ""
    refusal: Refusal | None = None
