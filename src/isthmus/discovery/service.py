"""The list of pools of this moment, kept right: store and imports in, listings, changes and watchers out.

app.py calls `run`; the routes read. Whatever may have changed something wakes one task, which joins anew at
most every PAUSE_S, and at the moments when a lease ends or the service becomes complete. A watcher's events
wait in a queue of its own; who lets it fill is closed, so no reader holds up another (PW-9). Bodies are
encoded once for all readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from isthmus import logs
from isthmus.api.pools import Pool, PoolList
from isthmus.clock import Clock
from isthmus.discovery.plan.join import REGISTRATIONS, Suffixes, Unmatched, join
from isthmus.discovery.plan.listing import Change, History, Listing
from isthmus.discovery.sources import Sources
from isthmus.discovery.store import Store
from isthmus.runtime.tasks import wait_event

log = logs.get(__name__)

PAUSE_S: Final = 0.05
LOOK_S: Final = 1.0
"""The longest time between two looks: leases may end on another replica's word."""
HEARTBEAT_S: Final = 15.0
MAX_WATCHERS: Final = 64
MAX_QUEUED: Final = 1000
BODY_S: Final = 1.0
"""How long an encoded list is given out, its expiries growing old."""


class Watcher:
    """One reader's events that have not been sent. `closed`: it was too slow, or the service ends."""

    def __init__(self) -> None:
        self._queue: list[bytes] = []
        self._wake = asyncio.Event()
        self.closed = False

    def put(self, event: bytes, count: int = 1) -> None:
        """Queue an event, or close the watcher where too many wait."""
        if len(self._queue) + count > MAX_QUEUED:
            self.close()
        elif not self.closed:
            self._queue.append(event)
        self._wake.set()

    def close(self) -> None:
        """End it; what is queued is lost, so that it begins anew with a whole list."""
        self.closed = True
        self._queue.clear()
        self._wake.set()

    async def take(self, clock: Clock) -> bytes:
        """The queued events, or a heartbeat after HEARTBEAT_S without one; empty when it is closed."""
        if not self._queue and not self.closed:
            await wait_event(self._wake, HEARTBEAT_S, clock)
        self._wake.clear()
        if self.closed:
            return b""
        data, self._queue = b"".join(self._queue), []
        return data or b": still here\n\n"


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
        self._moved = asyncio.Event()
        self._watchers: set[Watcher] = set()
        self._body: tuple[float, bytes] = (-1e9, b"")
        self._expiries: dict[str, float] = {}
        self._history = History()
        self.listing = Listing((), complete=False, mode=mode)
        self.unmatched: tuple[Unmatched, ...] = ()
        self.encoded = 0
        """Lists encoded since the start."""

    @property
    def watchers(self) -> int:
        """Watchers now."""
        return len(self._watchers)

    @property
    def mode(self) -> str:
        """Of DS-1."""
        return self._mode

    def touch(self) -> None:
        """Something may have changed."""
        self._dirty.set()

    def refresh(self) -> None:
        """Join anew now."""
        self._dirty.clear()
        held = self._store.live()
        endpoints = {} if self._sources is None else self._sources.endpoints()
        known = endpoints is not None
        if endpoints is None:
            joined = join((), {}, mode=self._mode, suffixes=self._suffixes)
            pools = self.listing.pools  # what was known stays: an import that cannot be seen is not absent
        else:
            joined = join(
                (each.registration for each in held), endpoints, mode=self._mode, suffixes=self._suffixes
            )
            pools = joined.pools
        self.unmatched = joined.unmatched
        self._expiries = {each.registration.key.pool_id: each.expires_s for each in held}
        complete = known and self._store.complete() and self._store.problem() is None
        self._publish(Listing(pools, complete=complete, mode=self._mode))

    async def run(self) -> None:
        """Keep the list right until cancelled."""
        try:
            while True:
                self.refresh()
                await self._clock.sleep(PAUSE_S)
                await wait_event(self._dirty, self._until_next(), self._clock)
        finally:
            self.close()

    def close(self) -> None:
        """Close every watcher."""
        for watcher in self._watchers:
            watcher.close()

    def body(self) -> bytes:
        """The whole list, as GET /pools answers it."""
        now = self._clock.monotonic()
        if now - self._body[0] > BODY_S:
            self._body = (now, self.encode(self.listing.pools))
        return self._body[1]

    def encode(self, pools: tuple[Pool, ...]) -> bytes:
        """A list of these pools of the present version."""
        self.encoded += 1
        listing = self.listing
        return msgspec.json.encode(
            PoolList(
                version=listing.version,
                complete=listing.complete,
                mode=listing.mode,
                pools=tuple(self._timed(pool) for pool in pools),
            )
        )

    async def wait_other(self, version: str, seconds: float) -> None:
        """Return when the list is of another version, or after so many seconds."""
        end_s = self._clock.monotonic() + seconds
        while self.listing.version == version and (left_s := end_s - self._clock.monotonic()) > 0:
            await wait_event(self._moved, left_s, self._clock)

    def watch(self, version: str | None) -> AsyncGenerator[bytes, None] | None:
        """A reader's events: all that is there, or the changes since a version that is known, then `synced`,
        then changes. None where there are too many readers."""
        if len(self._watchers) >= MAX_WATCHERS:
            return None
        watcher = Watcher()
        self._watchers.add(watcher)
        since = None if version is None else self._since(version)
        resumed = since is not None
        changes = since if since is not None else tuple(Change("added", pool) for pool in self.listing.pools)
        first = b"".join(self._event(each) for each in changes) + self._synced(resumed)
        return self._events(watcher, first)

    async def _events(self, watcher: Watcher, first: bytes) -> AsyncGenerator[bytes, None]:
        try:
            yield first
            while data := await watcher.take(self._clock):
                yield data
        finally:
            self._watchers.discard(watcher)

    def _since(self, version: str) -> tuple[Change, ...] | None:
        return () if version == self.listing.version else self._history.since(version)

    def _publish(self, listing: Listing) -> None:
        old = self.listing
        if listing.version == old.version:
            return
        changes = listing.changes_from(old)
        self.listing = listing
        self._body = (-1e9, b"")
        self._history.add(old.version, changes)
        if self._watchers:
            data = b"".join(self._event(each) for each in changes) + self._synced(True)
            for watcher in self._watchers:
                watcher.put(data, 1)
        self._moved.set()
        self._moved = asyncio.Event()
        log.info("list changed", pools=len(listing.pools), complete=listing.complete, version=listing.version)

    def _event(self, change: Change) -> bytes:
        body: Any = self._timed(change.pool)
        if change.name == "removed":
            key = change.pool.key
            body = {
                "pool_id": change.pool.pool_id,
                "cluster_id": key.cluster_id,
                "namespace": key.namespace,
                "name": key.name,
            }
        return b"event: %b\ndata: %b\n\n" % (change.name.encode(), msgspec.json.encode(body))

    def _synced(self, resumed: bool) -> bytes:
        body = {"version": self.listing.version, "complete": self.listing.complete, "resumed": resumed}
        return b"event: synced\ndata: %b\n\n" % msgspec.json.encode(body)

    def _timed(self, pool: Pool) -> Pool:
        left_s = self._expiries.get(pool.pool_id, 0.0) - self._clock.monotonic()
        return replace(pool, expires_in_secs=round(max(0.0, left_s), 1))

    def _until_next(self) -> float:
        """Seconds to the next moment at which the list may change by itself."""
        now = self._clock.monotonic()
        return min([LOOK_S, *(max(0.01, end - now) for end in self._expiries.values())])
