"""When a pool, or one of its frontends, rests: a circuit breaker as a state machine with time as argument.

Closed: everything goes. `threshold` failures in a row open it: nothing goes for a while, which doubles each
time up to `longest_s`. Then half-open: `probes` requests may go at once; one success closes it, one failure
opens it again. What was cancelled tells nothing, and gives its probe back. Selector keeps one per pool and
one per frontend.
"""

from __future__ import annotations

from typing import Final

import msgspec

from isthmus.router.plan.model import FAILURES, Outcome

CLOSED: Final = "closed"
OPEN: Final = "open"
HALF_OPEN: Final = "half-open"


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Failures in a row that open one, seconds that it stays open at first and at most, and requests at once
    that try it out."""

    threshold: int = 3
    first_s: float = 1.0
    longest_s: float = 30.0
    probes: int = 1


class Breaker:
    """See the module. `began` must be called for a request only where `allows` said yes at that time."""

    __slots__ = ("_failures", "_opened_s", "_openings", "_probing", "_settings")

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._failures = 0
        self._openings = 0
        self._opened_s: float | None = None
        self._probing = 0

    def state(self, now: float) -> str:
        """CLOSED, OPEN or HALF_OPEN."""
        if self._opened_s is None:
            return CLOSED
        return OPEN if now < self._opened_s + self.rest_s else HALF_OPEN

    @property
    def rest_s(self) -> float:
        """How long it stays open this time."""
        return min(self._settings.longest_s, self._settings.first_s * 2.0 ** min(self._openings - 1, 32))

    def allows(self, now: float) -> bool:
        """Whether a request may go."""
        state = self.state(now)
        return state == CLOSED or (state == HALF_OPEN and self._probing < self._settings.probes)

    def began(self, now: float) -> bool:
        """A request goes; whether it is a probe, which `ended` wants to know."""
        if self.state(now) != HALF_OPEN:
            return False
        self._probing += 1
        return True

    def ended(self, outcome: Outcome, now: float, *, probe: bool) -> None:
        """A request that went has ended so."""
        if probe:
            self._probing = max(0, self._probing - 1)
        if outcome is Outcome.CANCELLED:
            return
        if outcome not in FAILURES:
            if probe or self._opened_s is None:
                self._failures = self._openings = 0
                self._opened_s = None
            return
        self._failures += 1
        if self._opened_s is None:
            if self._failures >= self._settings.threshold:
                self._open(now)
        elif probe:
            self._open(now)

    def _open(self, now: float) -> None:
        self._opened_s = now
        self._openings += 1
        self._failures = 0
