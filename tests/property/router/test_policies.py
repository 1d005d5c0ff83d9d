"""Orders of the policies, breakers and budgets, over generated inputs."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.pools import InvalidField
from isthmus.router.plan.breaker import HALF_OPEN, OPEN, Breaker, BreakerSettings
from isthmus.router.plan.budget import RetryBudget
from isthmus.router.plan.eventstream import EventStream
from isthmus.router.plan.facts import read
from isthmus.router.plan.grid import bucket, retry_order
from isthmus.router.plan.gridfile import Axis, BadGrid
from isthmus.router.plan.gridfile import read as read_grid
from isthmus.router.plan.load import rank
from isthmus.router.plan.locality import is_full
from isthmus.router.plan.locality import rank as rank_near
from isthmus.router.plan.model import Candidate, Outcome, Place
from tests.property.router.strategies import loads, pools
from tests.support.poolfacts import agg, grid

candidates = st.lists(
    st.builds(
        Candidate,
        pools,
        in_flight=st.integers(0, 5),
        since_sample=st.integers(0, 5),
        load=st.none() | loads,
        limit=st.integers(0, 5),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
    ),
    max_size=5,
    unique_by=lambda each: each.pool.pool_id,
)


@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(0.001, 1e6),
    resolution=st.integers(1, 50),
    value=st.floats(-1e9, 1e9),
)
def test_bucket_must_be_on_the_axis_and_grow_with_the_value(
    low: float, width: float, resolution: int, value: float
) -> None:
    axis = Axis("x", low, low + width, resolution)
    found = bucket(axis, value)
    assert 0 <= found < resolution
    assert found <= bucket(axis, value + width)
    if value <= low:
        assert found == 0
    if value >= low + width:
        assert found >= resolution - 1 - (width < 1)  # the sum is rounded where the axis is narrow


@given(priorities=st.lists(st.integers(0, 4), min_size=1, max_size=8), data=st.data())
def test_retries_must_go_to_faster_pools_in_order(priorities: list[int], data: st.DataObject) -> None:
    count = len(priorities)
    chosen = grid(
        agg(
            num_agg_pools=count,
            agg_pool_dynamo_namespaces=[f"n{index}" for index in range(count)],
            agg_pool_priorities=priorities,
            enable_priority_retry=True,
            strategy={"agg_pool_mapping": [[0, 0], [0, 0]]},
        )
    )
    selected = data.draw(st.integers(0, count - 1))
    first, *rest = retry_order(chosen, selected)
    assert first == selected
    assert set(rest) == {index for index in range(count) if priorities[index] < priorities[selected]}
    assert rest == sorted(rest, key=lambda index: (-priorities[index], index))


@given(candidates)
def test_order_by_load_must_have_all_pools_and_the_observed_first(given_: list[Candidate]) -> None:
    order = [each.pool_id for each in rank(given_)]
    by_id = {each.pool.pool_id: each for each in given_}
    assert sorted(order) == sorted(by_id)
    whole = [(load := by_id[each].load) is not None and load.whole for each in order]
    assert whole == sorted(whole, reverse=True)
    assert order == [each.pool_id for each in rank(given_[::-1])]
    costs = [each.cost for each in rank(given_)]
    observed = sum(whole)
    assert costs[:observed] == sorted(costs[:observed])
    assert costs[observed:] == sorted(costs[observed:])


@given(candidates, st.sampled_from([0.5, 0.9, 1.0]))
def test_farther_pool_must_come_first_only_where_the_nearer_is_full(
    given_: list[Candidate], spill_at: float
) -> None:
    here = Place("eu", "eu-1")
    by_id = {each.pool.pool_id: each for each in given_}
    order = [by_id[each.pool_id] for each in rank_near(given_, here, spill_at)]
    assert len(order) == len(by_id) == len({each.pool.pool_id for each in order})
    for before, after in pairwise(order):
        if here.distance(before.pool.location) > here.distance(after.pool.location):
            assert is_full(after, spill_at)
            assert not is_full(before, spill_at)
        if is_full(before, spill_at):
            assert is_full(after, spill_at)


steps = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 1.0, 4.0, 20.0]), st.sampled_from(["begin", *Outcome]), st.integers(0)
    ),
    max_size=60,
)


@given(steps, st.integers(1, 3), st.integers(1, 3))
def test_breaker_must_never_let_more_probes_go_than_it_may(
    taken: list[tuple[float, object, int]], threshold: int, probes: int
) -> None:
    breaker = Breaker(BreakerSettings(threshold=threshold, first_s=1.0, longest_s=8.0, probes=probes))
    now, running = 0.0, list[bool]()
    for wait_s, what, index in taken:
        now += wait_s
        if what == "begin":
            if breaker.allows(now):
                assert breaker.state(now) != OPEN
                running.append(breaker.began(now))
        elif running:
            assert isinstance(what, Outcome)
            breaker.ended(what, now, probe=running.pop(index % len(running)))
        if breaker.state(now) == HALF_OPEN:
            assert sum(running) <= probes
    for probe in running:
        breaker.ended(Outcome.CANCELLED, now, probe=probe)
    assert breaker.allows(now + 8.0)  # it never rests for ever


@given(
    st.lists(st.tuples(st.floats(0, 3), st.sampled_from(["request", "retry"])), max_size=200),
    st.floats(0, 1),
    st.floats(0, 5),
)
def test_retries_must_be_bounded_by_requests_and_time(
    taken: list[tuple[float, str]], share: float, floor_per_s: float
) -> None:
    budget = RetryBudget(share, floor_per_s, 0.0)
    bound, now, retries = budget.cap, 0.0, 0
    for wait_s, what in taken:
        now += wait_s
        bound += wait_s * floor_per_s
        if what == "request":
            budget.request(now)
            bound += share
        else:
            retries += budget.take(now)
        assert retries <= bound + 1e-6


@given(st.lists(st.tuples(st.sampled_from("abc"), st.text("xyz \n", max_size=9)), max_size=5), st.data())
def test_events_must_be_the_same_however_they_are_cut(
    told: list[tuple[str, str]], data: st.DataObject
) -> None:
    text = b"".join(
        f"event: {name}\n{''.join(f'data: {line}' + chr(10) for line in body.split(chr(10)))}\n".encode()
        for name, body in told
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    stream = EventStream()
    found = [
        event
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
        for event in stream.feed(text[begin:end])
    ]
    assert found == [(name, body.encode()) for name, body in told]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(["model", "stream", "prompt", "messages", "input", "nvext", "tools"])


@given(st.dictionaries(keys, json_values, max_size=7) | json_values)
def test_any_json_must_give_facts_or_name_what_is_wrong(body: object) -> None:
    try:
        found = read(json.dumps(body).encode())
    except InvalidField:
        return
    assert found.model
    assert found.prompt_tokens >= 0


@given(st.binary(max_size=200))
def test_any_bytes_must_give_facts_or_name_what_is_wrong(body: bytes) -> None:
    with contextlib.suppress(InvalidField):
        read(body)


@given(key=st.sampled_from(sorted(agg())), value=json_values)
def test_any_file_must_give_a_grid_or_name_what_is_wrong(key: str, value: object) -> None:
    try:
        found = read_grid(json.dumps(agg() | {key: value}).encode()).grid
    except BadGrid:
        return
    assert all(0 <= index < len(found.pools) for index in found.mapping)
    assert len(found.priorities) == len(found.pools)
