"""What a frontend answers, hostile bytes, -> the models that it lists (RL-9).

prober.py calls `read_models` with the body of GET /v1/models. A body that is no list of models is an
InvalidField; an entry that cannot be used is passed over, so that one odd name does not take a pool away.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from isthmus.api.pools import MAX_ITEMS, InvalidField, check_text
from isthmus.relay.plan.model import Card


class _List(msgspec.Struct, frozen=True):
    data: list[Any]


_decode: Final = msgspec.json.Decoder(_List)


def read_models(body: bytes) -> tuple[Card, ...]:
    """The models, sorted and each once; at most MAX_ITEMS. Raises InvalidField."""
    try:
        found = _decode.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise InvalidField("", f"is no list of models: {problem}"[:200]) from None
    cards: dict[str, Card] = {}
    for raw in found.data:
        name = raw.get("id") if isinstance(raw, dict) else None
        if isinstance(name, str) and _is_name(name):
            cards.setdefault(name, Card(name, _base(raw, name)))
    return tuple(sorted(cards.values())[:MAX_ITEMS])


def _base(raw: dict[str, Any], name: str) -> str:
    """The model that an adapter belongs to, as vLLM says it."""
    parent = raw.get("parent")
    return parent if isinstance(parent, str) and parent != name and _is_name(parent) else ""


def _is_name(text: str) -> bool:
    try:
        check_text("id", text)
    except (InvalidField, UnicodeError):
        return False
    return True
