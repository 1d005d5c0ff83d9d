"""What is told of a pool: models, readiness by roles, and load that is whole or not told."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.pools import Location
from isthmus.relay.plan.compose import cards_of, compose
from isthmus.relay.plan.model import Card, Crew, Facts, Heard, Roster, Sample
from tests.support.relayfacts import DYNAMO, crew, door, heard, roster, settings

NOW = 100.0
ONE, TWO = door(1), door(2)
FRESH: dict[str, Any] = {"load_at": NOW - 1.0}


def tell(found: Roster, said: dict[str, Heard], known: tuple[Card, ...] = (), **told: Any) -> Facts:
    return compose(found, said, settings(**told), known=known, now=NOW)


def states(facts: Facts) -> dict[str, str]:
    return {entry.model: entry.state for entry in facts.readiness}


@pytest.mark.covers("RL-9", "RL-10")
def test_models_must_be_the_union_of_what_answering_frontends_list() -> None:
    said = {ONE.url: heard("a", "b"), TWO.url: heard("b", "c"), "http://gone": heard("d")}
    facts = tell(roster(ONE, TWO), said)
    assert states(facts) == {"a": "READY", "b": "READY", "c": "READY"}
    assert (facts.status, [each.url for each in facts.frontends]) == ("complete", [ONE.url, TWO.url])
    assert [entry.frontends.ready for entry in facts.load] == [1, 2, 1]
    assert [entry.namespace for entry in facts.catalog] == [DYNAMO] * 3


@pytest.mark.covers("RL-10")
@pytest.mark.parametrize(
    ("crews", "state", "missing"),
    [
        ((crew(),), "READY", ()),
        ((crew(ready=0),), "UNAVAILABLE", ("aggregated",)),
        ((crew("prefill"), crew("decode")), "READY", ()),
        ((crew("prefill"), crew("decode", ready=0)), "UNAVAILABLE", ("decode",)),
        ((crew("prefill", ready=0), crew("decode", ready=0)), "UNAVAILABLE", ("decode", "prefill")),
        ((crew("decode"),), "READY", ()),
        ((crew(), crew("prefill", ready=0), crew("decode", ready=0)), "READY", ()),
        ((crew(ready=0), crew("prefill"), crew("decode")), "UNAVAILABLE", ("aggregated",)),
        ((crew("decode"), crew("encode", ready=0)), "UNAVAILABLE", ("encode",)),
        ((crew("decode", ready=0), crew("decode", component="d2")), "READY", ()),
    ],
)
def test_readiness_must_follow_the_roles(
    crews: tuple[Crew, ...], state: str, missing: tuple[str, ...]
) -> None:
    facts = tell(roster(ONE, crews=crews), {ONE.url: heard("a")})
    (entry,) = facts.readiness
    assert (entry.state, entry.missing_roles) == (state, missing)
    assert set(entry.present_roles).isdisjoint(missing)
    assert facts.models[0].ready == (state == "READY")


def test_pool_without_workers_to_be_seen_must_be_as_ready_as_its_frontends() -> None:
    bare = Roster(doors=(ONE,))
    assert states(tell(bare, {ONE.url: heard("a")})) == {"a": "READY"}
    assert states(tell(Roster(), {}, (Card("a"),))) == {"a": "UNAVAILABLE"}


@pytest.mark.covers("RL-10")
def test_models_must_stay_known_and_not_be_ready_while_no_frontend_answers() -> None:
    known = (Card("a"),)
    silent = tell(roster(ONE), {ONE.url: Heard(asked=True, failures=2)}, known)
    assert (states(silent), silent.status, silent.frontends) == ({"a": "UNKNOWN"}, "unavailable", ())
    none = tell(roster(), {}, known)
    assert states(none) == {"a": "UNAVAILABLE"}
    assert cards_of(roster(ONE), {ONE.url: heard("b")}, known) == (Card("b"),)
    assert cards_of(roster(ONE), {ONE.url: Heard()}, known) == known


def test_some_silent_frontends_must_degrade_and_not_be_offered() -> None:
    facts = tell(roster(ONE, TWO), {ONE.url: heard("a"), TWO.url: Heard(asked=True)})
    assert (facts.status, [each.url for each in facts.frontends]) == ("degraded", [ONE.url])
    assert states(facts) == {"a": "READY"}


def test_alias_must_be_a_name_of_its_model_and_no_model() -> None:
    facts = tell(roster(ONE), {ONE.url: heard("big/model", "tiny")}, aliases={"big/model": ("tiny", "t")})
    assert [(model.id, model.aliases) for model in facts.models] == [("big/model", ("tiny", "t"))]
    other = tell(roster(ONE), {ONE.url: heard("tiny")}, aliases={"big/model": ("tiny",)})
    assert [model.id for model in other.models] == ["tiny"]


@pytest.mark.covers("RL-11")
def test_load_must_be_added_up_where_every_frontend_tells() -> None:
    said = {
        ONE.url: heard("A", load={"a": Sample(awaiting=1, generating=2)}, **FRESH),
        TWO.url: heard("A", load={"a": Sample(awaiting=3, generating=4), "b": Sample(awaiting=9)}, **FRESH),
    }
    facts = tell(roster(ONE, TWO), said)
    (entry,) = facts.load
    assert (entry.awaiting_first_token, entry.generating, facts.load_status) == (4, 6, "complete")
    assert (entry.frontends.expected, entry.frontends.observed) == (2, 2)
    assert facts.load_at == NOW - 1.0


@pytest.mark.covers("RL-11")
@pytest.mark.parametrize(
    ("second", "status"),
    [
        (heard("a"), "degraded"),
        (heard("a", load={"a": Sample(awaiting=1)}, load_at=NOW - 3.1), "degraded"),
        (heard("a", load={}, load_at=NOW - 3.0), "complete"),
    ],
)
def test_half_a_sum_never_counts_as_load(second: Heard, status: str) -> None:
    said = {ONE.url: heard("a", load={"a": Sample(awaiting=1, generating=0)}, **FRESH), TWO.url: second}
    facts = tell(roster(ONE, TWO), said)
    (entry,) = facts.load
    assert facts.load_status == status
    assert entry.awaiting_first_token == (1 if status == "complete" else None)


def test_no_frontend_that_tells_must_make_load_unavailable() -> None:
    facts = tell(roster(ONE), {ONE.url: heard("a")})
    assert (facts.load_status, facts.load[0].awaiting_first_token, facts.load_at) == (
        "unavailable",
        None,
        NOW,
    )
    beyond = tell(roster(ONE, left_out=1), {ONE.url: heard("a", load={}, **FRESH)})
    assert (beyond.load_status, beyond.status) == ("degraded", "degraded")


@pytest.mark.covers("RL-11")
def test_concurrency_must_be_told_or_that_of_ready_workers() -> None:
    said = {ONE.url: heard("a", load={"a": Sample(awaiting=0, max_sequences=64)}, **FRESH)}
    crews = (crew("decode", ready=3), crew("prefill", ready=5))
    assert tell(roster(ONE, crews=crews), said).models[0].max_concurrency == 192
    assert tell(roster(ONE, crews=crews), said, max_concurrency=7).load[0].max_concurrency == 7
    assert tell(roster(ONE), {ONE.url: heard("a")}).models[0].max_concurrency is None


def test_zone_must_be_told_or_that_of_all_frontends() -> None:
    near, far = door(1, zone="a"), door(2, zone="b")
    assert tell(roster(near), {}).location == Location(availability_zone="a", cluster="one")
    assert tell(roster(near, far), {}).location.availability_zone == ""
    told = tell(roster(near), {}, location=Location(region="r", availability_zone="z", datacenter="d"))
    assert told.location == Location(region="r", availability_zone="z", datacenter="d", cluster="one")
