"""Which pool of a grid a request belongs to, and the order of its retries."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.router.plan.grid import Defaults, bucket, choose, retry_order
from isthmus.router.plan.gridfile import Axis, read
from isthmus.router.plan.model import RequestFacts
from tests.support.poolfacts import agg, disagg, grid

OVERRIDES = [
    {"min_priority": 5, "max_priority": 10, "target_pool": 1},
    {"min_priority": 10, "max_priority": 20, "target_pool": 0},
]


def facts(**given: Any) -> RequestFacts:
    return RequestFacts("m", **given)


@pytest.mark.covers("GR-11", "GR-12", "D-1")
@pytest.mark.parametrize(
    ("value", "index"),
    [(249.9, 0), (250, 1), (1000, 3), (-5, 0), (99999, 3), (0, 0), (999.9, 3), (749.9, 2), (750, 3)],
)
def test_value_must_fall_into_its_bucket(value: float, index: int) -> None:
    assert bucket(Axis("ttft", 0, 1000, 4), value) == index


@pytest.mark.covers("GR-11")
def test_bucket_must_count_from_the_low_end() -> None:
    axis = Axis("ttft", -100, 100, 4)
    assert [bucket(axis, value) for value in (-101, -100, -51, -50, -1, 0, 50, 100)] == [
        0,
        0,
        0,
        1,
        1,
        2,
        3,
        3,
    ]


@pytest.mark.covers("D-1", "GR-6", "GR-13")
@pytest.mark.parametrize(
    ("tokens", "ttft", "pool"), [(0, 0, 0), (1999, 500, 1), (2000, 499, 1), (2000, 500, 2), (90000, 90000, 2)]
)
def test_prefill_grid_must_go_by_size_and_ttft(tokens: int, ttft: float, pool: int) -> None:
    found = choose(grid(disagg()), facts(prompt_tokens=tokens, ttft_target_ms=ttft), Defaults())
    assert found == pool


@pytest.mark.covers("D-1", "GR-6")
def test_decode_grid_must_go_by_context_length_and_itl() -> None:
    decode = read(json.dumps(disagg()).encode()).decode
    assert decode is not None
    assert [choose(decode, facts(prompt_tokens=n), Defaults()) for n in (1999, 2000)] == [0, 1]


@pytest.mark.covers("D-1", "GR-7")
@pytest.mark.parametrize(("ttft", "itl", "pool"), [(0, 0, 0), (0, 60, 1), (600, 0, 1), (600, 60, 0)])
def test_agg_grid_must_go_by_ttft_and_itl(ttft: float, itl: float, pool: int) -> None:
    chosen = grid(agg(strategy={"agg_pool_mapping": [[0, 1], [1, 0]]}))
    assert choose(chosen, facts(ttft_target_ms=ttft, itl_target_ms=itl), Defaults()) == pool


@pytest.mark.covers("D-1", "GR-7")
def test_agg_grid_with_sizes_must_go_by_size_first() -> None:
    isl = {"isl_min": 0, "isl_max": 100, "isl_resolution": 2}
    chosen = grid(agg(strategy={**isl, "agg_pool_mapping": [[[0, 0], [0, 0]], [[1, 1], [1, 0]]]}))
    assert [choose(chosen, facts(prompt_tokens=n), Defaults(0.0, 0.0)) for n in (49, 50)] == [0, 1]
    assert choose(chosen, facts(prompt_tokens=50, ttft_target_ms=500, itl_target_ms=50), Defaults()) == 0


@pytest.mark.covers("GR-14", "D-4")
@pytest.mark.parametrize(
    ("own", "default", "pool"),
    [(0.0, 900.0, 0), (900.0, 0.0, 1), (None, 100.0, 0), (None, 900.0, 1), (None, 0.0, 0), (None, None, 1)],
)
def test_target_must_be_the_requests_else_the_default_else_the_middle(
    own: float | None, default: float | None, pool: int
) -> None:
    assert choose(grid(agg()), facts(ttft_target_ms=own), Defaults(default, None)) == pool


@pytest.mark.covers("GR-14", "D-4")
def test_targets_must_not_be_mistaken_for_one_another() -> None:
    chosen = grid(agg(strategy={"agg_pool_mapping": [[0, 1], [0, 1]]}))
    assert choose(chosen, facts(ttft_target_ms=900, itl_target_ms=0), Defaults()) == 0
    assert choose(chosen, facts(), Defaults(900.0, 0.0)) == 0
    assert choose(chosen, facts(), Defaults(0.0, 90.0)) == 1


@pytest.mark.covers("GR-15", "D-5")
@pytest.mark.parametrize(
    ("priority", "pool"), [(4, 0), (5, 1), (10, 1), (11, 0), (20, 0), (21, 0), (None, 0), (7, 1)]
)
def test_first_override_that_fits_must_win_bounds_included(priority: int | None, pool: int) -> None:
    chosen = grid(agg(strategy={"priority_overrides": OVERRIDES}))
    assert choose(chosen, facts(priority=priority, ttft_target_ms=0), Defaults()) == pool


@pytest.mark.covers("GR-16", "D-6")
@pytest.mark.parametrize(("selected", "order"), [(3, (3, 2, 0, 1)), (0, (0,)), (1, (1,)), (2, (2, 0, 1))])
def test_retries_must_go_to_faster_pools_the_slowest_first(selected: int, order: tuple[int, ...]) -> None:
    names = ["a", "b", "c", "d"]
    chosen = grid(
        agg(
            num_agg_pools=4,
            agg_pool_dynamo_namespaces=names,
            agg_pool_priorities=[0, 0, 1, 2],
            enable_priority_retry=True,
        )
    )
    assert retry_order(chosen, selected) == order


@pytest.mark.covers("GR-16", "GR-10")
def test_pool_without_the_switch_or_priorities_must_have_its_defaults() -> None:
    assert retry_order(grid(agg()), 1) == (1,)
    assert retry_order(grid(agg(enable_priority_retry=True)), 1) == (1, 0)
