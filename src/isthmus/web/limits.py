"""How much of anything a listener lets one client have: bytes, lines, connections and seconds.

One frozen set of figures per listener, given to `web.server.Listener` and read by framing.py (sizes) and
connection.py (seconds). Every deadline is absolute: a client that sends or reads one byte at a time gains
nothing (R53). The defaults suit answers of a few kilobytes and dumps of a few megabytes.
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one listener. Seconds are `_s`, sizes `_bytes`."""

    head_s: float = 10.0
    """From the connection's start, and from the first byte of each later request, to the end of its
    headers."""
    body_s: float = 30.0
    """From the end of the headers to the end of the body."""
    write_s: float = 30.0
    """How long a full write buffer may take to drain before the reader is cut off."""
    idle_s: float = 60.0
    """From the end of an answer to the end of the next request's headers."""
    linger_s: float = 2.0
    """How long input is thrown away after a refusal, so that the client can read why."""
    drain_s: float = 10.0
    """How long running answers may go on after `stop`."""
    head_bytes: int = 16 * 1024
    """Request line and headers together, and each chunked body's extensions and trailers."""
    target_bytes: int = 8 * 1024
    """The request's target (its path and query)."""
    head_lines: int = 64
    """Number of header lines."""
    body_bytes: int = 64 * 1024
    """Body, decoded."""
    write_buffer_bytes: int = 64 * 1024
    """Bytes that wait for a slow reader before the handler has to wait too."""
    connections: int = 256
    """Connections at once; one more is told 503 and closed."""
    held_bytes: int = 64 * 1024 * 1024
    """Request bodies of all connections together; one that goes beyond is told 503 and closed."""
    half_close: bool = False
    """Whether a client that closes its sending side before its answer begins still waits for it (R45). A TLS
    client never does."""
