"""Server-sent events out of the pieces of a stream, however it was cut. Pure.

pools.py feeds what comes from a discovery service's watch (PW-9). Comments and events without a name are told
as nothing: that something came at all is for the caller to note. Lines end with LF or CRLF. An event that is
longer than MAX_EVENT_BYTES raises InvalidField, so that a peer cannot fill the memory.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from isthmus.api.pools import InvalidField

MAX_EVENT_BYTES: Final = 2 << 20


class Event(NamedTuple):
    """One event; the lines of its data are joined by LF."""

    name: str
    data: bytes


class EventStream:
    """See the module."""

    __slots__ = ("_data", "_held", "_name", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._held = 0
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes. Raises InvalidField."""
        found: list[Event] = []
        *lines, rest = piece.split(b"\n")
        for line in lines:
            whole = bytes(self._rest + line).removesuffix(b"\r")
            self._rest.clear()
            if whole:
                self._take(whole)
                continue
            if self._name:
                found.append(Event(self._name, b"\n".join(self._data)))
            self._name, self._data, self._held = "", [], 0
        self._rest += rest
        if self._held + len(self._rest) > MAX_EVENT_BYTES:
            raise InvalidField("", f"an event is longer than {MAX_EVENT_BYTES} bytes")
        return found

    def _take(self, line: bytes) -> None:
        self._held += len(line)
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
