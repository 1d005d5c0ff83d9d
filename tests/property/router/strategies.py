"""Generated pools, loads and requests."""

from __future__ import annotations

from hypothesis import strategies as st

from isthmus.api.pools import Model
from isthmus.router.plan.model import Load, RequestFacts
from tests.support.poolfacts import MODEL, pool

NAMES = st.sampled_from("abcde")

models = st.builds(
    Model,
    id=st.sampled_from([MODEL, "other"]),
    ready=st.booleans(),
    roles=st.sampled_from([("aggregated",), ("prefill",), ("prefill", "decode"), ()]),
    max_concurrency=st.none() | st.integers(1, 4),
)
pools = st.builds(
    lambda name, each, urls, region, zone: pool(
        name, models=(each,), frontend_urls=tuple(urls), region=region, zone=zone
    ),
    NAMES,
    models,
    st.lists(st.sampled_from(["http://one", "http://two", "http://three"]), unique=True),
    st.sampled_from(["", "eu", "us"]),
    st.sampled_from(["", "eu-1", "eu-2"]),
)
loads = st.builds(
    Load,
    running=st.integers(0, 20),
    max_concurrency=st.sampled_from([0, 1, 5, 50]),
    whole=st.booleans(),
    taken_s=st.floats(-20, 120),
)
facts = st.builds(
    RequestFacts,
    model=st.sampled_from([MODEL, "other", "nope"]),
    prompt_tokens=st.integers(0, 10_000),
    priority=st.none() | st.integers(-3, 12),
    ttft_target_ms=st.none() | st.floats(0, 2000),
    itl_target_ms=st.none() | st.floats(0, 200),
)
