"""Which pool of a grid a request belongs to, and which others may be tried after it (GR-11 to GR-16).

selector.py calls `choose` with the indexes of the pools in mind, and maps them to pools that are there.
Nothing here knows whether a pool can be used.
"""

from __future__ import annotations

from typing import NamedTuple

from isthmus.router.plan.gridfile import Axis, Grid
from isthmus.router.plan.model import RequestFacts


class Defaults(NamedTuple):
    """Targets of requests that have none, in milliseconds; None: the middle of the axis (GR-14)."""

    ttft_ms: float | None = None
    itl_ms: float | None = None


def bucket(axis: Axis, value: float) -> int:
    """The index on an axis (GR-11): a value at or beyond an end falls into the last bucket there."""
    step = (axis.high - axis.low) / axis.resolution
    return int(min(max((value - axis.low) / step, 0.0), axis.resolution - 1))


def choose(grid: Grid, facts: RequestFacts, defaults: Defaults) -> int:
    """The index of the pool: the first override that has the request's priority, else the grid's."""
    if facts.priority is not None:
        for override in grid.overrides:
            if override.low <= facts.priority <= override.high:
                return override.target
    index = 0
    for axis in grid.axes:
        index = index * axis.resolution + bucket(axis, _value(axis, facts, defaults))
    return grid.mapping[index]


def retry_order(grid: Grid, selected: int) -> tuple[int, ...]:
    """The selected pool, and with retries on those that are faster, the slowest of them first (GR-16)."""
    if not grid.retry:
        return (selected,)
    faster = [index for index, priority in enumerate(grid.priorities) if priority < grid.priorities[selected]]
    return (selected, *sorted(faster, key=lambda index: (-grid.priorities[index], index)))


def _value(axis: Axis, facts: RequestFacts, defaults: Defaults) -> float:
    if axis.name in ("isl", "context_length"):
        return float(facts.prompt_tokens)
    own, default = (
        (facts.ttft_target_ms, defaults.ttft_ms)
        if axis.name == "ttft"
        else (facts.itl_target_ms, defaults.itl_ms)
    )
    if own is not None:
        return own
    return default if default is not None else (axis.low + axis.high) / 2
