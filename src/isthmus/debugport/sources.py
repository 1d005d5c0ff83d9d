"""What the debug port asks of a feature: protocols, so that it knows no store. No code runs here.

modelserving/dump.py implements both; the composition root hands them to port.py. Everything named here is
called on the event loop, except the iterator of `Snapshot.chunks`, which worker threads advance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from isthmus.modelserving.dto import Decision


class Snapshot(Protocol):
    """One instant of a store, which nothing changes any more."""

    def chunks(self, namespace: str | None, name: str | None) -> Iterator[bytes]:
        """Consecutive pieces of the JSON document, narrowed to a namespace and a name where these are given.

        Each piece has at most about 64 KiB and takes at most about 2 ms of a processor, since a worker thread
        that makes one keeps the event loop from running meanwhile. The iterator is advanced by one thread at
        a time, not always by the same one, and may be dropped half way.
        """


class DumpSource(Protocol):
    """A store that can be dumped."""

    def incomplete(self) -> tuple[str, ...]:
        """The names of the caches that have not been filled once; empty when there is something to show."""

    def snapshot(self) -> Snapshot:
        """What the store holds now; copies pointers only, since it runs on the event loop."""


class DecisionSource(Protocol):
    """The rings of last decisions."""

    def decisions(self, namespace: str | None, name: str | None) -> Sequence[Decision]:
        """The kept decisions, oldest first, narrowed where asked; runs on the event loop."""
