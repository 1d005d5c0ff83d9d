"""The list of pools of this moment, kept right: store and imports in, listings, changes and watchers out.

app.py calls `run`; the routes read. Whatever may have changed something wakes one task, which joins anew at
most every PAUSE_S, and looks at the moments when a lease ends or the service becomes complete; a renewal
changes nothing and wakes nobody. What readers get is encoded once for all of them, and again when its
expiries have grown old. A watcher's events wait in watchers.py, so no reader holds up another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from isthmus import logs
from isthmus.api.pools import Pool, PoolKey, PoolList
from isthmus.clock import Clock
from isthmus.discovery.plan.imports import Endpoints, Source
from isthmus.discovery.plan.join import REGISTRATIONS, Suffixes, Unmatched, join
from isthmus.discovery.plan.listing import Change, History, Listing
from isthmus.discovery.sources import Sources
from isthmus.discovery.store import Store
from isthmus.discovery.watchers import Watcher, Watchers
from isthmus.runtime.tasks import wait_event

log = logs.get(__name__)

PAUSE_S: Final = 0.05
LOOK_S: Final = 1.0
"""The longest time between two looks: leases may end on another replica's word."""
BODY_S: Final = 1.0
"""How long an encoded list is given out, its expiries growing old."""
MAX_BODIES: Final = 64
"""Encoded lists that are kept: the whole one, and those of one model or cluster."""

Imports = Mapping[Source, Endpoints]


class Service:
    """See the module. `sources` is None in mode registrations."""

    def __init__(
        self,
        store: Store,
        sources: Sources | None,
        clock: Clock,
        *,
        mode: str = REGISTRATIONS,
        suffixes: Suffixes,
    ) -> None:
        self._store = store
        self._sources = sources
        self._clock = clock
        self._mode = mode
        self._suffixes = suffixes
        self._dirty = asyncio.Event()
        self._dirty.set()
        self._moved = asyncio.Event()
        self._closed = False
        self._bodies: dict[tuple[str, ...], tuple[float, bytes]] = {}
        self._alive: frozenset[PoolKey] = frozenset()
        self._history = History()
        self.watchers = Watchers()
        self.listing = Listing((), complete=False, mode=mode)
        self.unmatched: tuple[Unmatched, ...] = ()
        self.encoded = 0
        """Lists encoded since the start."""

    def touch(self) -> None:
        """Something may have changed."""
        self._dirty.set()

    def refresh(self) -> None:
        """Join anew now."""
        self._dirty.clear()
        held = self._store.live()
        self._alive = frozenset(each.registration.key for each in held)
        imported: Imports | None = {} if self._sources is None else self._sources.endpoints()
        if imported is None:
            # An import that cannot be seen is not absent: what was known stays while its relay is there.
            pools = tuple(pool for pool in self.listing.pools if pool.key in self._alive)
            self.unmatched = ()
        else:
            registered = (each.registration for each in held)
            joined = join(registered, imported, mode=self._mode, suffixes=self._suffixes)
            pools, self.unmatched = joined.pools, joined.unmatched
        self._publish(Listing(pools, complete=self._is_complete(), mode=self._mode))

    async def run(self) -> None:
        """Keep the list right until cancelled."""
        try:
            while True:
                if self._is_due():
                    self.refresh()
                await self._clock.sleep(PAUSE_S)
                await wait_event(self._dirty, self._until_next(), self._clock)
        finally:
            self.close()

    def close(self) -> None:
        """Send every watcher and everybody who waits away."""
        self._closed = True
        self._moved.set()
        self.watchers.close()

    def body(self, *, model: str = "", cluster_id: str = "") -> bytes:
        """The list as GET /pools answers it, or what of it has that model and is of that cluster."""

        def encode() -> bytes:
            return self._encode(
                tuple(
                    pool
                    for pool in self.listing.pools
                    if (not cluster_id or pool.cluster_id == cluster_id)
                    and (not model or any(model in each.names for each in pool.models))
                )
            )

        return self._kept(("list", model, cluster_id), encode)

    async def wait_other(self, version: str, seconds: float) -> None:
        """Return when the list is of another version, after so many seconds, or when the service ends."""
        end_s = self._clock.monotonic() + seconds
        while self.listing.version == version and not self._closed:
            left_s = end_s - self._clock.monotonic()
            if left_s <= 0:
                return
            await wait_event(self._moved, left_s, self._clock)

    def watch(self, version: str | None) -> Watcher | None:
        """A new reader, with all that is there, or the changes since a version that is known, and `synced`
        in its queue. None where there are too many readers."""
        watcher = None if self._closed else self.watchers.add()
        if watcher is None:
            return None
        since = None if version is None else self._since(version)
        if since is None:
            first = self._kept(("watch",), self._everything)
        else:
            first = self._events(since) + self._synced(resumed=True)
        watcher.put(first)
        return watcher

    def _is_due(self) -> bool:
        """Whether the list may be another one than that of the last look."""
        if self._dirty.is_set() or self._is_complete() != self.listing.complete:
            return True
        return frozenset(each.registration.key for each in self._store.live()) != self._alive

    def _is_complete(self) -> bool:
        seen = self._sources is None or (self._sources.problem() or self._sources.stale()) is None
        return seen and self._store.complete() and self._store.problem() is None

    def _until_next(self) -> float:
        """Seconds to the next moment at which the list may change by itself."""
        now = self._clock.monotonic()
        return min([LOOK_S, *(max(0.01, each.expires_s - now) for each in self._store.live())])

    def _since(self, version: str) -> tuple[Change, ...] | None:
        return () if version == self.listing.version else self._history.since(version)

    def _publish(self, listing: Listing) -> None:
        old = self.listing
        if listing.version == old.version:
            return
        changes = listing.changes_from(old)
        self.listing = listing
        self._bodies.clear()
        self._history.add(old.version, changes)
        if len(self.watchers):
            self.watchers.put(self._events(changes) + self._synced(resumed=True), len(changes) + 1)
        self._moved.set()
        self._moved = asyncio.Event()
        log.info("list changed", pools=len(listing.pools), complete=listing.complete, version=listing.version)

    # What readers get.

    def _kept(self, name: tuple[str, ...], encode: Callable[[], bytes]) -> bytes:
        now = self._clock.monotonic()
        made_s, body = self._bodies.get(name, (-1e9, b""))
        if now - made_s > BODY_S:
            if len(self._bodies) >= MAX_BODIES:
                self._bodies.clear()
            body = encode()
            self._bodies[name] = (now, body)
        return body

    def _encode(self, pools: tuple[Pool, ...]) -> bytes:
        self.encoded += 1
        listing = self.listing
        timed = tuple(self._timed(pools))
        return msgspec.json.encode(
            PoolList(version=listing.version, complete=listing.complete, mode=listing.mode, pools=timed)
        )

    def _everything(self) -> bytes:
        self.encoded += 1
        added = tuple(Change("added", pool) for pool in self.listing.pools)
        return self._events(added) + self._synced(resumed=False)

    def _events(self, changes: tuple[Change, ...]) -> bytes:
        timed = self._timed([each.pool for each in changes])
        return b"".join(_event(each.name, pool) for each, pool in zip(changes, timed, strict=True))

    def _synced(self, *, resumed: bool) -> bytes:
        body = {"version": self.listing.version, "complete": self.listing.complete, "resumed": resumed}
        return b"event: synced\ndata: %b\n\n" % msgspec.json.encode(body)

    def _timed(self, pools: tuple[Pool, ...] | list[Pool]) -> list[Pool]:
        """The pools with the seconds that their leases have left."""
        now = self._clock.monotonic()
        ends = {each.registration.key: each.expires_s for each in self._store.live()}
        return [
            replace(pool, expires_in_secs=round(max(0.0, ends.get(pool.key, now) - now), 1)) for pool in pools
        ]


def _event(name: str, pool: Pool) -> bytes:
    body: Any = pool
    if name == "removed":
        body = {
            "pool_id": pool.pool_id,
            "cluster_id": pool.cluster_id,
            "namespace": pool.namespace,
            "name": pool.name,
        }
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(body))
