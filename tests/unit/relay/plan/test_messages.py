"""Messages that are encoded by hand, read with protobuf's own code from relay.proto."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.relay.plan import messages
from isthmus.relay.plan.compose import compose
from isthmus.relay.plan.messages import MARKER, Refused, Speaker, number_of, read_request
from isthmus.relay.plan.model import Card, Facts, Heard, Roster, Sample, Totals
from tests.support.relayfacts import DYNAMO, crew, door, heard, roster, settings
from tests.support.relaygrpc import contract

SPEAKER = Speaker(instance=7, incarnation=(1 << 64) - 1, cluster=3)
ONE = door(1)
LOAD = {"a": Sample(awaiting=0, generating=2)}


def facts(*, load: bool = True, found: Roster | None = None, **said: Any) -> Facts:
    chosen = found or roster(ONE, crews=(crew("prefill"), crew("decode", ready=2)))
    listed = heard("a", "b", load=LOAD if load else None, load_at=9.0, **said)
    return compose(chosen, {ONE.url: listed}, settings(aliases={"a": ("x", "y")}), known=(), now=10.0)


def check_envelope(found: Any) -> None:
    assert (found.protocol_version, found.contract_marker) == (1, 0x4B565231)
    assert (found.relay.drt_instance_id, found.relay.relay_incarnation) == (7, (1 << 64) - 1)


def request(**parts: Any) -> bytes:
    raw: bytes = contract().Subscription(**({"contract_marker": MARKER} | parts)).SerializeToString()
    return raw


@pytest.mark.covers("RL-7", "RL-8")
def test_identity_must_have_marker_version_and_numbers() -> None:
    check_envelope(contract().RelayInfo.FromString(messages.relay_info(SPEAKER)))


@pytest.mark.covers("RL-9", "RL-15")
def test_catalogue_must_have_a_whole_descriptor_for_each_component() -> None:
    found = contract().KvPoolCatalogUpdate.FromString(messages.catalog(SPEAKER, 5, facts()))
    check_envelope(found)
    assert found.revision == 5
    decode, prefill = found.snapshot.pools
    assert [list(pool.pool_roles) for pool in (decode, prefill)] == [[2], [1]]
    for pool in (decode, prefill):
        identity = pool.producer.pool_id
        domain = identity.indexer_domain
        assert (identity.identity_version, identity.dc_id) == (1, 3)
        assert [len(each.digest) for each in (domain.cache_semantics, domain.routing_scope)] == [16, 16]
        assert [each.source for each in (domain.cache_semantics, domain.routing_scope)] == [1, 1]
        assert pool.producer.producer_incarnation == SPEAKER.incarnation
        assert pool.producer.layout_generation > 0
        shape = pool.producer.ckf_format
        assert (shape.format_version, shape.fingerprint_bits, shape.slots_per_bucket) == (1, 16, 4)
        assert shape.bucket_count == 2
        assert pool.query_semantics.kv_block_size > 0
        assert pool.query_semantics.hash_format == 1
        assert (pool.serving_endpoint.namespace, pool.serving_endpoint.endpoint) == (DYNAMO, "generate")
        assert [(each.canonical_model_id, list(each.aliases)) for each in pool.registrations] == [
            ("a", ["x", "y"]),
            ("b", []),
        ]
        assert [each.target.base.base_model for each in pool.registrations] == ["a", "b"]
    assert decode.producer.pool_id != prefill.producer.pool_id


@pytest.mark.covers("RL-9", "RL-10")
def test_adapter_must_stand_below_its_model() -> None:
    found = facts(cards=(Card("a"), Card("l", "a")))
    (pool, *_) = contract().KvPoolCatalogUpdate.FromString(messages.catalog(SPEAKER, 1, found)).snapshot.pools
    lora = pool.registrations[1].target
    assert (lora.WhichOneof("target"), lora.lora.base_model, lora.lora.adapter) == ("lora", "a", "l")
    update = contract().ServingReadinessUpdate.FromString(messages.readiness(SPEAKER, 1, found))
    (entry,) = update.entries
    assert [(each.canonical_model_id, each.state) for each in entry.adapters] == [("l", 2)]


@pytest.mark.covers("RL-10", "RL-16")
def test_readiness_must_have_state_roles_and_members() -> None:
    found = facts(found=roster(ONE, crews=(crew("prefill", ready=0), crew("decode"))))
    update = contract().ServingReadinessUpdate.FromString(messages.readiness(SPEAKER, 6, found))
    check_envelope(update)
    assert update.revision == 6
    for entry in update.entries:
        assert (entry.namespace, entry.state) == (DYNAMO, 1)
        assert (list(entry.present_roles), list(entry.missing_roles)) == ([2], [1])
        assert [(m.endpoint.namespace, m.endpoint.component, list(m.roles)) for m in entry.members] == [
            (DYNAMO, "decode", [2]),
            (DYNAMO, "prefill", [1]),
        ]
        assert all(member.HasField("pool_id") for member in entry.members)
        assert list(entry.duplicate_role_endpoints) == []


@pytest.mark.covers("RL-10")
def test_unknown_state_must_have_no_roles_and_doubles_must_be_told() -> None:
    crews = (crew("decode", component="d1"), crew("decode", component="d2"))
    found = compose(
        roster(ONE, crews=crews), {ONE.url: Heard(asked=True)}, settings(), known=(Card("a"),), now=1.0
    )
    (entry,) = contract().ServingReadinessUpdate.FromString(messages.readiness(SPEAKER, 1, found)).entries
    assert (entry.state, list(entry.present_roles), list(entry.missing_roles)) == (0, [], [])
    assert list(entry.duplicate_role_endpoints) == [2]
    assert len(entry.members) == 2


@pytest.mark.covers("RL-11", "RL-16")
def test_load_must_have_gauges_only_where_it_is_complete() -> None:
    totals = {"a": Totals(started=9, completed=8, failed=1, output_tokens=70)}
    raw = messages.serving_load(SPEAKER, 4, facts(), totals, (1000, 900))
    update = contract().ServingLoadUpdate.FromString(raw)
    check_envelope(update)
    assert (update.window_sequence, update.observed_ms, update.window_ms) == (4, 1000, 1000)
    model = update.models[0]
    requests, tokens = model.load.requests, model.load.tokens
    assert (model.namespace, model.canonical_model_id, model.load.status) == (DYNAMO, "a", 1)
    assert model.load.source_observed_ms == 900
    assert requests.HasField("awaiting_first_token")
    assert (requests.awaiting_first_token, requests.generating, requests.started_total) == (0, 2, 9)
    assert (requests.completed_total, requests.failed_total) == (8, 1)
    assert tokens.HasField("inflight_input_tokens")
    assert tokens.output_tokens_total == 70
    deployment = model.deployment
    counts = (deployment.expected_frontends, deployment.observed_frontends, deployment.ready_frontends)
    assert counts == (1, 1, 1)
    assert len(deployment.serving_pools) == 2
    for pool in update.pools:
        assert (pool.load.status, pool.load.HasField("tokens")) == (3, True)
        assert not pool.load.HasField("requests")
        assert pool.deployment.HasField("live_workers")
    silent = contract().ServingLoadUpdate.FromString(
        messages.serving_load(SPEAKER, 5, facts(load=False), totals, (1000, 900))
    )
    view = silent.models[0].load
    assert (view.status, view.source_observed_ms) == (3, 0)
    assert not view.requests.HasField("generating")
    assert not view.tokens.HasField("inflight_input_tokens")
    assert view.tokens.HasField("input_tokens_total")
    assert view.requests.started_total == 9


def test_pool_load_must_be_an_empty_window() -> None:
    update = contract().KvPoolLoadUpdate.FromString(messages.pool_load(SPEAKER, 3, 1000))
    check_envelope(update)
    assert (update.window_sequence, update.observed_ms, update.window_ms) == (3, 1000, 1000)


@pytest.mark.covers("RL-7")
def test_request_must_say_who_asks_and_by_which_contract() -> None:
    assert read_request(request(subscriber_id="é" * 64), named=True).subscriber == "é" * 64
    assert read_request(request(), named=False).subscriber == ""


@pytest.mark.covers("RL-7", "RL-12")
@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "CONTRACT_MISMATCH"),
        (request(subscriber_id="a", contract_marker=1), "CONTRACT_MISMATCH"),
        (request(), "INVALID_REQUEST"),
        (request(subscriber_id="x" * 129), "INVALID_REQUEST"),
        (request(subscriber_id="a\nb"), "INVALID_REQUEST"),
        (b"\xff", "INVALID_REQUEST"),
        (b"\x0a\x7f", "INVALID_REQUEST"),
        (b"\x0a\x01\xff" + request(), "INVALID_REQUEST"),
        (b"\x00\x00", "INVALID_REQUEST"),
        (b"\x0b", "INVALID_REQUEST"),
        (b"\xff" * 11, "INVALID_REQUEST"),
    ],
)
def test_request_that_is_not_right_must_be_refused_with_its_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        read_request(raw, named=True)
    assert caught.value.reason == reason


def test_subscription_to_a_filter_must_name_a_pool_that_there_is() -> None:
    found = facts()
    update = contract().KvPoolCatalogUpdate.FromString(messages.catalog(SPEAKER, 5, found))
    producer = update.snapshot.pools[0].producer
    producer.producer_incarnation = 1
    assert messages.knows(SPEAKER, producer.SerializeToString(), found)
    producer.pool_id.dc_id = 4
    assert not messages.knows(SPEAKER, producer.SerializeToString(), found)
    assert not messages.knows(SPEAKER, b"\xff", found)


def test_numbers_must_stand_for_texts() -> None:
    assert number_of("00000000000000ff") == 255
    assert number_of("east") == number_of("east") != number_of("west")
    assert 0 < number_of("east") < 1 << 64
