"""Readers that follow the list, each with a queue of what it has not been sent (PW-9).

service.py puts each change into all queues at once, the same bytes for everybody; routes.py takes and sends.
Neither the number of readers nor what waits for one of them grows without bound: a reader that lets more than
MAX_QUEUED events wait is closed, and begins anew with a whole list.
"""

from __future__ import annotations

import asyncio
from typing import Final

from isthmus.clock import Clock
from isthmus.runtime.tasks import wait_event

HEARTBEAT_S: Final = 15.0
MAX_WATCHERS: Final = 64
MAX_QUEUED: Final = 1000
HEARTBEAT: Final = b": still here\n\n"


class Watcher:
    """One reader. `closed`: it was too slow, or the service ends."""

    def __init__(self) -> None:
        self._queue: list[bytes] = []
        self._waiting = 0
        self._wake = asyncio.Event()
        self.closed = False

    def put(self, data: bytes, events: int = 1) -> None:
        """Queue some events as one piece; close the watcher where too many wait already. One piece alone is
        never too many."""
        if self._queue and self._waiting + events > MAX_QUEUED:
            self.close()
        if not self.closed:
            self._queue.append(data)
            self._waiting += events
        self._wake.set()

    def close(self) -> None:
        """End it; what is queued is lost."""
        self.closed = True
        self._queue.clear()
        self._wake.set()

    async def take(self, clock: Clock) -> bytes:
        """What is queued, or a heartbeat after HEARTBEAT_S without anything; empty when it is closed."""
        if not self._queue and not self.closed:
            await wait_event(self._wake, HEARTBEAT_S, clock)
        self._wake.clear()
        if self.closed:
            return b""
        data, self._queue, self._waiting = b"".join(self._queue), [], 0
        return data or HEARTBEAT


class Watchers:
    """All of them."""

    def __init__(self) -> None:
        self._all: set[Watcher] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Watcher | None:
        """A new one; None where there are MAX_WATCHERS."""
        if len(self._all) >= MAX_WATCHERS:
            return None
        watcher = Watcher()
        self._all.add(watcher)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """Its reader has gone."""
        self._all.discard(watcher)

    def put(self, data: bytes, events: int) -> None:
        """Give everybody the same."""
        for watcher in self._all:
            watcher.put(data, events)

    def close(self) -> None:
        """Close all."""
        for watcher in self._all:
            watcher.close()
