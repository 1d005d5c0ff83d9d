"""An iterator of JSON pieces into an answer's body: advanced off the loop, a few at a time, with a deadline.

`Encodes.stream` waits for one of its slots, then has a worker thread make about a millisecond's worth of
pieces whenever the client has taken those before: so a slow client stops the encoding, a client that has gone
ends it, and no thread waits for anybody. Called by port.py; the body it gives is driven by web/connection.py.
Nothing is retried here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from isthmus.errors import WorldError
from isthmus.web.routes import Problem, error

ENCODES_AT_ONCE: Final = 2
WAIT_S: Final = 5.0
"""How long a request waits for one of the ENCODES_AT_ONCE."""
SLICE_S: Final = 0.001
"""How long a worker thread goes on making pieces before it lets go of the interpreter and the loop writes
them: well below the 5 ms after which Python would take it away, for which the loop would have to wait."""
SLICE_BYTES: Final = 64 * 1024
"""How much a worker thread makes at once, at most."""
DUMP_S: Final = 120.0
"""How long one dump may take, however fast its client reads: its snapshot keeps old objects alive."""


class TooSlow(WorldError):
    """A dump did not end within its deadline."""


class Encodes:
    """The slots and worker threads of one debug port. `close` it when no stream runs any more."""

    def __init__(
        self, *, at_once: int = ENCODES_AT_ONCE, wait_s: float = WAIT_S, dump_s: float = DUMP_S
    ) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._wait_s = wait_s
        self._dump_s = dump_s
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="debug-dump")
        self.running = 0
        """Streams that hold a slot now."""

    async def stream(self, start: Callable[[], Iterator[bytes]]) -> AsyncGenerator[bytes, None]:
        """The pieces of the iterator that `start` gives.

        `start` is called on the loop once a slot is free, so that those who wait hold no snapshot. Raises a
        Problem (503) before the first piece where none gets free in time, TooSlow between two, and whatever
        `start` and its iterator raise.
        """
        await self._acquire()
        self.running += 1
        try:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._dump_s
            pieces = start()
            while some := await loop.run_in_executor(self._threads, take_slice, pieces, loop.time):
                yield some
                if loop.time() > deadline:
                    raise TooSlow(f"a dump took longer than {self._dump_s} s")
        finally:
            self.running -= 1
            self._slots.release()

    async def _acquire(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._slots.acquire()
        except TimeoutError:
            busy = error(503, "too many dumps at once; try again", headers={"Retry-After": "2"})
            raise Problem(busy) from None

    def close(self) -> None:
        """Let the worker threads end; pieces that no thread has begun are not made."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def take_slice(pieces: Iterator[bytes], monotonic: Callable[[], float]) -> bytes:
    """The next pieces, as many as SLICE_S and SLICE_BYTES allow, but at least one; empty at the end."""
    buffer = bytearray()
    end = monotonic() + SLICE_S
    for piece in pieces:
        buffer += piece
        if len(buffer) >= SLICE_BYTES or monotonic() >= end:
            break
    return bytes(buffer)
