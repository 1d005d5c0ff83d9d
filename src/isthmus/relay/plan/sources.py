"""The file of sources, bytes in, Dynamo namespaces out (RL-3).

sourcefile.py reads it each second; a file that is not right leaves the last good one in force. The form is
upstream's: `{"version": 1, "connectionRevision": "...", "sources": [{"namespace": "..."}]}`. Pure.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from isthmus.errors import UserError

MAX_BYTES: Final = 1 << 20
MAX_SOURCES: Final = 4096
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]{1,512}")


class _Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    namespace: str


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    version: int
    sources: list[_Source]
    connection_revision: str | None = None


_decode: Final = msgspec.json.Decoder(_Document)


def read_sources(content: bytes) -> tuple[str, ...]:
    """The namespaces, sorted. Raises UserError for a file that is not right."""
    if len(content) > MAX_BYTES:
        raise UserError(f"the sources must have at most {MAX_BYTES} bytes")
    try:
        found = _decode.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise UserError(f"the sources are not right: {problem}") from None
    if found.version != 1:
        raise UserError(f"the sources have version {found.version}; there is 1")
    if len(found.sources) > MAX_SOURCES:
        raise UserError(f"there are {len(found.sources)} sources; there may be {MAX_SOURCES}")
    names = [source.namespace for source in found.sources]
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            raise UserError(f"the sources name {name[:60]!r}, which is no Dynamo namespace")
    if len(set(names)) != len(names):
        raise UserError("a namespace is among the sources twice")
    return tuple(sorted(names))
