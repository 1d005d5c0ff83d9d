"""Pools by distance, and when a near one is passed over."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.pools import Location, Model
from isthmus.router.plan.locality import capacity_of, is_full, rank
from isthmus.router.plan.model import Candidate, Place
from tests.support.poolfacts import MODEL, candidate, load, pool

HERE = Place("eu", "eu-1")
PLACES: dict[str, dict[str, Any]] = {
    "near": {"region": "eu", "zone": "eu-1"},
    "region": {"region": "eu", "zone": "eu-2"},
    "far": {"region": "us", "zone": "us-1"},
}


def at(name: str, where: str, **changes: Any) -> Candidate:
    return candidate(name, pool_changes=PLACES[where], **changes)


def order(*candidates: Candidate, spill_at: float = 0.9) -> list[tuple[str, str]]:
    by_id = {each.pool.pool_id: each.pool.name for each in candidates}
    return [(by_id[each.pool_id], each.basis) for each in rank(candidates, HERE, spill_at)]


def test_own_zone_must_come_first_then_the_region_then_the_rest() -> None:
    near, region, far = at("c", "near", load=load(9)), at("b", "region", load=load(5)), at("a", "far")
    assert order(far, region, near) == [("c", "zone"), ("b", "region"), ("a", "elsewhere")]


def test_load_must_decide_within_one_distance() -> None:
    assert [name for name, _ in order(at("a", "near", load=load(2)), at("b", "near", load=load(1)))] == [
        "b",
        "a",
    ]
    assert [
        name for name, _ in order(at("a", "near", in_flight=1), at("b", "near", in_flight=1, weight=2.0))
    ] == [
        "b",
        "a",
    ]


def test_full_pool_must_give_way_to_a_far_one_with_room_but_not_to_a_full_one() -> None:
    near = at("near", "near", load=load(9, takes=10))
    region = at("region", "region", load=load(95, takes=100))
    far = at("far", "far", load=load(8, takes=10))
    assert order(near, region, far) == [
        ("far", "elsewhere"),
        ("near", "zone_full"),
        ("region", "region_full"),
    ]
    assert order(near, region, far, spill_at=0.91)[0] == ("near", "zone")


@pytest.mark.parametrize(
    ("changes", "full"),
    [
        ({"load": load(8, takes=10)}, False),
        ({"load": load(9, takes=10)}, True),
        ({"load": load(8, takes=10), "since_sample": 1}, True),
        ({"load": load(8, takes=10), "since_sample": 1, "limit": 1000}, True),
        ({"load": load(1000)}, False),
        ({"load": load(1000), "limit": 10}, False),
        ({"in_flight": 8, "limit": 10}, False),
        ({"in_flight": 9, "limit": 10}, True),
        ({"in_flight": 9, "limit": 10, "load": load(0, takes=100)}, True),
        ({"in_flight": 9, "load": load(0, takes=9)}, False),
        ({"in_flight": 1000}, False),
        ({}, False),
    ],
)
def test_pool_must_be_full_by_its_relay_or_by_own_requests(changes: dict[str, Any], full: bool) -> None:
    assert is_full(candidate("a", **changes), 0.9) is full


@pytest.mark.parametrize(
    ("place", "location", "distance"),
    [
        (Place("eu", "eu-1"), Location(region="eu", availability_zone="eu-1"), 0),
        (Place("eu", "eu-1"), Location(region="eu", availability_zone="eu-2"), 1),
        (Place("eu", "eu-1"), Location(region="eu"), 1),
        (Place("eu", "a"), Location(region="us", availability_zone="a"), 2),
        (Place("eu", "a"), Location(availability_zone="a"), 0),
        (Place("", "a"), Location(region="us", availability_zone="a"), 0),
        (Place("", "a"), Location(region="us", availability_zone="b"), 2),
        (Place("eu"), Location(region="eu", availability_zone="b"), 1),
        (Place("eu"), Location(), 2),
        (Place("eu", "a"), Location(), 2),
        (Place(), Location(), 2),
        (Place(), Location(region="eu", availability_zone="a"), 2),
    ],
)
def test_distance_must_be_known_to_be_near(place: Place, location: Location, distance: int) -> None:
    assert place.distance(location) == distance


@pytest.mark.parametrize(
    ("takes", "capacity"), [((), 0), ((4,), 4), ((4, 6), 10), ((4, None), 0), ((None,), 0)]
)
def test_capacity_must_be_what_all_models_say_together(takes: tuple[int | None, ...], capacity: int) -> None:
    models = tuple(Model(id=f"{MODEL}-{n}", max_concurrency=each) for n, each in enumerate(takes))
    assert capacity_of(pool("a", models=models)) == capacity
