"""From a request's facts to the pools that it may be sent to."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.pools import Model, Pool
from isthmus.router.plan.breaker import CLOSED, HALF_OPEN, OPEN, BreakerSettings
from isthmus.router.plan.grid import Defaults
from isthmus.router.plan.model import Choice, Outcome, Place, RequestFacts
from isthmus.router.plan.selector import (
    GRID,
    LOCALITY,
    PriorityRule,
    Selector,
    Try,
    fits,
    is_routable,
)
from tests.support.poolfacts import MODEL, agg, grid, load, pool, selector

FACTS = RequestFacts(MODEL)
BREAKER = BreakerSettings(threshold=1, first_s=5.0, longest_s=5.0)
A, B, C = pool("a"), pool("b"), pool("c")


def names(found: Selector, choice: Choice) -> list[str]:
    pools = [found.directory.get(each.pool_id) for each in choice.order]
    return [each.name for each in pools if each is not None]


def chosen(found: Selector, facts: RequestFacts = FACTS, now: float = 0.0) -> list[str]:
    return names(found, found.choose(facts, now))


def begin(found: Selector, each: Pool, now: float = 0.0) -> Try:
    at = found.began(each.pool_id, now)
    assert at is not None
    return at


def fail(found: Selector, each: Pool, now: float = 0.0) -> None:
    found.ended(begin(found, each, now), Outcome.UNREACHABLE, now)


# Eligible pools


@pytest.mark.covers("GR-26", "PW-16")
def test_pools_must_be_found_by_name_and_by_alias() -> None:
    found = selector(A, B)
    assert sorted(chosen(found)) == sorted(chosen(found, RequestFacts("tiny"))) == ["a", "b"]


def only(**changes: Any) -> Pool:
    return pool("a", models=(Model(id=MODEL, **changes),))


@pytest.mark.covers("GR-26", "D-26")
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (only(ready=False), "the model is not ready there"),
        (only(roles=("decode",)), "the model is not ready there"),
        (pool("a", frontend_urls=()), "it has no frontend"),
    ],
)
def test_pool_that_is_not_eligible_must_never_be_chosen(bad: Pool, why: str) -> None:
    assert chosen(selector(bad, B)) == ["b"]
    refusal = selector(bad).choose(FACTS, 0.0).refusal
    assert refusal is not None
    assert refusal.status == 503
    assert MODEL in refusal.message
    assert refusal.reasons == (f"east/serving/a: {why}",)


@pytest.mark.covers("GR-26")
@pytest.mark.parametrize(
    ("roles", "routable"),
    [
        (("aggregated",), True),
        (("legacy",), True),
        (("prefill",), False),
        (("encode",), False),
        (("prefill", "decode"), True),
        ((), True),
    ],
)
def test_whole_requests_must_go_where_all_roles_are(roles: tuple[str, ...], routable: bool) -> None:
    assert is_routable(Model(id="m", roles=roles)) is routable
    assert not is_routable(Model(id="m", roles=roles, ready=False))


def test_other_models_of_a_pool_must_not_make_it_eligible() -> None:
    mixed = pool("a", models=(Model(id=MODEL, ready=False), Model(id="other")))
    assert chosen(selector(mixed)) == []
    assert chosen(selector(mixed), RequestFacts("other")) == ["a"]


@pytest.mark.covers("D-26")
def test_model_that_no_pool_has_must_be_404_once_all_pools_are_known() -> None:
    found = selector(A)
    refusal = found.choose(RequestFacts("nope"), 0.0).refusal
    assert refusal is not None
    assert (refusal.status, "'nope'" in refusal.message) == (404, True)
    found.directory.replace([A], complete=False, now=0.0)
    assert (refusal := found.choose(RequestFacts("nope"), 0.0).refusal) is not None
    assert (refusal.status, "not all" in refusal.message) == (503, True)


@pytest.mark.covers("D-26")
def test_router_that_has_read_nothing_must_say_so() -> None:
    empty = selector()
    empty.directory.synced = False
    refusal = empty.choose(FACTS, 0.0).refusal
    assert refusal is not None
    assert (refusal.status, refusal.message) == (503, "the list of pools has not been read yet")


def test_names_that_clients_make_up_must_not_be_remembered() -> None:
    found = selector(A)
    for number in range(100):
        found.choose(RequestFacts(f"made-up-{number}"), 0.0)
    chosen(found)
    assert found.remembered_models == 1
    found.directory.remove(A.pool_id)
    chosen(found)
    assert found.remembered_models == 0


def test_reasons_must_be_at_most_twenty() -> None:
    refusal = selector(*(pool(f"p{n}", frontend_urls=()) for n in range(30))).choose(FACTS, 0.0).refusal
    assert refusal is not None
    assert len(refusal.reasons) == 20


# Tries, counts and limits


def test_frontends_must_take_turns() -> None:
    urls = ("http://one", "http://two", "http://three")
    found = selector(pool("a", frontend_urls=urls))
    assert [begin(found, A).url for _ in range(7)] == [*urls, *urls, urls[0]]


def test_requests_in_flight_must_be_counted_and_never_below_none() -> None:
    found = selector(A)
    first, second = begin(found, A), begin(found, A)
    assert found.in_flight(A.pool_id) == 2
    for each in (first, second, second):
        found.ended(each, Outcome.OK, 0.0)
    assert found.in_flight(A.pool_id) == 0
    assert found.in_flight("unknown") == 0
    found.ended(Try("unknown", "http://x", False, False), Outcome.OK, 0.0)


@pytest.mark.parametrize(("settings", "takes"), [({"limit": 2}, None), ({}, 2), ({"limit": 2}, 50)])
def test_pool_at_its_limit_must_not_be_chosen(settings: dict[str, Any], takes: int | None) -> None:
    full = pool("a", takes=takes)
    found = selector(full, B, **settings)
    tries = [begin(found, full), begin(found, full)]
    assert found.began(full.pool_id, 0.0) is None
    assert chosen(found) == ["b"]
    assert found.why_not(full, MODEL, 0.0) == "it has 2 requests of this router, which is its limit"
    found.ended(tries[0], Outcome.CANCELLED, 0.0)
    assert begin(found, full).pool_id == full.pool_id


def test_pool_that_has_left_must_get_nothing_new_and_finish_what_it_runs() -> None:
    found = selector(A, B)
    at = begin(found, A)
    found.directory.remove(A.pool_id)
    found.forget_gone()
    assert chosen(found) == ["b"]
    assert found.began(A.pool_id, 0.0) is None
    assert found.in_flight(A.pool_id) == 1
    assert found.load_age_s(A.pool_id, MODEL, 0.0) is None
    found.ended(at, Outcome.OK, 0.0)
    assert found.in_flight(A.pool_id) == 0
    assert found.remembered == 0


def test_pool_that_comes_back_must_have_its_count_and_breaker() -> None:
    found = selector(A, breaker=BREAKER)
    begin(found, A)
    fail(found, A)
    found.directory.remove(A.pool_id)
    found.forget_gone()
    found.directory.put(A)
    assert found.in_flight(A.pool_id) == 1
    assert found.breaker_state(A.pool_id, 0.0) == OPEN


def test_pools_and_frontends_that_are_gone_must_be_forgotten() -> None:
    two = pool("a", frontend_urls=("http://one", "http://two"))
    found = selector(two, B, breaker=BREAKER)
    fail(found, two)
    found.ended(begin(found, B), Outcome.OK, 0.0)
    found.directory.replace([pool("a", frontend_urls=("http://two",))], complete=True, now=0.0)
    found.forget_gone()
    assert found.remembered == 1
    found.directory.put(two)
    assert found.frontend_states(two, 0.0) == {"http://one": CLOSED, "http://two": CLOSED}
    assert found.frontend_states(C, 0.0) == {"http://c:8000": CLOSED}


# Breakers


def test_pool_whose_breaker_is_open_must_rest_and_then_be_tried() -> None:
    found = selector(A, B, breaker=BREAKER)
    fail(found, A)
    assert found.breaker_state(A.pool_id, 4.9) == OPEN
    assert chosen(found, now=4.9) == ["b"]
    assert found.began(A.pool_id, 4.9) is None
    assert found.why_not(A, MODEL, 4.9) == "its circuit breaker is open"
    assert sorted(chosen(found, now=5.0)) == ["a", "b"]
    probe = begin(found, A, 5.0)
    assert (probe.pool_probe, probe.url_probe) == (True, True)
    assert found.breaker_state(A.pool_id, 5.0) == HALF_OPEN
    assert chosen(found, now=5.0) == ["b"]
    found.ended(probe, Outcome.OK, 5.0)
    assert found.breaker_state(A.pool_id, 5.0) == CLOSED


def test_pool_that_rests_must_rest_with_all_its_frontends() -> None:
    two = pool("a", frontend_urls=("http://one", "http://two"))
    found = selector(two, breaker=BREAKER)
    fail(found, two)
    assert found.frontend_states(two, 0.0) == {"http://one": OPEN, "http://two": CLOSED}
    assert found.began(two.pool_id, 0.0) is None


def test_frontend_that_fails_must_be_passed_over_alone() -> None:
    two = pool("a", frontend_urls=("http://one", "http://two"))
    found = selector(two, breaker=BreakerSettings(threshold=2, first_s=5.0, longest_s=5.0))
    for _ in range(2):
        bad, good = begin(found, two), begin(found, two)
        found.ended(bad, Outcome.TIMEOUT, 0.0)
        found.ended(good, Outcome.OK, 0.0)
    assert found.frontend_states(two, 0.0) == {"http://one": OPEN, "http://two": CLOSED}
    assert found.breaker_state(two.pool_id, 0.0) == CLOSED
    assert {begin(found, two).url for _ in range(4)} == {"http://two"}


def test_pool_without_a_frontend_that_can_be_reached_must_not_be_chosen() -> None:
    found = selector(A, B, breaker=BreakerSettings(threshold=2, first_s=5.0, longest_s=5.0))
    fail(found, A)
    moved = pool("a", frontend_urls=("http://new",))
    found.directory.put(moved)
    found.ended(begin(found, moved), Outcome.OK, 0.0)
    found.directory.put(A)
    fail(found, A)
    assert found.breaker_state(A.pool_id, 0.0) == CLOSED
    assert found.why_not(A, MODEL, 0.0) == "none of its frontends can be reached"
    assert found.began(A.pool_id, 0.0) is None
    assert chosen(found) == ["b"]


@pytest.mark.covers("PW-8", "D-20")
def test_doubtful_pool_must_go_with_its_own_connection_and_no_other_pool() -> None:
    found = selector(A, B, breaker=BreakerSettings(threshold=2))
    found.directory.replace([B], complete=False, now=0.0)
    fail(found, A)
    assert found.directory.get(A.pool_id) is not None
    fail(found, A)
    assert found.directory.get(A.pool_id) is None
    for _ in range(2):
        fail(found, B)
    assert found.directory.get(B.pool_id) is not None


@pytest.mark.covers("D-20")
def test_answer_must_speak_for_a_doubtful_pool_and_a_failure_must_not() -> None:
    found = selector(A, B)
    found.directory.replace([], complete=False, now=0.0)
    found.ended(begin(found, A, 200.0), Outcome.OK, 200.0)
    found.ended(begin(found, B, 200.0), Outcome.FAILED, 200.0)
    assert found.directory.heard(301.0) == {B.pool_id}


# Loads


@pytest.mark.covers("GR-27")
def test_requests_since_the_sample_must_count_on_top_of_it() -> None:
    found = selector(A, B)
    found.set_loads(A.pool_id, {MODEL: load(1, taken_s=0.0)})
    found.set_loads(B.pool_id, {MODEL: load(2, taken_s=0.0)})
    assert chosen(found) == ["a", "b"]
    for now in (1.0, 2.0):
        found.ended(begin(found, A, now), Outcome.OK, now)
    assert chosen(found, now=2.0) == ["b", "a"]
    found.set_loads(A.pool_id, {MODEL: load(1, taken_s=1.5)})
    assert [each.cost for each in found.choose(FACTS, 2.0).order] == [2, 2]
    found.set_loads(A.pool_id, {MODEL: load(1, taken_s=2.0)})
    assert [each.cost for each in found.choose(FACTS, 2.0).order] == [1, 2]


@pytest.mark.covers("GR-28", "D-29")
@pytest.mark.parametrize(
    ("now", "age"), [(9.99, None), (10.0, 0.0), (15.0, 5.0), (20.0, 10.0), (20.01, None)]
)
def test_load_must_count_only_while_it_is_fresh(now: float, age: float | None) -> None:
    found = selector(A, B, max_load_age_s=10.0)
    found.set_loads(A.pool_id, {MODEL: load(7, taken_s=10.0)})
    assert found.load_age_s(A.pool_id, MODEL, now) == age
    begin(found, B)
    expected = ["b", "a"] if age is None else ["a", "b"]
    begin(found, A)
    begin(found, A)
    assert chosen(found, now=now) == expected


@pytest.mark.covers("GR-29")
def test_load_that_is_taken_back_must_not_count() -> None:
    found = selector(A)
    assert found.load_age_s(A.pool_id, MODEL, 0.0) is None
    found.set_loads(A.pool_id, {MODEL: load(7)})
    found.set_loads(A.pool_id, {})
    assert found.load_age_s(A.pool_id, MODEL, 0.0) is None
    found.set_loads("unknown", {MODEL: load(7)})
    assert found.remembered == 1


@pytest.mark.covers("GR-27")
def test_load_must_be_that_of_the_model_behind_an_alias() -> None:
    both = pool("a", models=(Model(id="other"), Model(id=MODEL, aliases=("tiny",))))
    found = selector(both)
    found.set_loads(both.pool_id, {MODEL: load(7), "other": load(1)})
    assert [each.cost for each in found.choose(RequestFacts("tiny"), 0.0).order] == [7]
    assert [each.cost for each in found.choose(RequestFacts("other"), 0.0).order] == [1]
    assert found.load_age_s(both.pool_id, "nope", 0.0) is None


# Policies


def graded(**changes: Any) -> Selector:
    fast, slow = pool("fast"), pool("slow")
    return selector(fast, slow, policy=GRID, grid=grid(agg(**changes)), defaults=Defaults(900.0, None))


def wanted(ttft: float, **more: Any) -> RequestFacts:
    return RequestFacts(MODEL, ttft_target_ms=ttft, **more)


@pytest.mark.covers("PW-17", "GR-11", "D-1")
def test_grid_must_choose_the_pool_of_the_index() -> None:
    found = graded()
    assert chosen(found, wanted(0)) == ["fast"]
    assert chosen(found, wanted(900)) == chosen(found) == ["slow"]
    choice = found.choose(wanted(0), 0.0)
    assert (choice.policy, choice.order[0].basis) == (GRID, "grid:0")


@pytest.mark.covers("GR-19")
def test_policy_must_be_told() -> None:
    pools = ("dynamo-fast", "dynamo-slow")
    assert graded().policy == {"name": GRID, "mode": "agg", "pools": pools, "retry": False}
    assert selector().policy == {"name": "load"}


@pytest.mark.covers("PW-17", "GR-16", "D-6")
def test_grid_must_retry_faster_pools_only() -> None:
    found = graded(enable_priority_retry=True)
    assert chosen(found, wanted(900)) == ["slow", "fast"]
    assert chosen(found, wanted(0)) == ["fast"]


@pytest.mark.covers("PW-17", "GR-16")
def test_pool_of_the_grid_that_is_not_eligible_must_be_passed_over_in_retry_order() -> None:
    found = graded(enable_priority_retry=True)
    found.directory.put(pool("slow", frontend_urls=()))
    assert chosen(found, wanted(900)) == ["fast"]
    found.directory.put(pool("fast", frontend_urls=()))
    found.directory.put(pool("slow"))
    refusal = found.choose(wanted(0), 0.0).refusal
    assert refusal is not None
    assert refusal.status == 503
    assert refusal.reasons == (
        "east/serving/fast: it has no frontend",
        "east/serving/slow: it is not what the grid has for this request",
    )


@pytest.mark.covers("PW-17")
def test_grid_must_name_pools_by_namespace_or_by_key() -> None:
    names_of_both = ["east/serving/a", "dynamo-b"]
    found = selector(A, B, policy=GRID, grid=grid(agg(agg_pool_dynamo_namespaces=names_of_both)))
    assert chosen(found, wanted(0)) == ["a"]
    assert chosen(found, wanted(900)) == ["b"]
    assert fits(A, "dynamo-a")
    assert not fits(A, "serving/a")


@pytest.mark.covers("PW-17")
def test_pools_of_one_index_must_go_by_load_and_each_come_once() -> None:
    twin = pool("west/fast", runtime_namespaces=("dynamo-fast", "dynamo-slow"))
    found = graded(enable_priority_retry=True)
    found.directory.put(twin)
    begin(found, twin)
    assert chosen(found, wanted(0)) == ["fast", "fast"]
    assert found.choose(wanted(0), 0.0).order[0].pool_id == pool("fast").pool_id
    order = found.choose(wanted(900), 0.0).order
    assert [each.basis for each in order] == ["grid:1", "grid:1", "grid:0"]
    assert len({each.pool_id for each in order}) == 3


@pytest.mark.covers("GR-15", "PW-17", "D-5")
def test_priority_rule_must_put_its_pools_in_front_in_every_policy() -> None:
    rules = (PriorityRule(5, 10, "dynamo-b"), PriorityRule(10, 20, "dynamo-c"))
    for policy in ({}, {"policy": LOCALITY, "place": Place("eu")}):
        found = selector(A, B, C, priorities=rules, **policy)
        begin(found, B)
        begin(found, C)
        for priority, first in ((4, "a"), (5, "b"), (10, "b"), (11, "c"), (20, "c"), (21, "a"), (None, "a")):
            order = chosen(found, RequestFacts(MODEL, priority=priority))
            assert (order[0], sorted(order)) == (first, ["a", "b", "c"])
    assert found.choose(RequestFacts(MODEL, priority=5), 0.0).order[0].basis == "priority"


@pytest.mark.covers("PW-17")
def test_priority_rule_must_save_a_request_whose_pool_of_the_grid_is_away() -> None:
    rules = (PriorityRule(1, 1, "dynamo-slow"),)
    found = selector(pool("slow"), policy=GRID, grid=grid(agg()), priorities=rules)
    assert chosen(found, wanted(0, priority=1)) == ["slow"]
    assert chosen(found, wanted(0)) == []


@pytest.mark.covers("PW-17")
def test_priority_rule_whose_pool_is_away_must_leave_the_order_as_it_is() -> None:
    rules = (PriorityRule(1, 1, "dynamo-gone"), PriorityRule(1, 1, "dynamo-b"))
    found = selector(A, B, priorities=rules)
    begin(found, B)
    assert chosen(found, RequestFacts(MODEL, priority=1)) == ["a", "b"]


def test_locality_must_go_by_place_load_and_weight() -> None:
    near = pool("near", region="eu", zone="eu-1", takes=10)
    region = pool("region", region="eu", zone="eu-2")
    far = [pool("us/far", region="us"), pool("in/far", region="in")]
    settings = {"place": Place("eu", "eu-1"), "weights": {"in": 2.0}, "spill_at": 0.2}
    found = selector(near, region, *far, policy=LOCALITY, **settings)
    choice = found.choose(FACTS, 0.0)
    assert [each.basis for each in choice.order] == ["zone", "region", "elsewhere", "elsewhere"]
    assert choice.order[2].pool_id == far[1].pool_id
    for _ in range(2):
        begin(found, near)
    assert [each.basis for each in found.choose(FACTS, 0.0).order][-1] == "zone_full"
