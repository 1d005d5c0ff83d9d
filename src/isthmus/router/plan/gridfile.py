"""Upstream's configuration file of the global router: JSON in, a Grid out, or what is wrong (GR-5 to GR-10).

options.py reads it once at the start. Every key, alias and check is upstream's, so that a file which exists
works unchanged; errors name the key. `mode: disagg` has a grid for prefill and one for decode: an HTTP
router sends whole requests, so the prefill grid chooses the pool (docs/router-policies.md). An item of a
list of Dynamo namespaces may also be a pool, as `cluster/namespace/name`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from isthmus.errors import UserError

AGG, DISAGG = "agg", "disagg"
MAX_POOLS: Final = 256
MAX_RESOLUTION: Final = 1000


class Axis(msgspec.Struct, frozen=True, gc=False):
    """One axis of a grid: `resolution` buckets of equal width from `low` to `high`."""

    name: str
    low: float
    high: float
    resolution: int


class Override(msgspec.Struct, frozen=True, gc=False):
    """Requests of these priorities go to this pool, whatever the grid says. Both bounds belong to it."""

    low: int
    high: int
    target: int


class Grid(msgspec.Struct, frozen=True, gc=False):
    """A checked grid. `mapping` has the pool's index for the buckets of the axes, the last one running
    fastest; `pools` are what selects each index's pool; a lower priority is a faster pool."""

    mode: str
    pools: tuple[str, ...]
    priorities: tuple[int, ...]
    axes: tuple[Axis, ...]
    mapping: tuple[int, ...]
    overrides: tuple[Override, ...] = ()
    retry: bool = False


class Read(msgspec.Struct, frozen=True, gc=False):
    """A file's grid for whole requests, the decode grid of mode disagg, and warnings about old keys."""

    grid: Grid
    decode: Grid | None = None
    warnings: tuple[str, ...] = ()


class BadGrid(UserError):
    """The file cannot be used; the text names the key."""


_KINDS: Final = {
    "prefill": (("isl", "isl_min", "isl_max"), ("ttft", "ttft_min_ms", "ttft_max_ms")),
    "decode": (
        ("context_length", "context_length_min", "context_length_max"),
        ("itl", "itl_min_ms", "itl_max_ms"),
    ),
    "agg": (("ttft", "ttft_min_ms", "ttft_max_ms"), ("itl", "itl_min_ms", "itl_max_ms")),
}
_ISL: Final = ("isl", "isl_min", "isl_max")


def read(data: bytes) -> Read:
    """The grids of a file. Raises BadGrid."""
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise BadGrid(f"the file is not JSON: {problem}") from None
    if not isinstance(raw, dict):
        raise BadGrid("the file must hold one JSON object")
    mode = raw.get("mode", DISAGG)
    if mode not in (AGG, DISAGG):
        raise BadGrid(f"mode: must be {AGG!r} or {DISAGG!r}, got {mode!r}")
    retry = raw.get("enable_priority_retry", False)
    if not isinstance(retry, bool):
        raise BadGrid("enable_priority_retry: must be true or false")
    warnings: list[str] = []
    if mode == AGG:
        return Read(_grid("agg", raw, retry, warnings), None, tuple(warnings))
    prefill = _grid("prefill", raw, retry, warnings)
    return Read(prefill, _grid("decode", raw, retry, warnings), tuple(warnings))


def _grid(kind: str, raw: Mapping[str, Any], retry: bool, warnings: list[str]) -> Grid:
    pools = _pools(kind, raw)
    where = f"{kind}_pool_selection_strategy"
    strategy = raw.get(where)
    if not isinstance(strategy, dict):
        raise BadGrid(f"{where}: is required, and must be an object")
    names: tuple[tuple[str, str, str], ...] = _KINDS[kind]
    isl = [key for key in (*_ISL[1:], "isl_resolution") if key in strategy]
    if kind == "agg" and isl:
        if len(isl) != 3:
            raise BadGrid(f"{where}: isl_min, isl_max and isl_resolution go together")
        names = (_ISL, *names)
    axes = tuple(_axis(where, strategy, name, warnings) for name in names)
    mapping = tuple(
        _mapping(f"{where}.{kind}_pool_mapping", strategy.get(f"{kind}_pool_mapping"), axes, len(pools))
    )
    return Grid(
        mode=kind,
        pools=pools,
        priorities=_priorities(kind, raw, len(pools)),
        axes=axes,
        mapping=mapping,
        overrides=tuple(_overrides(where, strategy, len(pools))),
        retry=retry,
    )


def _pools(kind: str, raw: Mapping[str, Any]) -> tuple[str, ...]:
    key = f"{kind}_pool_dynamo_namespaces"
    names = raw.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise BadGrid(f"{key}: is required, and must be a list of texts")
    count = _integer(f"num_{kind}_pools", raw.get(f"num_{kind}_pools"))
    if not 1 <= count <= MAX_POOLS:
        raise BadGrid(f"num_{kind}_pools: must be from 1 to {MAX_POOLS}, got {count}")
    if count != len(names):
        raise BadGrid(f"{key}: has {len(names)} items, num_{kind}_pools is {count}")
    return tuple(names)


def _priorities(kind: str, raw: Mapping[str, Any], count: int) -> tuple[int, ...]:
    key = f"{kind}_pool_priorities"
    found = raw.get(key)
    if found is None:
        return tuple(range(count))
    if not isinstance(found, list) or len(found) != count:
        raise BadGrid(f"{key}: must be a list of {count} integers, one for each pool")
    return tuple(_integer(f"{key}[{index}]", value) for index, value in enumerate(found))


def _axis(where: str, strategy: Mapping[str, Any], name: tuple[str, str, str], warnings: list[str]) -> Axis:
    axis, low_key, high_key = name
    low = _number(where, strategy, low_key, warnings)
    high = _number(where, strategy, high_key, warnings)
    key = f"{axis}_resolution"
    resolution = _integer(f"{where}.{key}", strategy.get(key))
    if not 1 <= resolution <= MAX_RESOLUTION:
        raise BadGrid(f"{where}.{key}: must be from 1 to {MAX_RESOLUTION}, got {resolution}")
    if not low < low + (high - low) / resolution:
        raise BadGrid(f"{where}.{low_key}: must be below {high_key}, got {low:g} and {high:g}")
    return Axis(axis, low, high, resolution)


def _number(where: str, strategy: Mapping[str, Any], key: str, warnings: list[str]) -> float:
    old = key.removesuffix("_ms")
    if old != key and old in strategy:
        warnings.append(f"{where}.{old} is deprecated: use {key}")
    value = strategy.get(key, strategy.get(old))
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise BadGrid(f"{where}.{key}: is required, and must be a number")
    return float(value)


def _mapping(path: str, rows: Any, axes: tuple[Axis, ...], pools: int) -> Iterator[int]:
    if not axes:
        index = _integer(path, rows)
        if not 0 <= index < pools:
            raise BadGrid(f"{path}: must be from 0 to {pools - 1}, got {index}")
        yield index
        return
    if not isinstance(rows, list) or len(rows) != axes[0].resolution:
        raise BadGrid(
            f"{path}: must be a list of {axes[0].resolution} items, one for each {axes[0].name} bucket"
        )
    for number, row in enumerate(rows):
        yield from _mapping(f"{path}[{number}]", row, axes[1:], pools)


def _overrides(where: str, strategy: Mapping[str, Any], pools: int) -> Iterator[Override]:
    found = strategy.get("priority_overrides", [])
    if not isinstance(found, list):
        raise BadGrid(f"{where}.priority_overrides: must be a list")
    for index, each in enumerate(found):
        path = f"{where}.priority_overrides[{index}]"
        keys = {"min_priority", "max_priority", "target_pool"}
        if not isinstance(each, dict) or set(each) != keys:
            raise BadGrid(f"{path}: must have exactly the keys {', '.join(sorted(keys))}")
        override = Override(
            *(_integer(f"{path}.{key}", each[key]) for key in ("min_priority", "max_priority", "target_pool"))
        )
        if override.low > override.high:
            raise BadGrid(f"{path}.min_priority: must not be above max_priority")
        if not 0 <= override.target < pools:
            raise BadGrid(f"{path}.target_pool: must be from 0 to {pools - 1}, got {override.target}")
        yield override


def _integer(path: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadGrid(f"{path}: is required, and must be an integer")
    return value
