"""One line of a watch, made into an input of watch_state.py.

watch.py calls the reader for every event, so the usual case is a single decode of the fields that the type
names. Only what that refuses is looked at again: bookmarks, errors, a bare Status, an object that does not
fit, an event of tomorrow, or rubbish. Never raises. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from isthmus.api.meta import Object
from isthmus.errors import IsthmusError
from isthmus.kube import answers, errors
from isthmus.kube.watch_state import (
    Bookmarked,
    Failed,
    Failure,
    Garbled,
    Input,
    Removed,
    Skipped,
    Unknown,
    Upserted,
)

T = TypeVar("T", bound=Object)

SHOWN_CHARS: Final = 200


class _Change(msgspec.Struct, Generic[T], gc=False):
    type: str
    object: T


class _Loose(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


_loose_decoder: Final = msgspec.json.Decoder(_Loose)


def reader(type_: type[Object]) -> Callable[[bytes], Input]:
    """The function from a line to an input, for a watch of objects of `type_`."""
    decoder = cast("msgspec.json.Decoder[_Change[Any]]", msgspec.json.Decoder(cast(Any, _Change)[type_]))
    decode = decoder.decode

    def read(line: bytes) -> Input:
        try:
            change = decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            return _read_loosely(line, error)
        kind = change.type
        if kind in ("MODIFIED", "ADDED"):
            return Upserted(change.object)
        if kind == "DELETED":
            return Removed(change.object)
        return _read_loosely(line, None)

    return read


def _read_loosely(line: bytes, error: Exception | None) -> Input:
    try:
        event = _loose_decoder.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return Garbled(_shown(line))
    body = bytes(event.object)
    match event.type:
        case "BOOKMARK":
            meta = answers.try_named(body)
            return Bookmarked(meta.resource_version) if meta else Garbled(_shown(line))
        case "ERROR":
            status = answers.read_status(body) or answers.Status(message=_shown(body))
            return failure_of(answers.error_from_status(status, "watch"))
        case "ADDED" | "MODIFIED" | "DELETED":
            meta = answers.try_named(body)
            if meta is None or not meta.resource_version:
                return Garbled(_shown(line))
            undecodable = answers.Undecodable(meta.namespace, meta.name, str(error))
            return Skipped(meta.resource_version, undecodable)
        case "":
            bare = answers.read_status(line)
            if bare is None:
                return Garbled(_shown(line))
            return failure_of(answers.error_from_status(bare, "watch"))
        case _:
            return Unknown(event.type[:SHOWN_CHARS])


def failure_of(error: IsthmusError) -> Failed:
    """What an exception of the client means for a list or a watch."""
    wait = error.retry_after_s or 0.0 if isinstance(error, errors.ApiError) else 0.0
    match error:
        case errors.Expired():
            kind = Failure.EXPIRED
        case errors.TooLargeResourceVersion():
            kind = Failure.TOO_LARGE
        case errors.Throttled():
            kind = Failure.THROTTLED
        case errors.NotFound():
            kind = Failure.NOT_FOUND
        case errors.Forbidden() | errors.Unauthorized():
            kind = Failure.DENIED
        case errors.Unreachable():
            kind = Failure.LOST
        case errors.ServerError():
            kind = Failure.SERVER
        case _:
            kind = Failure.OTHER
    return Failed(kind, wait)


def _shown(line: bytes) -> str:
    return line[:SHOWN_CHARS].decode(errors="replace")
