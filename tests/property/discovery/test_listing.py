"""Lists and what changed between them, over generated histories."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.pools import Pool, PoolKey
from isthmus.discovery.plan import listing as module
from isthmus.discovery.plan.imports import of_mcs
from isthmus.discovery.plan.join import MCS, join
from isthmus.discovery.plan.leases import Leases
from isthmus.discovery.plan.listing import Change, History, Listing
from tests.support.discoveries import mcs_slice, registration, service_import

NAMES = ("a", "b", "c")
CLUSTERS = ("east", "west")


def _pool(name: str, revision: int) -> Pool:
    key = PoolKey("east", "serving", name)
    return Pool(pool_id=key.pool_id, cluster_id="east", namespace="serving", name=name, revision=revision)


LISTS = st.builds(
    lambda found, complete: Listing(
        [_pool(name, revision) for name, revision in sorted(found.items())], complete=complete, mode="mcs"
    ),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2)),
    st.booleans(),
)


def _applied(pools: dict[str, Pool], changes: tuple[Change, ...]) -> dict[str, Pool]:
    found = dict(pools)
    for name, pool in changes:
        if name == "removed":
            del found[pool.pool_id]
        else:
            assert (name == "changed") == (pool.pool_id in found)
            found[pool.pool_id] = pool
    return found


@pytest.mark.covers("DS-8", "PW-9", "D-18")
@given(st.lists(LISTS, min_size=1, max_size=12), st.integers(0, 11))
def test_changes_since_a_known_version_must_lead_to_the_list(lists: list[Listing], start: int) -> None:
    history = History()
    for old, new in itertools.pairwise(lists):
        if old.version != new.version:
            history.add(old.version, new.changes_from(old))
    begun = lists[start % len(lists)]
    changes = () if begun.version == lists[-1].version else history.since(begun.version)
    assert changes is not None
    assert _applied(begun.by_id, changes) == lists[-1].by_id


@pytest.mark.covers("PW-7")
@given(LISTS, LISTS)
def test_version_must_be_the_same_exactly_where_the_list_is(one: Listing, other: Listing) -> None:
    same = (one.pools, one.complete) == (other.pools, other.complete)
    assert (one.version == other.version) is same


@given(st.lists(LISTS, min_size=2, max_size=100))
def test_history_must_be_bounded(lists: list[Listing]) -> None:
    history = History()
    for old, new in itertools.pairwise(lists):
        history.add(old.version, new.changes_from(old))
    assert len(history._steps) <= module.KEPT_CHANGES


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["register", "remove", "wait", "slice", "unslice", "import", "unimport"]),
        st.sampled_from(CLUSTERS),
        st.sampled_from(["r1", "r2"]),
        st.floats(0.1, 20.0),
    ),
    max_size=40,
)


@pytest.mark.covers("R37", "DS-14")
@given(STEPS)
def test_pool_must_be_listed_exactly_where_registration_import_and_slices_agree(
    steps: list[tuple[str, str, str, float]],
) -> None:
    leases, now = Leases(15.0), 0.0
    slices, importing = set[str](), set[str]()
    for what, cluster, run, seconds in steps:
        if what == "register":
            leases.put(registration(cluster, run=run), now)
        elif what == "remove":
            leases.remove(registration(cluster).key, run, now)
        elif what == "wait":
            now += seconds
        else:
            {
                "slice": slices.add,
                "unslice": slices.discard,
                "import": importing.add,
                "unimport": importing.discard,
            }[what](cluster)
        live = [held.registration for held in leases.live(now)]
        ends = ("chat-pool-relay", "chat-frontend")
        imports = {each.key: each for each in (service_import(end, sorted(importing)) for end in ends)}
        found = of_mcs([mcs_slice(each, end) for each in slices for end in ends], imports)
        joined = join(live, found, mode=MCS)
        wanted = {each.cluster_id for each in live} & slices & importing
        assert {pool.cluster_id for pool in joined.pools} == wanted
        told = {each.cluster_id for each in joined.unmatched if each.kind == "registration"}
        assert told == {each.cluster_id for each in live} - wanted
