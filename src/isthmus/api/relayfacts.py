"""What a relay tells routers over HTTP beside its load: its identity, catalogue and readiness (PW-13).

relay/ makes these of what it sees in its cluster; api/pools.py has the base and the load. Snapshots are
whole: what one lacks has been withdrawn (RL-9). `status` is complete, degraded or unavailable, and `age_ms`
is how old the facts were when they were sent. Pure.
"""

from __future__ import annotations

from isthmus.api.pools import PROTOCOL, Message


class CatalogEntry(Message, frozen=True, kw_only=True):
    """A model that a pool serves, as its relay's catalogue has it (PW-13). `base` is the model that an
    adapter belongs to, empty for one that is none; `roles` are those of the workers that there should be.
    That it is listed says nothing of readiness (RL-10)."""

    namespace: str
    model: str
    base: str = ""
    aliases: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    max_concurrency: int | None = None


class ReadinessEntry(Message, frozen=True, kw_only=True):
    """Whether one model of a pool can be asked (PW-13): `state` is READY, UNAVAILABLE or UNKNOWN."""

    namespace: str
    model: str
    state: str
    present_roles: tuple[str, ...] = ()
    missing_roles: tuple[str, ...] = ()


class CatalogSnapshot(Message, frozen=True, kw_only=True):
    """What GET /v1/catalog of a relay answers: whole, so that what is missing is withdrawn (RL-9)."""

    incarnation: str
    revision: int
    status: str
    age_ms: int
    entries: tuple[CatalogEntry, ...] = ()


class ReadinessSnapshot(Message, frozen=True, kw_only=True):
    """What GET /v1/readiness of a relay answers."""

    incarnation: str
    revision: int
    status: str
    age_ms: int
    entries: tuple[ReadinessEntry, ...] = ()


class RelayIdentity(Message, frozen=True, kw_only=True):
    """What GET /v1/relay answers: whose pool it is, and which run of the relay (PW-13)."""

    cluster_id: str
    namespace: str
    name: str
    kind: str
    instance_id: str
    incarnation: str
    version: str
    protocol: int = PROTOCOL
    models: tuple[str, ...] = ()
