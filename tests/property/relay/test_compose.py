"""Any pool: what is told agrees with itself, is fit to be registered, and never depends on the order."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.pools import InvalidField, Registration, RelayRun, read_registration
from isthmus.relay.plan.answers import read_models
from isthmus.relay.plan.compose import compose
from isthmus.relay.plan.heard import added
from isthmus.relay.plan.metrics import read_load
from isthmus.relay.plan.model import Card, Door, Heard, Roster, Sample
from tests.property.relay.test_messages import CREWS
from tests.support.relayfacts import settings

MODELS = st.sampled_from(["a", "b", "c", "org/d", "A"])
SAMPLES = st.builds(
    Sample,
    awaiting=st.none() | st.integers(0, 9),
    generating=st.none() | st.integers(0, 9),
    completed=st.none() | st.integers(0, 99),
    max_sequences=st.none() | st.integers(0, 1 << 40),
)
HEARD = st.builds(
    Heard,
    cards=st.none()
    | st.lists(st.builds(Card, MODELS, st.just("")), max_size=5).map(lambda found: tuple(sorted(set(found)))),
    asked=st.just(True),
    load=st.none() | st.dictionaries(MODELS, SAMPLES, max_size=4),
    load_at=st.floats(0, 10),
)
URLS = [f"http://10.0.0.{number}:8000" for number in range(4)]
ALIASES = st.dictionaries(
    MODELS, st.lists(st.sampled_from(["x", "b", "c"]), max_size=2, unique=True).map(tuple), max_size=2
)


def usable(aliases: dict[str, tuple[str, ...]]) -> bool:
    """Whether no name is two models' alias, as the options ensure."""
    names = [name for found in aliases.values() for name in found]
    return len(names) == len(set(names)) and not set(names) & aliases.keys()


@given(
    st.dictionaries(st.sampled_from(URLS), HEARD),
    st.lists(CREWS, max_size=3, unique_by=lambda crew: (crew.component, crew.role)),
    ALIASES.filter(usable),
    st.integers(0, 2),
)
def test_what_is_told_must_agree_with_itself(
    said: dict[str, Heard], crews: list[Any], aliases: dict[str, tuple[str, ...]], left_out: int
) -> None:
    doors = tuple(Door(url=url, zone="z") for url in sorted(said))
    found = Roster(doors=doors, crews=tuple(sorted(crews)), left_out=left_out)
    facts = compose(found, said, settings(aliases=aliases), known=(Card("k"),), now=5.0)
    turned = compose(
        found, dict(reversed(said.items())), settings(aliases=aliases), known=(Card("k"),), now=5.0
    )
    assert facts == turned
    registration = Registration(
        cluster_id="one",
        namespace="serving",
        name="east",
        relay=RelayRun(url="http://10.0.0.7:5561", incarnation="i", revision=1),
        runtime_namespaces=facts.namespaces,
        location=facts.location,
        models=facts.models,
        frontends=facts.frontends,
    )
    assert read_registration(msgspec.json.encode(registration)) == registration
    names = [entry.model for entry in facts.catalog]
    assert names == [entry.model for entry in facts.readiness] == [entry.model for entry in facts.load]
    assert len(names) == len(set(names))
    answering = {url for url, each in said.items() if each.cards is not None}
    assert {each.url for each in facts.frontends} == answering
    for entry, model in zip(facts.readiness, facts.models, strict=True):
        assert not set(entry.present_roles) & set(entry.missing_roles)
        assert model.ready == (entry.state == "READY")
        if model.ready:
            assert answering
            assert not entry.missing_roles
            assert any(card.id == model.id for url in answering for card in said[url].cards or ())
    for load in facts.load:
        assert load.frontends.observed <= load.frontends.expected == len(doors) + left_out
        complete = load.frontends.observed == load.frontends.expected > 0
        assert (load.generating is not None) == complete == (facts.load_status == "complete")


@given(st.lists(st.dictionaries(MODELS, SAMPLES, max_size=3), max_size=8))
def test_totals_never_go_down(samples: list[dict[str, Sample]]) -> None:
    totals: dict[str, Any] = {}
    before: dict[str, Sample] | None = None
    for now in samples:
        after = added(totals, before, now)
        for model, old in totals.items():
            assert all(getattr(after[model], name) >= getattr(old, name) for name in old.__struct_fields__)
        totals, before = after, now


@given(
    st.binary(max_size=300)
    | st.text(max_size=200).map(lambda text: f'{{"data":[{{"id":"{text}"}}]}}'.encode())
)
def test_any_list_of_models_must_be_read_or_refused(body: bytes) -> None:
    try:
        found = read_models(body)
    except InvalidField:
        return
    assert list(found) == sorted(set(found))


LINES = st.tuples(
    st.sampled_from(["dynamo_frontend_inflight_requests", "vllm:num_requests_running", "other"]),
    st.text(max_size=20),
    st.text(max_size=12) | st.integers(0, 9).map(str),
).map(lambda parts: f'{parts[0]}{{model="{parts[1]}"}} {parts[2]}')


@given(
    st.lists(LINES, max_size=10).map(lambda lines: "\n".join(lines).encode(errors="replace"))
    | st.binary(max_size=200)
)
def test_any_page_of_metrics_must_be_read_or_tell_nothing(body: bytes) -> None:
    found = read_load(body)
    for sample in (found or {}).values():
        assert all(value is None or value >= 0 for value in (sample.awaiting, sample.generating))
