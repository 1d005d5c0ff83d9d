"""A watch's answer as lines: bytes that come in any pieces, cut at newlines, bounded in size.

transport.py opens one per watch; watch.py takes the lines in batches, one per piece that the socket gave, so
that a burst of a thousand events costs a few awaits. A line of more than 16 MiB ends the stream with an
error, since the API has no object of that size. The part after the last newline is given as a line only
where the body ended properly: a whole Status without a newline counts, half an event is for the caller to
discard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from isthmus.kube.errors import WrongAnswer

MAX_LINE_BYTES: Final = 16 << 20


class LineSplitter:
    """Cuts pieces into lines. Linear in the bytes fed, however small the pieces are."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._partial: list[bytes] = []
        self._partial_bytes = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes, without newlines; blank ones are left out.

        Raises WrongAnswer where a line is longer than the limit.
        """
        head, newline, rest = piece.partition(b"\n")
        if not newline:
            self._keep(piece)
            return []
        if self._partial:
            self._keep(head)
            head = b"".join(self._partial)
            self._partial.clear()
            self._partial_bytes = 0
        lines = [head, *rest.split(b"\n")] if rest else [head]
        if rest:
            self._keep(lines.pop())
        return [line for line in lines if line and not line.isspace()]

    def rest(self) -> bytes:
        """What came after the last newline."""
        return b"".join(self._partial)

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        self._partial_bytes += len(piece)
        if self._partial_bytes > self._max:
            raise WrongAnswer(f"a line of the watch is longer than {self._max} bytes")
        self._partial.append(piece)


class WatchStream:
    """An open watch. Iterate it for lines, or `batches` for lists of them; not both, and once.

    `read` gives the next piece, b"" at the proper end of the body, and raises Unreachable where the
    connection was lost, went silent, or outlived its time.
    """

    def __init__(self, read: Callable[[], Awaitable[bytes]], max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._read = read
        self._splitter = LineSplitter(max_line_bytes)

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Lists of lines, one per piece; an empty one is a sign of life too."""
        while piece := await self._read():
            yield self._splitter.feed(piece)
        if rest := self._splitter.rest().strip():
            yield [rest]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for lines in self.batches():
            for line in lines:
                yield line
