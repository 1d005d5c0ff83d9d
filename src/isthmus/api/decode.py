"""What a decoder does to a field after msgspec has read it: copy raw JSON out of the input, cut long text.

A `msgspec.Raw` read from a list page is a view that keeps the whole page alive, and a kubelet's message can
be pages long. The kinds of this room call these from `__post_init__`, before anyone else holds the object;
this module is therefore the only one that sets an attribute of a frozen struct. No I/O, no logging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    OptionalRaw = msgspec.Raw | None
else:
    # msgspec reads a union of Raw and None as None alone; null is made None by own_raw instead.
    OptionalRaw = msgspec.Raw

_NULL: Final = msgspec.Raw(b"null")

MESSAGE_LIMIT: Final = 1024
"""Characters of a kubelet's or controller's message that are kept: what fits into an event's note."""


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
