"""What the relay tells, kept for whoever asks and whoever watches: a Plane for each of catalogue, readiness,
load.

view.py publishes; pages.py and grpcface.py read and wait. A watcher gets whole states, always the newest: one
that is slow misses some in between and never makes anything queue up (RL-9, RL-13). The number of watchers of
a plane is bounded (RL-14).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final

from isthmus.clock import Clock
from isthmus.errors import WorldError
from isthmus.relay.plan.model import Facts
from isthmus.runtime.tasks import wait_event

MAX_SUBSCRIBERS: Final = 64


class TooMany(WorldError):
    """A plane has as many watchers as it may."""


class Plane:
    """One kind of what is told. `revision` counts the states since the start, from 1; `at` is when the last
    one was known to hold, monotonic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.facts: Facts | None = None
        self.revision = 0
        self.at = 0.0
        self.closed = False
        self.subscribers = 0
        self._changed = asyncio.Event()

    def publish(self, facts: Facts, at: float, *, changed: bool) -> None:
        """These facts hold at `at`. `changed`: they are news, and watchers are woken."""
        self.facts, self.at = facts, at
        if changed:
            self.revision += 1
            self._wake()

    def close(self) -> None:
        """End all watchers, cleanly."""
        self.closed = True
        self._wake()

    @contextlib.contextmanager
    def subscribed(self) -> Iterator[None]:
        """For as long as somebody watches. Raises TooMany."""
        if self.subscribers >= MAX_SUBSCRIBERS:
            raise TooMany(f"there are {MAX_SUBSCRIBERS} watchers of {self.name} already")
        self.subscribers += 1
        try:
            yield
        finally:
            self.subscribers -= 1

    async def newer(self, revision: int, clock: Clock, seconds: float) -> bool:
        """Whether there is a later state than `revision`, or the end, within `seconds`."""
        if self.revision <= revision and not self.closed:
            await wait_event(self._changed, seconds, clock)
        return self.revision > revision or self.closed

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
