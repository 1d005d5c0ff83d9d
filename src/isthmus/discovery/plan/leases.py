"""Registrations and how long they hold, and which of two runs of a relay counts (PW-2, PW-5, PW-6).

store_memory.py asks on each registration; store_redis.py has the same rules as a script. A new incarnation
takes over at once; one that was replaced comes too late while its successor's lease holds; within one
incarnation revisions never go back. What has expired is not live, and forgotten some leases later. Times are
monotonic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from isthmus.api.pools import PoolKey, Registration

MAX_POOLS: Final = 20_000
KEPT_INCARNATIONS: Final = 8
FORGET_LEASES: Final = 20


class Verdict(Enum):
    """What becomes of a registration, or of its withdrawal."""

    NEW = "new"
    RENEWED = "renewed"
    STALE_INCARNATION = "stale_incarnation"
    STALE_REVISION = "stale_revision"
    FULL = "full"
    REMOVED = "removed"
    UNKNOWN = "unknown"
    OTHER_INCARNATION = "other_incarnation"


ACCEPTED: Final = frozenset({Verdict.NEW, Verdict.RENEWED})


class Held(NamedTuple):
    """A registration, and until when it holds."""

    registration: Registration
    expires_s: float


class Leases:
    """See the module. `lease_s` is what each registration is granted."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._held: dict[PoolKey, Held] = {}
        self._replaced: dict[PoolKey, deque[str]] = {}

    def put(self, registration: Registration, now: float) -> tuple[Verdict, bool]:
        """Take a registration in, or not; and whether what is listed may be another by it."""
        key, run = registration.key, registration.relay
        held = self._held.get(key)
        live = held is not None and held.expires_s > now
        if held is None and len(self._held) >= MAX_POOLS:
            self.forget(now)
            if len(self._held) >= MAX_POOLS:
                return Verdict.FULL, False
        if held is not None and held.registration.relay.incarnation == run.incarnation:
            if run.revision < held.registration.relay.revision:
                return Verdict.STALE_REVISION, False
        elif live and run.incarnation in self._replaced.get(key, ()):
            return Verdict.STALE_INCARNATION, False
        elif held is not None:
            replaced = self._replaced.setdefault(key, deque(maxlen=KEPT_INCARNATIONS))
            replaced.append(held.registration.relay.incarnation)
        self._held[key] = Held(registration, now + self.lease_s)
        same = held is not None and held.registration == registration
        renewed = live and held is not None and held.registration.relay.incarnation == run.incarnation
        return (Verdict.RENEWED if renewed else Verdict.NEW), not (live and same)

    def remove(self, key: PoolKey, incarnation: str, now: float) -> Verdict:
        """Take a registration back; an empty incarnation means whichever there is."""
        held = self._held.get(key)
        if held is None or held.expires_s <= now:
            return Verdict.UNKNOWN
        if incarnation and held.registration.relay.incarnation != incarnation:
            return Verdict.OTHER_INCARNATION
        del self._held[key]
        self._replaced.setdefault(key, deque(maxlen=KEPT_INCARNATIONS)).append(
            held.registration.relay.incarnation
        )
        return Verdict.REMOVED

    def live(self, now: float) -> Iterator[Held]:
        """The registrations whose lease holds."""
        return (held for held in self._held.values() if held.expires_s > now)

    def next_expiry_s(self, now: float) -> float | None:
        """When the next lease ends; None where none holds."""
        return min((held.expires_s for held in self.live(now)), default=None)

    def forget(self, now: float) -> None:
        """Drop what has been over for long."""
        old = now - FORGET_LEASES * self.lease_s
        for key in [key for key, held in self._held.items() if held.expires_s < old]:
            del self._held[key]
        for key in [key for key in self._replaced if key not in self._held]:
            if len(self._replaced) > MAX_POOLS:
                del self._replaced[key]
