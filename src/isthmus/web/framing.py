"""Where one request ends and the next begins: a connection's bytes in, whole requests out. Pure.

connection.py feeds what it received and reads `phase`. One request is out at a time: while it is being
answered (READY) further bytes are only kept, so pipelined requests are answered in order, and nothing of the
second is looked at before the first is done. Sizes are bounded by `Limits`; how long each phase may last is
connection.py's business. After a Refused nothing more is read: the connection is lost by definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from isthmus.web.head import Head, Refused, parse_field, parse_head
from isthmus.web.limits import Limits

MAX_EMPTY_LINES: Final = 4
"""Empty lines that are passed over before a request line (RFC 9112, 2.2)."""
MAX_CHUNK_LINE_BYTES: Final = 1024

_LONE_NEWLINE: Final = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(;[\t\x20-\x7e]*)?")
_FORBIDDEN_TRAILERS: Final = frozenset(
    {"content-length", "transfer-encoding", "host", "trailer", "connection"}
)


class Phase(Enum):
    """What a connection is waiting for."""

    IDLE = auto()
    """The first byte of a request."""
    HEAD = auto()
    """The rest of its request line and headers."""
    BODY = auto()
    """The rest of its body."""
    READY = auto()
    """Nothing: a whole request is held until `release`."""


class Framing:
    """The reading side of one connection.

    `head` is that of the request in phases BODY and READY; `body` is complete in READY.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._checked = 0
        self._empty_lines = 0
        self._body = bytearray()
        self._left = 0
        self._extra_bytes = 0
        self._step: Callable[[], bool] = self._read_head
        self._head: Head | None = None
        self.phase = Phase.IDLE

    @property
    def head(self) -> Head:
        """The head of the request in phases BODY and READY; asking earlier is a bug and raises."""
        assert self._head is not None
        return self._head

    @property
    def body(self) -> bytes:
        """The decoded body, complete in phase READY."""
        return bytes(self._body)

    @property
    def held_bytes(self) -> int:
        """Bytes of the body that is being read, or is being answered."""
        return len(self._body)

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not yet read."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take in received bytes. Raises Refused, after which this object must not be used again."""
        self._buffer += data
        self._advance()

    def release(self) -> None:
        """The held request is answered: go on with what came behind it. Raises Refused as `feed` does."""
        assert self.phase is Phase.READY
        self._head = None
        self._body = bytearray()
        self._empty_lines = 0
        self._extra_bytes = 0
        self._step = self._read_head
        self.phase = Phase.IDLE
        self._advance()

    def _advance(self) -> None:
        while self.phase is not Phase.READY and self._step():
            pass

    def _read_head(self) -> bool:
        buffer = self._buffer
        while buffer.startswith(b"\r\n"):
            self._empty_lines += 1
            if self._empty_lines > MAX_EMPTY_LINES:
                raise Refused(400, "empty lines instead of a request")
            del buffer[:2]
            self._checked = 0
        if not buffer or buffer == b"\r":
            return False
        self.phase = Phase.HEAD
        start = max(0, self._checked - 3)
        end = buffer.find(b"\r\n\r\n", start)
        if _LONE_NEWLINE.search(buffer, start, end + 4 if end >= 0 else len(buffer)):
            raise Refused(400, "a line ends in something else than CR LF")
        if (end if end >= 0 else len(buffer)) > self._limits.head_bytes:
            raise Refused(431, f"the headers are longer than {self._limits.head_bytes} bytes")
        self._checked = len(buffer)
        if end < 0:
            return False
        raw = bytes(buffer[:end])
        del buffer[: end + 4]
        self._checked = 0
        self._head = head = parse_head(raw, self._limits)
        self._start_body(head)
        return True

    def _start_body(self, head: Head) -> None:
        self.phase = Phase.BODY
        if head.chunked:
            self._step = self._read_chunk_size
        elif head.length:
            self._left = head.length
            self._step = self._read_sized
        else:
            self.phase = Phase.READY

    def _read_sized(self) -> bool:
        if not self._move_body():
            return False
        self.phase = Phase.READY
        return True

    def _move_body(self) -> bool:
        """Move what is there of the `_left` bytes from the buffer to the body; whether that was all."""
        part = self._buffer[: self._left]
        del self._buffer[: len(part)]
        self._body += part
        self._left -= len(part)
        return self._left == 0

    def _read_chunk_size(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        match = _CHUNK_LINE.fullmatch(line)
        if match is None:
            raise Refused(400, "a chunk size is malformed")
        self._count_extra(len(line) - len(match[1]))
        self._left = int(match[1], 16)
        if len(self._body) + self._left > self._limits.body_bytes:
            raise Refused(413, f"the body is longer than {self._limits.body_bytes} bytes")
        self._step = self._read_chunk if self._left else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        if self._move_body():
            self._step = self._read_chunk_end
            return True
        return False

    def _read_chunk_end(self) -> bool:
        end = bytes(self._buffer[:2])
        if not b"\r\n".startswith(end):
            raise Refused(400, "a chunk is not followed by CR LF")
        if len(end) < 2:
            return False
        del self._buffer[:2]
        self._step = self._read_chunk_size
        return True

    def _read_trailer(self) -> bool:
        line = self._take_line()
        if line is None:
            return False
        if line:
            self._count_extra(len(line))
            name, _ = parse_field(line)
            if name in _FORBIDDEN_TRAILERS:
                raise Refused(400, f"{name} as a trailer")
        else:
            self.phase = Phase.READY
        return True

    def _count_extra(self, size_bytes: int) -> None:
        self._extra_bytes += size_bytes
        if self._extra_bytes > self._limits.head_bytes:
            raise Refused(431, "chunk extensions or trailers are too long")

    def _take_line(self) -> bytes | None:
        """The next line of the buffer without its CR LF; None while it is incomplete."""
        end = self._buffer.find(b"\n")
        if max(end, len(self._buffer) if end < 0 else 0) > MAX_CHUNK_LINE_BYTES:
            raise Refused(400, "a line of a chunked body is too long")
        if end < 0:
            return None
        if self._buffer[end - 1 : end] != b"\r":
            raise Refused(400, "a line of a chunked body ends in something else than CR LF")
        line = bytes(self._buffer[: end - 1])
        del self._buffer[: end + 1]
        return line
