"""What a decoder does to a field after msgspec has read it: copy raw JSON out of the input, cut long text.

A `msgspec.Raw` read from a list page is a view that keeps the whole page alive, and a kubelet's message can
be pages long. The kinds of this room call these from `__post_init__`, before anyone else holds the object;
this module is therefore the only one that sets an attribute of a frozen struct. No I/O, no logging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import force_setattr

from isthmus.api.meta import Frozen

if TYPE_CHECKING:
    OptionalRaw = msgspec.Raw | None
else:
    # msgspec reads a union of Raw and None as None alone; null is made None by own_raw instead.
    OptionalRaw = msgspec.Raw

_NULL: Final = msgspec.Raw(b"null")

T = TypeVar("T")

MESSAGE_LIMIT: Final = 1024
"""Characters of a kubelet's or controller's message that are kept: what fits into an event's note."""


class Unreadable(Frozen, frozen=True, kw_only=True):
    """Stands where a spec should, of an object that got past the CRD's schema. `reason` is for people."""

    reason: str


def own_raw(struct: msgspec.Struct, *fields: str) -> None:
    """Replace each named field that holds a `msgspec.Raw` view by a copy, so that the input can be freed.

    JSON null becomes None.
    """
    for field in fields:
        value = getattr(struct, field)
        if isinstance(value, msgspec.Raw):
            force_setattr(struct, field, None if value == _NULL else value.copy())


def cut_text(struct: msgspec.Struct, *fields: str) -> None:
    """Cut each named text field to MESSAGE_LIMIT characters; the last one kept is then an ellipsis."""
    for field in fields:
        value: str = getattr(struct, field)
        if len(value) > MESSAGE_LIMIT:
            force_setattr(struct, field, value[: MESSAGE_LIMIT - 1] + "…")


def settle(struct: msgspec.Struct, field: str, value: object) -> None:
    """Put the decoded value of a field in place of the raw one that the wire gave."""
    force_setattr(struct, field, value)


def settle_parts(
    struct: msgspec.Struct, spec: msgspec.json.Decoder[Any], status: msgspec.json.Decoder[Any], empty: object
) -> None:
    """Decode `spec` and `status` of an object each by itself, so that a failure stays inside this object and
    does not end the decoding of a whole list page.

    A spec that does not fit becomes Unreadable; a status that does not becomes `empty`, since the controller
    writes it anew. Neither keeps a reference to the input.
    """
    raw_spec: object = getattr(struct, "spec")  # noqa: B009 - not a field of every Struct
    if isinstance(raw_spec, msgspec.Raw):
        settle(struct, "spec", read_spec(spec, raw_spec))
    raw_status: object = getattr(struct, "status")  # noqa: B009
    if isinstance(raw_status, msgspec.Raw):
        settle(struct, "status", read_status(status, raw_status, empty))


def read_spec(decoder: msgspec.json.Decoder[T], raw_spec: msgspec.Raw | bytes) -> T | Unreadable:
    """The spec in this JSON, or why it is none. Never raises."""
    try:
        return decoder.decode(raw_spec)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        text = str(error)
        return Unreadable(reason=text.replace("$", "spec", 1) if "$" in text else f"{text} - at `spec`")


def read_status(decoder: msgspec.json.Decoder[T], raw_status: msgspec.Raw | bytes, empty: T) -> T:
    """The status in this JSON; `empty` where it does not fit."""
    try:
        return decoder.decode(raw_status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return empty
