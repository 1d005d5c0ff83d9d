"""The pools that are known, as lists and events tell them, and never on the word of half a list (PW-8).

pools.py feeds whole lists and single events, and says `heard` of each sign of life. A complete list is the
truth: what it lacks is gone. An incomplete one only adds and changes: pools that it lacks become doubtful.
A doubtful pool is used on, until a complete list lacks it, until `drop_doubtful` says that it cannot be
reached, or until for DOUBT_S neither the source nor an answer of its own has spoken for it. While the source
is silent everything stays (D-20), since silence proves nothing either. Requests that run at a pool that is
gone are the proxy's. Times are seconds on the caller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from isthmus.api.pools import Pool

DOUBT_S: Final = 300.0
"""Twenty leases: whoever is alive has registered again long since."""


class Directory:
    """See the module. `version` counts changes of what is known."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self._doubtful: dict[str, float] = {}
        self._by_name: dict[str, dict[str, Pool]] = {}
        self._serving: dict[str, tuple[Pool, ...]] = {}
        self._sorted: tuple[Pool, ...] | None = ()
        self.version = 0
        self.complete = False
        self.synced = False
        """A first list has been seen, complete or not."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All, sorted by key."""
        if self._sorted is None:
            self._sorted = _in_order(self._pools.values())
        return self._sorted

    def get(self, pool_id: str) -> Pool | None:
        """A pool that is known; None for any other."""
        return self._pools.get(pool_id)

    def is_doubtful(self, pool_id: str) -> bool:
        """Whether the last list, which was not complete, lacked it."""
        return pool_id in self._doubtful

    def serving(self, model: str) -> tuple[Pool, ...]:
        """The pools that have a model of this name or alias, ready or not, sorted by key."""
        found = self._serving.get(model)
        if found is None:
            if model not in self._by_name:
                return ()
            found = self._serving[model] = _in_order(self._by_name[model].values())
        return found

    @property
    def models(self) -> tuple[str, ...]:
        """All names and aliases, sorted."""
        return tuple(sorted(self._by_name))

    def has_model(self, name: str) -> bool:
        """Whether a pool has a model of this name or alias."""
        return name in self._by_name

    def replace(self, pools: Iterable[Pool], *, complete: bool, now: float) -> frozenset[str]:
        """A whole list has come. Returns the IDs of the pools that are gone by it."""
        self.complete, self.synced = complete, True
        told = {pool.pool_id: pool for pool in pools}
        missing = self._pools.keys() - told.keys()
        for pool in told.values():
            self.put(pool)
        if not complete:
            for pool_id in missing:
                self._doubtful.setdefault(pool_id, now + DOUBT_S)
            return self.heard(now)
        for pool_id in missing:
            self.remove(pool_id)
        return frozenset(missing)

    def put(self, pool: Pool) -> None:
        """One pool is new or has changed, or is still there."""
        self._doubtful.pop(pool.pool_id, None)
        before = self._pools.get(pool.pool_id)
        if before == pool:
            return
        self._unname(before)
        self._pools[pool.pool_id] = pool
        for name in _names(pool):
            self._by_name.setdefault(name, {})[pool.pool_id] = pool
            self._serving.pop(name, None)
        self._changed()

    def remove(self, pool_id: str) -> bool:
        """One pool is gone; whether it was known."""
        pool = self._pools.pop(pool_id, None)
        self._doubtful.pop(pool_id, None)
        self._unname(pool)
        if pool is not None:
            self._changed()
        return pool is not None

    def heard(self, now: float) -> frozenset[str]:
        """The source is there. Returns the IDs of doubtful pools that are gone by now, since nobody spoke for
        them in time."""
        over = frozenset(pool_id for pool_id, until_s in self._doubtful.items() if until_s <= now)
        for pool_id in over:
            self.remove(pool_id)
        return over

    def answered(self, pool_id: str, now: float) -> None:
        """The pool itself has answered a request, so it is there whatever a half list lacks."""
        if pool_id in self._doubtful:
            self._doubtful[pool_id] = now + DOUBT_S

    def drop_doubtful(self, pool_id: str) -> bool:
        """The pool cannot be reached: forget it if the last list lacked it as well. Whether that was so."""
        return pool_id in self._doubtful and self.remove(pool_id)

    def _unname(self, pool: Pool | None) -> None:
        if pool is None:
            return
        for name in _names(pool):
            holders = self._by_name[name]
            del holders[pool.pool_id]
            self._serving.pop(name, None)
            if not holders:
                del self._by_name[name]

    def _changed(self) -> None:
        self.version += 1
        self._sorted = None


def _names(pool: Pool) -> frozenset[str]:
    return frozenset(name for model in pool.models for name in model.names)


def _in_order(pools: Iterable[Pool]) -> tuple[Pool, ...]:
    return tuple(sorted(pools, key=lambda pool: (pool.cluster_id, pool.namespace, pool.name)))
