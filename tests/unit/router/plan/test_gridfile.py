"""Upstream's configuration file: what is read, and every way in which one is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.router.plan.gridfile import MAX_POOLS, MAX_RESOLUTION, BadGrid, read
from tests.support.poolfacts import agg, disagg

STRATEGY = "agg_pool_selection_strategy"
OVERRIDE = {"min_priority": 1, "max_priority": 2, "target_pool": 0}


def refused(raw: Any) -> str:
    with pytest.raises(BadGrid) as caught:
        read(json.dumps(raw).encode())
    return str(caught.value)


@pytest.mark.covers("GR-5", "GR-6")
def test_file_without_a_mode_must_be_disagg_with_both_grids() -> None:
    found = read(json.dumps(disagg()).encode())
    assert found.grid.mode == "prefill"
    assert found.grid.pools == ("p0", "p1", "p2")
    assert [axis.name for axis in found.grid.axes] == ["isl", "ttft"]
    assert found.grid.mapping == (0, 1, 1, 2)
    assert found.decode is not None
    assert found.decode.pools == ("d0", "d1")
    assert [axis.name for axis in found.decode.axes] == ["context_length", "itl"]
    assert not found.grid.retry
    assert found.warnings == ()


@pytest.mark.covers("GR-7", "GR-10")
def test_agg_file_must_have_one_grid_and_default_priorities() -> None:
    found = read(json.dumps(agg()).encode())
    assert found.decode is None
    assert [axis.name for axis in found.grid.axes] == ["ttft", "itl"]
    assert found.grid.priorities == (0, 1)
    assert read(json.dumps(agg(agg_pool_priorities=[3, 3])).encode()).grid.priorities == (3, 3)


@pytest.mark.covers("GR-8", "D-3")
def test_old_keys_must_be_taken_with_a_warning() -> None:
    old = {"ttft_min_ms": None, "ttft_max_ms": None, "ttft_min": 10, "ttft_max": 20}
    found = read(json.dumps(agg(strategy=old)).encode())
    assert (found.grid.axes[0].low, found.grid.axes[0].high) == (10, 20)
    assert found.warnings == (
        f"{STRATEGY}.ttft_min is deprecated: use ttft_min_ms",
        f"{STRATEGY}.ttft_max is deprecated: use ttft_max_ms",
    )


@pytest.mark.covers("GR-8", "D-3")
def test_key_in_milliseconds_must_win_over_the_old_one() -> None:
    found = read(json.dumps(agg(strategy={"itl_max": 7, "itl_min": 5})).encode())
    assert (found.grid.axes[1].low, found.grid.axes[1].high) == (0, 100)
    assert len(found.warnings) == 2


@pytest.mark.covers("GR-9")
def test_override_must_be_read() -> None:
    found = read(json.dumps(agg(strategy={"priority_overrides": [OVERRIDE]})).encode())
    assert [(each.low, each.high, each.target) for each in found.grid.overrides] == [(1, 2, 0)]


@pytest.mark.covers("GR-5")
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_what_is_no_object_must_be_refused(data: bytes) -> None:
    with pytest.raises(BadGrid, match="the file"):
        read(data)


BAD_TOP: list[tuple[str, Any]] = [
    ("mode", "both"),
    ("mode", ["agg"]),
    ("enable_priority_retry", 1),
    ("enable_priority_retry", "true"),
    ("num_agg_pools", None),
    ("num_agg_pools", True),
    ("num_agg_pools", 2.0),
    ("num_agg_pools", 0),
    ("num_agg_pools", MAX_POOLS + 1),
    ("agg_pool_dynamo_namespaces", None),
    ("agg_pool_dynamo_namespaces", "a"),
    ("agg_pool_dynamo_namespaces", ["a"]),
    ("agg_pool_dynamo_namespaces", ["a", ""]),
    ("agg_pool_dynamo_namespaces", ["a", 3]),
    ("agg_pool_dynamo_namespaces", ["a", "b", "c"]),
    ("agg_pool_priorities", [1]),
    ("agg_pool_priorities", [1, 2, 3]),
    ("agg_pool_priorities", 1),
    (STRATEGY, None),
    (STRATEGY, []),
]


@pytest.mark.covers("GR-5", "GR-10", "D-2")
@pytest.mark.parametrize(("key", "value"), BAD_TOP)
def test_bad_key_must_be_refused_by_name(key: str, value: Any) -> None:
    assert refused(agg(**{key: value})).startswith(f"{key}:")


@pytest.mark.covers("GR-10", "D-2")
@pytest.mark.parametrize("value", [True, 1.5, "1", None])
def test_priority_that_is_no_integer_must_be_refused(value: Any) -> None:
    assert refused(agg(agg_pool_priorities=[0, value])).startswith("agg_pool_priorities[1]:")


BAD_STRATEGY: list[tuple[str, dict[str, Any]]] = [
    ("ttft_min_ms", {"ttft_min_ms": 1000}),
    ("ttft_min_ms", {"ttft_min_ms": 1001}),
    ("ttft_min_ms", {"ttft_min_ms": 1e14, "ttft_max_ms": 1e14 + 0.015625}),
    ("ttft_min_ms", {"ttft_max_ms": 5e-324}),
    ("ttft_min_ms", {"ttft_min_ms": None}),
    ("ttft_min_ms", {"ttft_min_ms": False}),
    ("ttft_max_ms", {"ttft_max_ms": "9"}),
    ("itl_max_ms", {"itl_max_ms": 1e15}),
    ("ttft_resolution", {"ttft_resolution": 0}),
    ("ttft_resolution", {"ttft_resolution": -1}),
    ("ttft_resolution", {"ttft_resolution": True}),
    ("ttft_resolution", {"ttft_resolution": 2.0}),
    ("itl_resolution", {"itl_resolution": None}),
    ("itl_resolution", {"itl_resolution": MAX_RESOLUTION + 1}),
    ("agg_pool_mapping", {"agg_pool_mapping": None}),
    ("agg_pool_mapping", {"agg_pool_mapping": {"0": 1}}),
    ("agg_pool_mapping", {"agg_pool_mapping": [[0, 0]]}),
    ("agg_pool_mapping", {"agg_pool_mapping": [[0, 0], [0, 0], [0, 0]]}),
    ("agg_pool_mapping[1]", {"agg_pool_mapping": [[0, 0], [0]]}),
    ("agg_pool_mapping[1]", {"agg_pool_mapping": [[0, 0], 0]}),
    ("agg_pool_mapping[1][1]", {"agg_pool_mapping": [[0, 0], [0, 2]]}),
    ("agg_pool_mapping[0][0]", {"agg_pool_mapping": [[-1, 0], [0, 0]]}),
    ("agg_pool_mapping[0][1]", {"agg_pool_mapping": [[0, True], [0, 0]]}),
    ("priority_overrides", {"priority_overrides": {}}),
    ("priority_overrides[0]", {"priority_overrides": [5]}),
    ("priority_overrides[0]", {"priority_overrides": [{**OVERRIDE, "more": 1}]}),
    ("priority_overrides[0]", {"priority_overrides": [{"min_priority": 1, "target_pool": 0}]}),
    (
        "priority_overrides[1].min_priority",
        {"priority_overrides": [OVERRIDE, {**OVERRIDE, "min_priority": 3}]},
    ),
    ("priority_overrides[0].max_priority", {"priority_overrides": [{**OVERRIDE, "max_priority": True}]}),
    ("priority_overrides[0].target_pool", {"priority_overrides": [{**OVERRIDE, "target_pool": 2}]}),
    ("priority_overrides[0].target_pool", {"priority_overrides": [{**OVERRIDE, "target_pool": -1}]}),
]


@pytest.mark.covers("GR-9", "GR-10", "D-2")
@pytest.mark.parametrize(("key", "strategy"), BAD_STRATEGY)
def test_bad_strategy_must_be_refused_by_name(key: str, strategy: dict[str, Any]) -> None:
    assert refused(agg(strategy=strategy)).startswith(f"{STRATEGY}.{key}:")


@pytest.mark.covers("GR-10")
def test_bounds_of_checks_must_be_taken() -> None:
    highest = {"priority_overrides": [{"min_priority": 2, "max_priority": 2, "target_pool": 1}]}
    assert read(json.dumps(agg(strategy=highest)).encode()).grid.overrides[0].target == 1
    names = [f"n{index}" for index in range(MAX_POOLS)]
    many = agg(num_agg_pools=MAX_POOLS, agg_pool_dynamo_namespaces=names)
    assert len(read(json.dumps(many).encode()).grid.pools) == MAX_POOLS
    fine = {
        "ttft_resolution": 1,
        "itl_resolution": MAX_RESOLUTION,
        "agg_pool_mapping": [[0] * MAX_RESOLUTION],
    }
    assert len(read(json.dumps(agg(strategy=fine)).encode()).grid.mapping) == MAX_RESOLUTION


@pytest.mark.covers("GR-7", "D-2")
@pytest.mark.parametrize("left_out", ["isl_min", "isl_max", "isl_resolution"])
def test_two_of_the_three_keys_of_sizes_must_be_refused(left_out: str) -> None:
    isl = {"isl_min": 0, "isl_max": 10, "isl_resolution": 1}
    del isl[left_out]
    assert "go together" in refused(agg(strategy=isl))


@pytest.mark.covers("GR-6", "D-2")
@pytest.mark.parametrize("part", ["prefill", "decode"])
def test_disagg_file_must_have_both_parts_right(part: str) -> None:
    assert refused(disagg(**{f"num_{part}_pools": 9})).startswith(f"{part}_pool_dynamo_namespaces:")
    assert refused(disagg(**{f"{part}_pool_selection_strategy": None})).startswith(f"{part}_pool_selection")
