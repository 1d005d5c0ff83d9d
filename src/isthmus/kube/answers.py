"""What an API server answered, made into values or into the one error class that fits.

transport.py hands over status, headers and body; client.py and watch.py get pages, `Written` or exceptions.
Decoders are made once per type and read only the fields that the type names; everything else is skipped in
the bytes. An object in a list that does not fit its type must not hide the others: it is left out, and named.
No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from functools import cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from isthmus.api.meta import Object
from isthmus.kube import errors

T = TypeVar("T", bound=Object)

MAX_TEXT_BYTES: Final = 1000


class Written(msgspec.Struct, frozen=True, gc=False):
    """What a write's answer says of the object that is now stored."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Undecodable(msgspec.Struct, frozen=True):
    """An object that does not fit the type it should be decoded into."""

    namespace: str
    name: str
    error: str


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a list. `continue_` is the token of the next one, "" on the last. `undecodable`: objects
    that are left out of `items`."""

    items: list[T]
    resource_version: str
    continue_: str = ""
    undecodable: tuple[Undecodable, ...] = ()


class Cause(msgspec.Struct, gc=False):
    """Status.details.causes[]."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: list[Cause] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct):
    """metav1.Status, as the body of an error, or inside or instead of a watch event."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    resource_version: str = ""
    continue_: str = ""


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _RawList(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Meta(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Named(msgspec.Struct, gc=False):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_status_decoder: Final = msgspec.json.Decoder(Status)
_named_decoder: Final = msgspec.json.Decoder(_Named)
_raw_list_decoder: Final = msgspec.json.Decoder(_RawList)


@cache
def object_decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of one object of `type_`."""
    return cast("msgspec.json.Decoder[T]", msgspec.json.Decoder(type_))


@cache
def _list_decoder(type_: type[Any]) -> msgspec.json.Decoder[_List[Any]]:
    return msgspec.json.Decoder(cast(Any, _List)[type_])


def read_object(body: bytes, type_: type[T], what: str) -> T:
    """Raises WrongAnswer where the body is not one."""
    try:
        return cast(T, object_decoder(type_).decode(body))
    except msgspec.DecodeError as error:
        raise errors.WrongAnswer(f"{what}: {error}") from error


def read_written(body: bytes, what: str) -> Written:
    """Raises WrongAnswer where the body has no named object."""
    try:
        meta = _named_decoder.decode(body).metadata
    except msgspec.DecodeError as error:
        raise errors.WrongAnswer(f"{what}: {error}") from error
    if not meta.name:
        raise errors.WrongAnswer(f"{what}: the answer names no object")
    return Written(meta.name, meta.namespace, meta.uid, meta.resource_version)


def read_page(body: bytes, type_: type[T], what: str) -> Page[T]:
    """Raises WrongAnswer where the body is not a list; single objects that do not fit are left out."""
    try:
        content = cast(_List[T], _list_decoder(type_).decode(body))
    except msgspec.ValidationError:
        return _read_page_singly(body, type_, what)
    except msgspec.DecodeError as error:
        raise errors.WrongAnswer(f"{what}: {error}") from error
    meta = content.metadata
    return Page(items=content.items or [], resource_version=meta.resource_version, continue_=meta.continue_)


def _read_page_singly(body: bytes, type_: type[T], what: str) -> Page[T]:
    try:
        content = _raw_list_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise errors.WrongAnswer(f"{what}: {error}") from error
    decode = object_decoder(type_).decode
    items: list[T] = []
    undecodable: list[Undecodable] = []
    for raw_item in content.items or ():
        try:
            items.append(decode(raw_item))
        except msgspec.DecodeError as error:
            undecodable.append(name_undecodable(bytes(raw_item), error))
    meta = content.metadata
    return Page(
        items=items,
        resource_version=meta.resource_version,
        continue_=meta.continue_,
        undecodable=tuple(undecodable),
    )


def name_undecodable(body: bytes, error: msgspec.DecodeError) -> Undecodable:
    """Which object it is that `error` is about, as far as it can be read."""
    meta = try_named(body)
    return Undecodable(meta.namespace, meta.name, str(error)) if meta else Undecodable("", "", str(error))


def try_named(body: bytes) -> Written | None:
    """Name and version of the object in `body`, or None where not even those can be read."""
    try:
        meta = _named_decoder.decode(body).metadata
    except msgspec.DecodeError:
        return None
    return Written(meta.name, meta.namespace, meta.uid, meta.resource_version)


def read_status(body: bytes) -> Status | None:
    """The Status in `body`, or None where it is something else."""
    try:
        status = _status_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return status if status.kind == "Status" else None


def error_from(
    code: int, body: bytes, what: str, *, headers: Mapping[str, str] | None = None, now: float = 0.0
) -> errors.ApiError:
    """The exception for an answer of 400 or above. `now` is wall time, for a Retry-After that is a date."""
    status = read_status(body) or Status(code=code, message=_text(body))
    wait = parse_retry_after((headers or {}).get("Retry-After", ""), now)
    return error_from_status(status, what, code=code, retry_after_s=wait)


def error_from_status(
    status: Status, what: str, *, code: int = 0, retry_after_s: float | None = None
) -> errors.ApiError:
    """The exception for a Status. `code` is the HTTP one, where the Status came as a body."""
    code = code or status.code or 500
    details = status.details
    causes = tuple((c.field, c.reason, c.message) for c in (details.causes or ())) if details else ()
    if retry_after_s is None and details and details.retry_after_seconds:
        retry_after_s = float(details.retry_after_seconds)
    kind = _kind(code, status, causes)
    return kind(code, status.reason, status.message, what=what, retry_after_s=retry_after_s, causes=causes)


_KINDS: Final[dict[int, type[errors.ApiError]]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Expired,
    422: errors.Invalid,
    429: errors.Throttled,
}


def _kind(code: int, status: Status, causes: tuple[tuple[str, str, str], ...]) -> type[errors.ApiError]:
    if any(reason == "ResourceVersionTooLarge" for _, reason, _ in causes) or (
        code in (400, 504) and "Too large resource version" in status.message
    ):
        return errors.TooLargeResourceVersion
    if status.reason in ("Expired", "Gone"):
        return errors.Expired
    if code == 409 and status.reason == "AlreadyExists":
        return errors.AlreadyExists
    return _KINDS.get(code, errors.ServerError if code >= 500 else errors.ApiError)


def parse_retry_after(value: str, now: float) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as an HTTP date; None for neither."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)
    if not value:
        return None
    from email.utils import parsedate_to_datetime  # 1 MB that hardly any process needs

    try:
        when = parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, when.timestamp() - now)


def _text(body: bytes) -> str:
    return body[:MAX_TEXT_BYTES].decode(errors="replace").strip()
