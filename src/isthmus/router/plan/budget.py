"""How many retries there may be: a share of all requests, and a few a second however little goes on.

A token bucket. Each request puts `share` of a token in, each second `floor_per_s`; a retry takes one out; and
it never holds more than CAP_S seconds and CAP_REQUESTS requests put in, or one. So pools that all fail see at
most that much more load than without retries (PW-18), while those of a single client are not refused.
"""

from __future__ import annotations

from typing import Final

CAP_S: Final = 10.0
CAP_REQUESTS: Final = 100.0


class RetryBudget:
    """See the module. `share` is between 0 and 1; `floor_per_s` in retries."""

    __slots__ = ("_floor_per_s", "_last_s", "_share", "_tokens")

    def __init__(self, share: float, floor_per_s: float, now: float) -> None:
        self._share = share
        self._floor_per_s = floor_per_s
        self._tokens = self.cap
        self._last_s = now

    @property
    def cap(self) -> float:
        """The most retries that can be made at once; it begins with so many."""
        return max(1.0, CAP_S * self._floor_per_s + CAP_REQUESTS * self._share)

    def request(self, now: float) -> None:
        """A request has come."""
        self._refill(now, self._share)

    def take(self, now: float) -> bool:
        """Whether there may be a retry; it is counted where so."""
        self._refill(now, 0.0)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _refill(self, now: float, tokens: float) -> None:
        passed_s = max(0.0, now - self._last_s)
        self._last_s += passed_s
        self._tokens = min(self.cap, self._tokens + passed_s * self._floor_per_s + tokens)
