"""The list of pools as readers get it: its version, and what changed from one to the next.

service.py makes a Listing whenever something may have changed. The version is a digest of the list without
its expiries, so it changes exactly when the list does, on every replica alike, and is the same again when
the list is (PW-7). History keeps the last changes, for watchers that come back with a version that it knows
(PW-9).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from isthmus.api.pools import Pool

KEPT_CHANGES: Final = 64
MAX_KEPT_EVENTS: Final = 4096


class Change(NamedTuple):
    """`added` and `changed` have the pool, `removed` what it was."""

    name: str
    pool: Pool


class Listing:
    """The pools of one moment."""

    def __init__(self, pools: Iterable[Pool], *, complete: bool, mode: str) -> None:
        self.pools = tuple(pools)
        self.complete = complete
        self.mode = mode
        self.by_id = {pool.pool_id: pool for pool in self.pools}

    @cached_property
    def version(self) -> str:
        """See the module."""
        digest = hashlib.sha256(msgspec.json.encode((self.mode, self.complete, self.pools)))
        return f"b-{digest.hexdigest()[:20]}"

    def changes_from(self, old: Listing) -> tuple[Change, ...]:
        """What makes this list of the old one, in order of the keys."""
        removed = [Change("removed", pool) for pool in old.pools if pool.pool_id not in self.by_id]
        fresh = [
            Change("changed" if pool.pool_id in old.by_id else "added", pool)
            for pool in self.pools
            if old.by_id.get(pool.pool_id) != pool
        ]
        return (*removed, *fresh)


class History:
    """The last changes, each from one version to the next. Bounded by KEPT_CHANGES and MAX_KEPT_EVENTS."""

    def __init__(self) -> None:
        self._steps: deque[tuple[str, tuple[Change, ...]]] = deque()
        self._events = 0

    def add(self, old_version: str, changes: tuple[Change, ...]) -> None:
        """A list followed the one of `old_version`."""
        self._steps.append((old_version, changes))
        self._events += len(changes)
        while self._steps and (len(self._steps) > KEPT_CHANGES or self._events > MAX_KEPT_EVENTS):
            self._events -= len(self._steps.popleft()[1])

    def since(self, version: str) -> tuple[Change, ...] | None:
        """Every change since the list was last of that version; None where that is not known."""
        steps = list(self._steps)
        for index in range(len(steps) - 1, -1, -1):
            if steps[index][0] == version:
                return tuple(change for _, changes in steps[index:] for change in changes)
        return None
