"""Where registrations are kept: the protocol of a store, and the one in memory (DS-2).

app.py has one store. service.py reads `live`, which never waits: a store that is elsewhere keeps a copy here
and calls `changed` when that is another. `put` and `remove` answer once it is kept, or raise
StoreUnavailable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from isthmus.api.pools import PoolKey, Registration
from isthmus.clock import Clock
from isthmus.discovery.plan.leases import Held, Leases, Verdict
from isthmus.errors import WorldError


class StoreUnavailable(WorldError):
    """The store does not answer: try again later."""


class Store(Protocol):
    """See the module."""

    changed: Callable[[], None]

    async def put(self, registration: Registration) -> Verdict:
        """Register or renew. Raises StoreUnavailable."""

    async def remove(self, key: PoolKey, incarnation: str) -> Verdict:
        """Take a registration back. Raises StoreUnavailable."""

    def live(self) -> Sequence[Held]:
        """What is registered now; `expires_s` on this process' monotonic clock."""

    def problem(self) -> str | None:
        """Why the store cannot be relied on now; None where it can."""

    def complete(self) -> bool:
        """Whether every relay that is alive has had the time to register (DS-3)."""

    async def run(self) -> None:
        """Keep the copy right, until cancelled."""


class MemoryStore:
    """One process' own: lost with it, and so not complete before one lease has passed."""

    def __init__(self, lease_s: float, clock: Clock) -> None:
        self._leases = Leases(lease_s)
        self._clock = clock
        self._complete_s = clock.monotonic() + lease_s
        self.changed: Callable[[], None] = lambda: None

    async def put(self, registration: Registration) -> Verdict:
        """See Store.put."""
        verdict, another = self._leases.put(registration, self._clock.monotonic())
        if another:
            self.changed()
        return verdict

    async def remove(self, key: PoolKey, incarnation: str) -> Verdict:
        """See Store.remove."""
        verdict = self._leases.remove(key, incarnation, self._clock.monotonic())
        if verdict is Verdict.REMOVED:
            self.changed()
        return verdict

    def live(self) -> Sequence[Held]:
        """See Store.live."""
        return tuple(self._leases.live(self._clock.monotonic()))

    def problem(self) -> str | None:
        """Never any."""
        return None

    def complete(self) -> bool:
        """See Store.complete."""
        return self._clock.monotonic() >= self._complete_s

    async def run(self) -> None:
        """Forget, now and then, what has long expired."""
        while True:
            await self._clock.sleep(self._leases.lease_s)
            self._leases.forget(self._clock.monotonic())
