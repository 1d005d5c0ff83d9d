"""How many retries there may be: a share of all requests, and a few a second however little goes on.

A token bucket. Each request puts `share` of a token in, time puts `floor_per_s` in, each retry takes one
out; it never holds more than CAP_S seconds' worth of both. So pools that all fail see at most that much more
load than without retries, while a single client's retry is never refused (PW-18).
"""

from __future__ import annotations

from typing import Final

CAP_S: Final = 10.0


class RetryBudget:
    """See the module. `share` is between 0 and 1; `floor_per_s` in retries."""

    __slots__ = ("_floor_per_s", "_last_s", "_share", "_tokens")

    def __init__(self, share: float, floor_per_s: float, now: float) -> None:
        self._share = share
        self._floor_per_s = floor_per_s
        self._tokens = self._cap
        self._last_s = now

    @property
    def _cap(self) -> float:
        return max(1.0, CAP_S * self._floor_per_s)

    @property
    def tokens(self) -> float:
        """Retries that could be made now."""
        return self._tokens

    def request(self, now: float) -> None:
        """A request has come."""
        self._refill(now)
        self._tokens = max(self._tokens, min(self._cap + 100 * self._share, self._tokens + self._share))

    def take(self, now: float) -> bool:
        """Whether there may be a retry; it is counted where so."""
        self._refill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._last_s)
        self._last_s = max(self._last_s, now)
        if self._tokens < self._cap:
            self._tokens = min(self._cap, self._tokens + passed * self._floor_per_s)
