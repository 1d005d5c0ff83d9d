"""Faults that a person or a test asks of the simulated node, as text in an annotation.

node.py parses the annotation of each pod and Node it sees; `isthmus sandbox fault` and tests write it. The
text is a comma-separated list of `kind[:duration][#tag]`. A fault that happens once (ONCE) happens when its
item is first seen, so asking for another restart takes another tag. Pure.
"""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

ANNOTATION: Final = "sandbox.isthmus.dev/fault"


class Kind(enum.StrEnum):
    """What can go wrong. The duration means something else in each; see DEFAULT_S."""

    NEVER_READY = "never-ready"
    SLOW = "slow"
    UNREADY = "unready"
    RESTART = "restart"
    CRASHLOOP = "crashloop"
    FAIL = "fail"
    EVICT = "evict"
    NODE_LOST = "node-lost"
    HANG_TERMINATION = "hang-termination"


ONCE: Final = frozenset({Kind.RESTART, Kind.FAIL, Kind.EVICT, Kind.NODE_LOST})
"""What happens once per item of a pod's annotation; the others hold as long as the item stays. On a Node,
node-lost holds as well."""

DEFAULT_S: Final[dict[Kind, float]] = {
    Kind.SLOW: 10.0,  # from Running to Ready
    Kind.RESTART: 1.0,  # from the container's end to Ready again
    Kind.CRASHLOOP: 1.0,  # the first back-off; doubled up to 60 s
    Kind.HANG_TERMINATION: 30.0,  # how much longer a deleted pod stays
}

HELP: Final[dict[Kind, str]] = {
    Kind.NEVER_READY: "Running, but never Ready",
    Kind.SLOW: "Ready only DURATION after Running (10s)",
    Kind.UNREADY: "a Ready pod becomes unready, until the fault is taken back",
    Kind.RESTART: "the first container ends once and is Ready again after DURATION (1s)",
    Kind.CRASHLOOP: "the first container ends again and again, first back-off DURATION (1s)",
    Kind.FAIL: "the pod's phase becomes Failed",
    Kind.EVICT: "the pod is evicted: Failed, reason Evicted",
    Kind.NODE_LOST: "the pod's node no longer reports: its pods become unready and do not end",
    Kind.HANG_TERMINATION: "a deleted pod stays Terminating for DURATION (30s)",
}

_ITEM: Final = re.compile(r"(?P<kind>[a-z-]+)(:(?P<duration>[0-9a-z.]+))?(#(?P<tag>[-\w.]+))?")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Fault(msgspec.Struct, frozen=True):
    """One item. `seconds` has the kind's default where none was given; `tag` only makes items differ."""

    kind: Kind
    seconds: float = 0.0
    tag: str = ""


def parse(text: str) -> tuple[Fault, ...]:
    """The faults that an annotation asks for, in its order; none for empty text or `none`.

    Raises ValueError that names the item at fault.
    """
    items = [item.strip() for item in text.split(",")]
    return tuple(_parse_item(item) for item in items if item and item != "none")


def parse_duration(text: str) -> float:
    """Seconds of a duration as Go writes it: `500ms`, `5s`, `1m30s`. Raises ValueError."""
    if not text or "".join(f"{number}{unit}" for number, unit in _PART.findall(text)) != text:
        raise ValueError(f"{text!r} is not a duration like 500ms, 5s or 1m30s")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def fresh(before: tuple[Fault, ...], after: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The once-only faults in `after` that were not in `before`."""
    return tuple(fault for fault in after if fault.kind in ONCE and fault not in before)


def seconds_of(faults: tuple[Fault, ...], kind: Kind) -> float:
    """The duration of the first fault of a kind; 0 where there is none."""
    return next((fault.seconds for fault in faults if fault.kind is kind), 0.0)


def has(faults: tuple[Fault, ...], *kinds: Kind) -> bool:
    """Whether any of the kinds is asked for."""
    return any(fault.kind in kinds for fault in faults)


def extend(text: str, item: str) -> str:
    """The annotation `text` with one more fault, tagged so that it differs from those there.

    Raises ValueError where either cannot be parsed; a broken annotation should be seen, not replaced.
    """
    present, (wanted,) = parse(text), parse(item)
    if wanted in present and wanted.kind in ONCE:
        number = 2
        while msgspec.structs.replace(wanted, tag=str(number)) in present:
            number += 1
        item = f"{item.partition('#')[0]}#{number}"
    elif wanted in present:
        return text
    return f"{text},{item}" if present else item


def _parse_item(item: str) -> Fault:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise ValueError(f"{item!r} is not a fault: KIND, KIND:DURATION or KIND:DURATION#TAG")
    try:
        kind = Kind(match["kind"])
    except ValueError:
        raise ValueError(f"{match['kind']!r} is not a fault; there are {', '.join(Kind)}") from None
    if match["duration"] and kind not in DEFAULT_S:
        raise ValueError(f"{kind} takes no duration, got {match['duration']!r}")
    seconds = parse_duration(match["duration"]) if match["duration"] else DEFAULT_S.get(kind, 0.0)
    return Fault(kind, seconds, match["tag"] or "")
