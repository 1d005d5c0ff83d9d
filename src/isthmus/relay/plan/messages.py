"""Facts -> the messages of `dynamo.kvrelay.v1`, and its requests -> what they ask (RL-6 to RL-16).

grpc.py sends what these make. Field numbers are those of relay.proto beside this module, which is the
contract in our words; a test compiles that and reads these with it. This relay has no KV events, so a pool
that the catalogue lists has an identity of its own making and the smallest filter there can be, and asking
for that filter answers UNSUPPORTED_FEATURE (RL-17). Counts of tokens that frontends do not give are 0. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from isthmus.api.pools import ModelLoad
from isthmus.api.relayfacts import CatalogEntry, ReadinessEntry
from isthmus.relay.plan import protobuf as pb
from isthmus.relay.plan.model import AGGREGATED, Crew, Facts, Status, Totals

SERVICE: Final = "dynamo.kvrelay.v1.KvEventRelay"
MARKER: Final = 0x4B565231
MARKER_FIELD: Final = 127
PROTOCOL_VERSION: Final = 1
MAX_SUBSCRIBER_BYTES: Final = 128
ROLE_NUMBERS: Final = {"prefill": 1, "decode": 2, "encode": 3, AGGREGATED: 4, "legacy": 5}
STATE_NUMBERS: Final = {"UNKNOWN": 0, "UNAVAILABLE": 1, "READY": 2}
STATUS_NUMBERS: Final[dict[Status, int]] = {"complete": 1, "degraded": 2, "unavailable": 3}
WINDOW_MS: Final = 1000
ENDPOINT: Final = "generate"
"""What Dynamo calls the endpoint of a worker that takes requests."""
BLOCK_SIZE: Final = 16
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DERIVED: Final = 1
_STANDARD_HASH: Final = 1


class Refused(pb.Malformed):
    """A request that is not answered. `reason` is that of RL-12."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Asked(msgspec.Struct, frozen=True):
    """A request: who asks. `pool` is the producer that a subscription to a filter names, b"" for none."""

    subscriber: str = ""
    pool: bytes = b""


class Speaker(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: the relay's own numbers (RL-8), and its cluster's (RL-15)."""

    instance: int
    incarnation: int
    cluster: int


def number_of(text: str) -> int:
    """64 bits that stand for a text; the number itself where the text is one in 16 hexadecimal digits."""
    if re.fullmatch(r"[0-9a-f]{16}", text):
        return int(text, 16)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def read_request(message: bytes, *, named: bool) -> Asked:
    """What a request asks. `named`: it must say who asks (RL-7). Raises Refused."""
    marker, subscriber, pool = 0, "", b""
    try:
        for field, value in pb.fields(message):
            if field == MARKER_FIELD and isinstance(value, int):
                marker = value
            elif field == 1 and isinstance(value, bytes):
                subscriber = value.decode()
            elif field == 2 and isinstance(value, bytes):
                pool = value
    except (pb.Malformed, UnicodeDecodeError) as problem:
        raise Refused("INVALID_REQUEST", f"the request is no message: {problem}") from None
    if marker != MARKER:
        raise Refused("CONTRACT_MISMATCH", f"contract_marker must be {MARKER:#x}")
    if named and not subscriber:
        raise Refused("INVALID_REQUEST", "subscriber_id must not be empty")
    if len(subscriber.encode()) > MAX_SUBSCRIBER_BYTES or _CONTROL.search(subscriber):
        raise Refused(
            "INVALID_REQUEST", "subscriber_id must have at most 128 bytes and no control characters"
        )
    return Asked(subscriber, pool)


def relay_info(speaker: Speaker) -> bytes:
    """RelayInfo."""
    return _envelope(speaker)


def catalog(speaker: Speaker, revision: int, facts: Facts) -> bytes:
    """KvPoolCatalogUpdate."""
    pools = pb.messages(1, (_descriptor(speaker, crew, facts) for crew in _crews(facts)))
    return _envelope(speaker, pb.number(3, revision) + pb.raw(4, pools))


def readiness(speaker: Speaker, revision: int, facts: Facts) -> bytes:
    """ServingReadinessUpdate. Adapters stand below their models (RL-10), where those are told at all."""
    bases = {entry.model for entry in facts.catalog if not entry.base}
    adapters: dict[str, list[ReadinessEntry]] = {}
    entries: list[ReadinessEntry] = []
    for entry, described in zip(facts.readiness, facts.catalog, strict=True):
        if described.base and described.base in bases:
            adapters.setdefault(described.base, []).append(entry)
        else:
            entries.append(entry)
    body = (_topology(speaker, entry, adapters.get(entry.model, ()), facts) for entry in entries)
    return _envelope(speaker, pb.number(3, revision) + pb.messages(4, body))


def serving_load(
    speaker: Speaker, sequence: int, facts: Facts, totals: Mapping[str, Totals], times: tuple[int, int]
) -> bytes:
    """ServingLoadUpdate. `times`: wall clock in ms, now and of the oldest sample."""
    now, oldest = times
    pools = (_pool_load(speaker, crew) for crew in _crews(facts))
    models = (_model_load(speaker, entry, facts, _totals(entry, totals), oldest) for entry in facts.load)
    return _envelope(
        speaker,
        pb.number(3, sequence)
        + pb.number(4, now)
        + pb.number(5, WINDOW_MS)
        + pb.messages(6, pools)
        + pb.messages(7, models),
    )


def pool_load(speaker: Speaker, sequence: int, now_ms: int) -> bytes:
    """KvPoolLoadUpdate: an empty window, since nothing is known of KV caches."""
    body = pb.number(3, sequence) + pb.number(4, now_ms) + pb.number(5, WINDOW_MS)
    return _envelope(speaker, body)


def knows(speaker: Speaker, pool: bytes, facts: Facts) -> bool:
    """Whether a subscription names a pool that the catalogue has, of whatever generation."""
    try:
        wanted = next((value for field, value in pb.fields(pool) if field == 1), b"")
    except pb.Malformed:
        return False
    return any(wanted == _pool_id(speaker, crew) for crew in _crews(facts))


def health_service(message: bytes) -> str:
    """Which service a request of grpc.health.v1 asks about; what is no message asks about none that there
    is."""
    try:
        found = next((value for field, value in pb.fields(message) if field == 1), b"")
        return found.decode() if isinstance(found, bytes) else "?"
    except (pb.Malformed, UnicodeDecodeError):
        return "?"


def health(*, serving: bool | None) -> bytes:
    """HealthCheckResponse: SERVING, NOT_SERVING, or SERVICE_UNKNOWN for None."""
    return pb.number(1, 3 if serving is None else 1 if serving else 2)


def _envelope(speaker: Speaker, body: bytes = b"") -> bytes:
    identity = pb.fixed64(1, speaker.instance) + pb.fixed64(2, speaker.incarnation)
    head = pb.number(1, PROTOCOL_VERSION) + pb.raw(2, identity)
    return head + body + pb.fixed32(MARKER_FIELD, MARKER)


def _crews(facts: Facts) -> tuple[Crew, ...]:
    """The workers; where there are none to be seen, the frontends do the work."""
    if facts.crews or not facts.catalog:
        return facts.crews
    return (Crew(namespace=facts.catalog[0].namespace, component="frontend", role=AGGREGATED),)


def _pool_id(speaker: Speaker, crew: Crew) -> bytes:
    def digest(what: str) -> bytes:
        whole = "\0".join(("isthmus", what, crew.namespace, crew.component))
        return pb.raw(1, hashlib.sha256(whole.encode()).digest()[:16]) + pb.number(2, _DERIVED)

    domain = pb.raw(1, digest("cache")) + pb.raw(2, digest("routing"))
    return pb.number(1, 1) + pb.raw(2, domain) + pb.fixed64(3, speaker.cluster)


def _producer(speaker: Speaker, crew: Crew) -> bytes:
    smallest_filter = pb.number(1, 1) + pb.number(3, 2) + pb.number(4, 16) + pb.number(5, 4)
    return (
        pb.raw(1, _pool_id(speaker, crew))
        + pb.fixed64(2, speaker.incarnation)
        + pb.number(3, 1)
        + pb.raw(4, smallest_filter)
    )


def _endpoint(namespace: str, component: str) -> bytes:
    return pb.text(1, namespace) + pb.text(2, component) + pb.text(3, ENDPOINT)


def _registration(entry: CatalogEntry) -> bytes:
    if entry.base:
        target = pb.raw(2, pb.text(1, entry.base) + pb.text(2, entry.model))
    else:
        target = pb.raw(1, pb.text(1, entry.model))
    return pb.text(1, entry.model) + pb.raw(2, target) + pb.texts(3, entry.aliases)


def _descriptor(speaker: Speaker, crew: Crew, facts: Facts) -> bytes:
    return (
        pb.raw(1, _producer(speaker, crew))
        + pb.raw(2, _endpoint(crew.namespace, crew.component))
        + pb.messages(3, map(_registration, facts.catalog))
        + pb.raw(4, pb.number(1, BLOCK_SIZE) + pb.number(2, _STANDARD_HASH))
        + pb.numbers(5, (ROLE_NUMBERS[crew.role],))
    )


def _roles(roles: Iterable[str]) -> list[int]:
    return [ROLE_NUMBERS[role] for role in roles]


def _topology(
    speaker: Speaker, entry: ReadinessEntry, adapters: Iterable[ReadinessEntry], facts: Facts
) -> bytes:
    unknown = entry.state == "UNKNOWN"
    crews = _crews(facts)
    often = [role for role in ("prefill", "decode") if sum(crew.role == role for crew in crews) > 1]
    members = (
        pb.raw(1, _endpoint(entry.namespace, crew.component))
        + pb.numbers(2, (ROLE_NUMBERS[crew.role],))
        + pb.raw(3, _pool_id(speaker, crew))
        for crew in crews
    )
    below = (
        pb.text(1, each.model)
        + pb.number(2, STATE_NUMBERS[each.state])
        + pb.numbers(3, _roles(each.missing_roles))
        for each in adapters
    )
    return (
        pb.text(1, entry.namespace)
        + pb.text(2, entry.model)
        + pb.number(3, STATE_NUMBERS[entry.state])
        + pb.numbers(4, () if unknown else _roles(entry.present_roles))
        + pb.numbers(5, () if unknown else _roles(entry.missing_roles))
        + pb.messages(6, members)
        + pb.numbers(7, _roles(often))
        + pb.messages(9, below)
    )


def _pool_load(speaker: Speaker, crew: Crew) -> bytes:
    view = pb.raw(2, b"") + pb.number(3, STATUS_NUMBERS["unavailable"])
    return pb.raw(1, _producer(speaker, crew)) + pb.raw(2, view) + pb.raw(3, pb.optional(1, crew.ready))


def _totals(entry: ModelLoad, totals: Mapping[str, Totals]) -> Totals:
    """The counts under the model's name, or the same in lower case, as Dynamo's metrics have it."""
    return totals.get(entry.model) or totals.get(entry.model.lower()) or Totals()


def _model_load(speaker: Speaker, entry: ModelLoad, facts: Facts, totals: Totals, oldest_ms: int) -> bytes:
    whole = facts.load_status == "complete"
    requests = (
        pb.number(1, totals.started)
        + pb.number(2, totals.completed)
        + pb.number(3, totals.failed)
        + pb.optional(5, entry.awaiting_first_token)
        + pb.optional(6, entry.generating)
    )
    tokens = (
        pb.optional(3, 0 if whole else None)
        + pb.optional(4, 0 if whole else None)
        + pb.optional(5, totals.input_tokens)
        + pb.optional(6, totals.output_tokens)
    )
    view = pb.raw(1, requests) + pb.raw(2, tokens) + pb.number(3, STATUS_NUMBERS[facts.load_status])
    view += pb.number(4, 0 if facts.load_status == "unavailable" else oldest_ms)
    deployment = (
        pb.number(1, entry.frontends.expected)
        + pb.number(2, entry.frontends.observed)
        + pb.number(3, entry.frontends.ready)
        + pb.messages(4, (_pool_id(speaker, crew) for crew in _crews(facts)))
    )
    namespace = facts.catalog[0].namespace if facts.catalog else ""
    return pb.text(1, namespace) + pb.text(2, entry.model) + pb.raw(3, view) + pb.raw(4, deployment)
