"""Whatever is encoded by hand reads the same with protobuf's own code; whatever comes is refused or read."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from isthmus.relay.plan import messages
from isthmus.relay.plan.compose import compose
from isthmus.relay.plan.messages import MARKER, Refused, Speaker, read_request
from isthmus.relay.plan.model import Card, Crew, Door, Heard, Roster, Sample, Totals
from tests.support.relayfacts import DYNAMO, settings
from tests.support.relaygrpc import contract

NUMBERS = st.integers(0, (1 << 64) - 1)
COUNTS = st.integers(0, 1 << 53)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).map(
    lambda t: t.strip() or "m"
)
SPEAKERS = st.builds(Speaker, instance=NUMBERS, incarnation=NUMBERS, cluster=NUMBERS)
CREWS = st.builds(
    Crew,
    namespace=st.just(DYNAMO),
    component=st.sampled_from("abc"),
    role=st.sampled_from(["prefill", "decode", "encode", "aggregated"]),
    total=st.just(3),
    ready=st.integers(0, 3),
)
HEARD = st.builds(
    Heard,
    cards=st.none() | st.lists(st.builds(Card, NAMES, NAMES | st.just("")), max_size=4).map(tuple),
    asked=st.just(True),
    load=st.none()
    | st.dictionaries(NAMES, st.builds(Sample, awaiting=COUNTS, generating=COUNTS), max_size=3),
    load_at=st.floats(0, 10),
)


@st.composite
def told(draw: st.DrawFn) -> Any:
    """Facts of any pool."""
    said = draw(st.dictionaries(st.sampled_from(["http://a", "http://b", "http://c"]), HEARD, max_size=3))
    crews = draw(st.lists(CREWS, max_size=4, unique_by=lambda crew: (crew.component, crew.role)))
    found = Roster(doors=tuple(Door(url=url) for url in sorted(said)), crews=tuple(sorted(crews)))
    known = tuple(Card(name) for name in draw(st.lists(NAMES, max_size=2, unique=True)))
    return compose(found, said, settings(), known=known, now=5.0)


@given(SPEAKERS, NUMBERS, told())
def test_every_state_must_read_back_as_it_was(speaker: Speaker, revision: int, facts: Any) -> None:
    words = contract()
    catalog = words.KvPoolCatalogUpdate.FromString(messages.catalog(speaker, revision, facts))
    readiness = words.ServingReadinessUpdate.FromString(messages.readiness(speaker, revision, facts))
    raw = messages.serving_load(speaker, revision, facts, {"m": Totals(started=3)}, (7, 5))
    load = words.ServingLoadUpdate.FromString(raw)
    for update in (catalog, readiness, load):
        assert (update.relay.drt_instance_id, update.relay.relay_incarnation) == (
            speaker.instance,
            speaker.incarnation,
        )
        assert (update.contract_marker, update.protocol_version) == (MARKER, 1)
        assert update.SerializeToString(deterministic=True)
    assert catalog.revision == readiness.revision == load.window_sequence == revision
    listed = {entry.model for entry in facts.catalog}
    for pool in catalog.snapshot.pools:
        assert {each.canonical_model_id for each in pool.registrations} == listed
        assert all(each.target.WhichOneof("target") for each in pool.registrations)
    shown = [entry.canonical_model_id for entry in readiness.entries]
    shown += [each.canonical_model_id for entry in readiness.entries for each in entry.adapters]
    assert sorted(shown) == sorted(listed)
    assert all(entry.members for entry in readiness.entries)
    complete = facts.load_status == "complete"
    for model in load.models:
        assert model.load.requests.HasField("generating") == complete
        assert model.load.status == {"complete": 1, "degraded": 2, "unavailable": 3}[facts.load_status]


@given(st.binary(max_size=64))
def test_any_request_must_be_read_or_refused(raw: bytes) -> None:
    for named in (True, False):
        try:
            found = read_request(raw, named=named)
        except Refused as problem:
            reason = problem.reason
        else:
            reason = "" if found.subscriber or not named else "taken without a name"
        assert reason in ("", "CONTRACT_MISMATCH", "INVALID_REQUEST")
