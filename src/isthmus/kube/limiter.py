"""A client-side request rate, for those who want one (`--kube-api-qps`, `--kube-api-burst`).

client.py waits here before each attempt where a rate is set; by default there is none, and the server's
fairness rules decide. A token bucket in which waiters queue: each takes the next free moment at once, so
order is kept and nobody starves.
"""

from __future__ import annotations

from isthmus.clock import Clock


class Limiter:
    """At most `qps` requests per second on average, and `burst` at once after a pause."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._interval_s = 1.0 / qps
        self._slack_s = max(burst - 1, 0) * self._interval_s
        self._clock = clock
        self._next = clock.monotonic() - self._slack_s

    async def wait(self) -> None:
        """Return when the next request may go."""
        now = self._clock.monotonic()
        mine = max(self._next, now - self._slack_s)
        self._next = mine + self._interval_s
        if mine > now:
            await self._clock.sleep(mine - now)
