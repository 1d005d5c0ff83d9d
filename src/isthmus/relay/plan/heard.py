"""What a frontend has said so far, after each answer and each failure; and counts that never go down.

prober.py keeps one Heard per frontend. One failure changes nothing, since the endpoint still says that it is
ready; after the second the frontend lists no models until it answers again. Counts of frontends that restart
or leave stay in the Totals (RL-11). Pure: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from isthmus.relay.plan.model import Card, Heard, Sample, Totals

TOLERATED: Final = 1
"""Failures in a row after which a frontend still lists what it did."""
_COUNTS: Final = ("started", "completed", "failed", "input_tokens", "output_tokens")


def answered(heard: Heard, cards: tuple[Card, ...]) -> Heard:
    """It has listed its models."""
    return replace(heard, cards=cards, asked=True, failures=0, problem="")


def failed(heard: Heard, problem: str) -> Heard:
    """It has not, for this reason."""
    failures = heard.failures + 1
    cards = heard.cards if failures <= TOLERATED else None
    return replace(heard, cards=cards, asked=True, failures=failures, problem=problem)


def sampled(heard: Heard, load: Mapping[str, Sample], at: float) -> Heard:
    """It has said how many requests it has, at this monotonic time. A count that is missing for once is what
    it was."""
    before = heard.load or {}
    kept = {
        model: _filled(before[model], sample) if model in before else sample for model, sample in load.items()
    }
    return replace(heard, load=kept, load_at=at)


def _filled(before: Sample, now: Sample) -> Sample:
    missing = {name: getattr(before, name) for name in _COUNTS if getattr(now, name) is None}
    return replace(now, **missing)


def added(
    totals: Mapping[str, Totals], before: Mapping[str, Sample] | None, now: Mapping[str, Sample]
) -> dict[str, Totals]:
    """The totals by model once one frontend's sample `now` has followed `before`: they grow by what was
    counted since, or by all of it where the frontend began anew (its counts went down) or is new."""
    found = dict(totals)
    for model, sample in now.items():
        last = (before or {}).get(model, Sample())
        old = found.get(model, Totals())
        grown = {name: getattr(old, name) + _growth(last, sample, name) for name in _COUNTS}
        found[model] = Totals(**grown)
    return found


def _growth(last: Sample, sample: Sample, name: str) -> int:
    now = _count(sample, name)
    before = _count(last, name)
    return now if now < before else now - before


def _count(sample: Sample, name: str) -> int:
    """A count as it was said; who does not say what was started has started what ended."""
    value: int | None = getattr(sample, name)
    if value is None and name == "started":
        return (sample.completed or 0) + (sample.failed or 0)
    return value or 0
