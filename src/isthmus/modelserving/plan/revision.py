"""Names for templates: what of a role counts as its template, and the short hash that stands for it in
labels.

Called by desired.py. Two templates with the same meaning must get the same name, else pods that need no
change would be replaced; different ones must get different names. Upstream hashes a dump of Go structs, which
cannot be reproduced from JSON; any stable hash in the same alphabet is compatible on the wire (MS-34), and
revisions that upstream's controller left behind are recognised by what they hold (`same_meaning`, MS-440),
not by their name.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_IGNORED = ("replicas", "maxUnavailable", "partition")


def encode_hash(number: int) -> str:
    """A 32-bit number in the alphabet that Kubernetes uses for hashes in names: each decimal digit becomes
    one character, so 413076405 is `8574cb849` (MS-34)."""
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


def hash_of(canonical: bytes, collision: int = 0) -> str:
    """The name for a canonical form: 32 bits of its SHA-256. `collision` counts up where the name already
    stands for something else (MS-440)."""
    salt = b"" if collision == 0 else b"\x00%d" % collision
    return encode_hash(int.from_bytes(hashlib.sha256(canonical + salt).digest()[:4], "big"))


def template_of(raw_role: dict[str, Any]) -> dict[str, Any]:
    """A role without what may change without changing its pods: replicas, maxUnavailable, partition
    (MS-33)."""
    return {key: value for key, value in raw_role.items() if key not in _IGNORED}


def canonical(raw: Any) -> bytes:
    """JSON with sorted keys and without nulls: equal for equal templates, however they were written."""
    return msgspec.json.encode(_without(raw, empty=False), order="sorted")


def meaning(raw: Any) -> bytes:
    """Like `canonical`, but also without empty maps and lists, which Go writes where nothing was given.

    Only for recognising revisions written by upstream's controller; for naming it would be too coarse, since
    a few fields (a label selector, for one) mean one thing when empty and another when absent.
    """
    return msgspec.json.encode(_without(raw, empty=True), order="sorted")


def _without(raw: Any, *, empty: bool) -> Any:
    if isinstance(raw, dict):
        kept = {key: _without(value, empty=empty) for key, value in raw.items() if value is not None}
        return {key: value for key, value in kept.items() if value not in ({}, [])} if empty else kept
    if isinstance(raw, list):
        return [_without(value, empty=empty) for value in raw]
    return raw
