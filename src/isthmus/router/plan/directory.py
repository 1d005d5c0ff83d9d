"""The pools that are known, as lists and events tell them, and never on the word of half a list (PW-8).

pools.py feeds whole lists and single events. A complete list is the truth: what it lacks is gone. An
incomplete one only adds and changes: pools that it lacks are kept as `doubtful`, and go once a complete list
lacks them or, `drop_doubtful`, once they themselves cannot be reached. While the source is silent everything
stays (D-20). Pools that are gone are forgotten here; requests that run there are the proxy's.
"""

from __future__ import annotations

from collections.abc import Iterable

from isthmus.api.pools import Pool


class Directory:
    """See the module. `version` counts changes of what is known."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self._doubtful: set[str] = set()
        self._by_model: dict[str, tuple[Pool, ...]] = {}
        self.version = 0
        self.complete = False
        self.synced = False
        """A first list has been seen, complete or not."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """All, sorted by key."""
        return tuple(sorted(self._pools.values(), key=lambda pool: pool.key))

    def get(self, pool_id: str) -> Pool | None:
        """A pool that is known; None for any other."""
        return self._pools.get(pool_id)

    def is_doubtful(self, pool_id: str) -> bool:
        """Whether the last list, which was not complete, lacked it."""
        return pool_id in self._doubtful

    def serving(self, model: str) -> tuple[Pool, ...]:
        """The pools that have a model of this name or alias, ready or not, sorted by key."""
        found = self._by_model.get(model)
        return () if found is None else found

    @property
    def models(self) -> tuple[str, ...]:
        """All names and aliases, sorted."""
        return tuple(sorted(self._by_model))

    def replace(self, pools: Iterable[Pool], *, complete: bool) -> frozenset[str]:
        """A whole list has come. Returns the IDs of the pools that are gone by it."""
        told = {pool.pool_id: pool for pool in pools}
        missing = self._pools.keys() - told.keys()
        gone = frozenset(missing) if complete else frozenset()
        self._doubtful = set() if complete else set(missing)
        kept = {} if complete else {pool_id: self._pools[pool_id] for pool_id in missing}
        self.complete, self.synced = complete, True
        self._settle(kept | told)
        return gone

    def put(self, pool: Pool) -> None:
        """One pool is new or has changed."""
        self._doubtful.discard(pool.pool_id)
        self._settle(self._pools | {pool.pool_id: pool})

    def remove(self, pool_id: str) -> bool:
        """One pool is gone; whether it was known."""
        if pool_id not in self._pools:
            return False
        self._doubtful.discard(pool_id)
        self._settle({each: pool for each, pool in self._pools.items() if each != pool_id})
        return True

    def drop_doubtful(self, pool_id: str) -> bool:
        """The pool cannot be reached: forget it if the last list lacked it as well. Whether that was so."""
        return pool_id in self._doubtful and self.remove(pool_id)

    def _settle(self, pools: dict[str, Pool]) -> None:
        if pools == self._pools:
            return
        self._pools = pools
        self.version += 1
        by_model: dict[str, list[Pool]] = {}
        for pool in self.pools:
            for name in dict.fromkeys(name for model in pool.models for name in model.names):
                by_model.setdefault(name, []).append(pool)
        self._by_model = {name: tuple(found) for name, found in by_model.items()}
