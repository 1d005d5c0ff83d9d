"""Pools by load, and the loads in relays' samples."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.pools import LoadFrontends, LoadSnapshot, ModelLoad
from isthmus.router.plan.load import CAPACITY_SHARE, OWN_REQUESTS, REQUEST_COUNT, loads_of, rank
from isthmus.router.plan.model import Candidate
from tests.support.poolfacts import candidate, load, pool


def names(candidates: list[Candidate]) -> list[str]:
    by_id = {each.pool.pool_id: each.pool.name for each in candidates}
    return [by_id[each.pool_id] for each in rank(candidates)]


@pytest.mark.covers("GR-27")
def test_cheapest_pool_must_come_first() -> None:
    pools = [candidate("a", load=load(5)), candidate("b", load=load(3)), candidate("c", load=load(4))]
    assert names(pools) == ["b", "c", "a"]
    assert [(each.cost, each.basis) for each in rank(pools)] == [(cost, REQUEST_COUNT) for cost in (3, 4, 5)]


@pytest.mark.covers("GR-27")
def test_own_requests_since_the_sample_must_count() -> None:
    assert names([candidate("a", load=load(3), since_sample=2), candidate("b", load=load(4))]) == ["b", "a"]


@pytest.mark.covers("GR-27")
def test_cost_must_be_a_share_only_where_every_observed_pool_tells_its_capacity() -> None:
    both = [candidate("a", load=load(10, takes=100)), candidate("b", load=load(5, takes=10), since_sample=1)]
    assert [(each.cost, each.basis) for each in rank(both)] == [(0.1, CAPACITY_SHARE), (0.6, CAPACITY_SHARE)]
    one = [candidate("a", load=load(10, takes=100)), candidate("b", load=load(5))]
    assert [(each.cost, each.basis) for each in rank(one)] == [(5, REQUEST_COUNT), (10, REQUEST_COUNT)]
    unobserved = [*both, candidate("c", load=load(0, whole=False)), candidate("d")]
    assert [each.basis for each in rank(unobserved)] == [CAPACITY_SHARE] * 2 + [OWN_REQUESTS] * 2


@pytest.mark.covers("GR-27", "D-28")
def test_pool_that_is_not_observed_as_a_whole_must_come_last() -> None:
    pools = [
        candidate("a", load=load(0, whole=False), in_flight=2),
        candidate("b", in_flight=1),
        candidate("c", load=load(999)),
    ]
    assert names(pools) == ["c", "b", "a"]
    assert [each.cost for each in rank(pools)] == [999, 1, 2]


@pytest.mark.covers("GR-27", "D-27")
def test_equal_costs_must_go_by_pool_id() -> None:
    for given in (load(1), None):
        pools = [candidate(name, load=given) for name in ("a", "b", "c", "d")]
        ids = [each.pool_id for each in rank(pools)]
        assert ids == sorted(ids)
        assert [each.pool_id for each in rank(pools[::-1])] == ids


def test_weight_must_divide_the_cost_and_decide_ties() -> None:
    assert names([candidate("a", load=load(3)), candidate("b", load=load(4), weight=2.0)]) == ["b", "a"]
    assert names([candidate("a", in_flight=3), candidate("b", in_flight=4, weight=2.0)]) == ["b", "a"]
    for name in ("a", "b", "c"):
        others = [candidate(each, load=load()) for each in "abc" if each != name]
        assert names([*others, candidate(name, load=load(), weight=2.0)])[0] == name


def entry(**changes: Any) -> ModelLoad:
    given: dict[str, Any] = {
        "model": "m",
        "awaiting_first_token": 2,
        "generating": 3,
        "frontends": LoadFrontends(expected=2, observed=2, ready=1),
        "max_concurrency": 64,
    }
    return ModelLoad(**(given | changes))


def snapshot(*entries: ModelLoad, status: str = "complete", age_ms: int = 500) -> LoadSnapshot:
    return LoadSnapshot(incarnation="i", revision=1, status=status, age_ms=age_ms, entries=entries)


@pytest.mark.covers("GR-27", "PW-13")
@pytest.mark.parametrize("status", ["complete", "degraded"])
def test_sample_must_be_read_with_its_age(status: str) -> None:
    found = loads_of(snapshot(entry(), status=status), now=100.0)
    assert found == {"m": load(5, takes=64, taken_s=99.5)}


@pytest.mark.covers("GR-28", "D-28")
@pytest.mark.parametrize(
    ("expected", "observed", "whole"), [(2, 2, True), (2, 1, False), (1, 2, False), (0, 0, False)]
)
def test_load_must_be_whole_only_where_all_frontends_were_asked(
    expected: int, observed: int, whole: bool
) -> None:
    frontends = LoadFrontends(expected=expected, observed=observed, ready=0)
    assert loads_of(snapshot(entry(frontends=frontends)), 0.0)["m"].whole is whole


@pytest.mark.covers("GR-28")
@pytest.mark.parametrize(
    "sample",
    [
        snapshot(entry(), status="unavailable"),
        snapshot(entry(), age_ms=-1),
        snapshot(entry(awaiting_first_token=None)),
        snapshot(entry(generating=None)),
        snapshot(entry(awaiting_first_token=-1)),
        snapshot(entry(generating=-1)),
        snapshot(),
    ],
)
def test_sample_that_tells_nothing_must_give_no_load(sample: LoadSnapshot) -> None:
    assert loads_of(sample, 100.0) == {}


@pytest.mark.covers("GR-28")
def test_empty_counts_and_capacities_that_are_none_must_be_read() -> None:
    zero = entry(awaiting_first_token=0, generating=0, max_concurrency=None)
    assert loads_of(snapshot(zero, age_ms=0), 7.0) == {"m": load(0, taken_s=7.0)}
    assert loads_of(snapshot(entry(max_concurrency=-5)), 7.0)["m"].max_concurrency == 0


def test_pools_must_be_those_that_were_given() -> None:
    assert rank([]) == []
    assert [each.pool_id for each in rank([candidate("a")])] == [pool("a").pool_id]
