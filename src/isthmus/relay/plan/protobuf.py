"""The few parts of the protobuf wire format that the relay's contract needs, by hand.

messages.py composes messages of these. A dozen messages with fixed numbers are less to keep than generated
code and its run-time library, and the tests hold them to the real one (docs/decisions/0021). Encoding leaves
out zero values, as proto3 does, unless `present`. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from isthmus.errors import UserError

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_MAX_VARINT_BYTES: Final = 10


class Malformed(UserError):
    """Bytes that are no message."""


def number(field: int, value: int, *, present: bool = False) -> bytes:
    """A uint32, uint64 or enum."""
    return _key(field, _VARINT) + _varint(value) if value or present else b""


def optional(field: int, value: int | None) -> bytes:
    """A uint64 that says whether it is there."""
    return b"" if value is None else number(field, value, present=True)


def flag(field: int, value: bool) -> bytes:
    """A bool."""
    return number(field, int(value))


def fixed32(field: int, value: int) -> bytes:
    """A fixed32."""
    return _key(field, _FIXED32) + struct.pack("<I", value) if value else b""


def fixed64(field: int, value: int) -> bytes:
    """A fixed64."""
    return _key(field, _FIXED64) + struct.pack("<Q", value) if value else b""


def text(field: int, value: str) -> bytes:
    """A string."""
    return raw(field, value.encode()) if value else b""


def texts(field: int, values: Iterable[str]) -> bytes:
    """A repeated string."""
    return b"".join(raw(field, value.encode()) for value in values)


def numbers(field: int, values: Iterable[int]) -> bytes:
    """A repeated enum, packed."""
    packed = b"".join(_varint(value) for value in values)
    return raw(field, packed) if packed else b""


def raw(field: int, value: bytes) -> bytes:
    """Bytes, or a message that is there though it may be empty."""
    return _key(field, _BYTES) + _varint(len(value)) + value


def messages(field: int, values: Iterable[bytes]) -> bytes:
    """A repeated message."""
    return b"".join(raw(field, value) for value in values)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of a message: numbers as they are, all else as bytes. Raises Malformed."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        field, kind = key >> 3, key & 7
        if field == 0:
            raise Malformed("a field has no number")
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            yield field, value
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
            yield field, int.from_bytes(_take(message, at, size), "little")
            at += size
        elif kind == _BYTES:
            size, at = _read_varint(message, at)
            yield field, _take(message, at, size)
            at += size
        else:
            raise Malformed(f"field {field} is of wire type {kind}")


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if at + index >= len(message):
            raise Malformed("a number is cut off")
        byte = message[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & (1 << 64) - 1, at + index + 1
    raise Malformed("a number is too long")


def _take(message: bytes, at: int, size: int) -> bytes:
    if size > len(message) - at:
        raise Malformed("a value is cut off")
    return message[at : at + size]
