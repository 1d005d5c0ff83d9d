"""The words that the relay's parts share: what belongs to the pool, what was heard of it, what is told.

roster.py makes a Roster of EndpointSlices or pods; heard.py keeps what each frontend last said; compose.py
turns both into Facts. Everything is frozen; nothing here computes more than a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from isthmus.api.pools import Frontend, Location, Model, ModelLoad
from isthmus.api.relayfacts import CatalogEntry, ReadinessEntry

GRAPH: Final = "DynamoGraphDeployment"
SERVING: Final = "ModelServing"
KINDS: Final = (GRAPH, SERVING)

AGGREGATED: Final = "aggregated"
TYPED: Final = ("prefill", "decode", "encode")
"""Roles that do a part of the work; one that does all of it is `aggregated` (RL-10)."""
ROLES: Final = (*TYPED, AGGREGATED)

Status = Literal["complete", "degraded", "unavailable"]


class Selection(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Which pool, and what of it.

    `namespaces` are the Dynamo namespaces that count, all where it is empty; `prefixes` choose workers by the
    beginning of NAMESPACE.COMPONENT, all where empty. `frontend_roles` are the roles of a ModelServing whose
    entry pods take requests, those that do no typed part of the work where empty. `port` is for frontends
    that name none.
    """

    kind: str
    namespace: str
    name: str
    namespaces: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    frontend_roles: tuple[str, ...] = ()
    port: int = 8000


class Door(msgspec.Struct, frozen=True, gc=False, kw_only=True, order=True):
    """A frontend that takes requests: one address of the pool's OpenAI server, without a path."""

    url: str
    service: str = ""
    zone: str = ""


class Crew(msgspec.Struct, frozen=True, gc=False, kw_only=True, order=True):
    """The workers of one component: how many there are, and how many of them are ready."""

    namespace: str
    component: str
    role: str
    total: int = 0
    ready: int = 0


class Roster(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Who belongs to the pool now: ready frontends by URL, workers by component, and the Dynamo namespaces
    that were seen. `left_out`: ready frontends beyond the number that is asked. `stale`: the API server has
    said nothing for long, so that others may have come or gone."""

    doors: tuple[Door, ...] = ()
    crews: tuple[Crew, ...] = ()
    namespaces: tuple[str, ...] = ()
    left_out: int = 0
    stale: bool = False


class Card(msgspec.Struct, frozen=True, gc=False, order=True):
    """A model as a frontend lists it. `base`: the model that it adapts, empty for one that is no adapter."""

    id: str
    base: str = ""


class Sample(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one frontend's metrics say of one model: requests now, and counts since the frontend's start.
    None: it does not say."""

    awaiting: int | None = None
    generating: int | None = None
    started: int | None = None
    completed: int | None = None
    failed: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    max_sequences: int | None = None


class Totals(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Counts of one model over all frontends since this run of the relay began; they never go down."""

    started: int = 0
    completed: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Heard(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one frontend has said. `cards` is None while it has not answered, or has stopped to; `failures`
    are those in a row. `load` is its last sample by model, None where it gives none; `load_at` when that
    was, monotonic."""

    cards: tuple[Card, ...] | None = None
    asked: bool = False
    failures: int = 0
    problem: str = ""
    load: Mapping[str, Sample] | None = None
    load_at: float = 0.0


class Settings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the relay was told about its pool. `aliases` are further names by model; `max_concurrency` is what
    the pool takes at once, in requests, None: as its frontends say. `namespace` is the pool's own Dynamo
    namespace."""

    namespace: str
    cluster_id: str
    location: Location = Location()
    aliases: Mapping[str, tuple[str, ...]] = {}
    max_concurrency: int | None = None
    load_max_age_s: float = 3.0


class Facts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All that is told of the pool at one instant.

    `status` is that of catalogue and readiness, `load_status` of the load, `load_at` the age of its oldest
    part as a monotonic time. `models`, `frontends`, `namespaces` and `location` are what is registered.
    """

    status: Status
    models: tuple[Model, ...] = ()
    frontends: tuple[Frontend, ...] = ()
    namespaces: tuple[str, ...] = ()
    location: Location = Location()
    catalog: tuple[CatalogEntry, ...] = ()
    readiness: tuple[ReadinessEntry, ...] = ()
    crews: tuple[Crew, ...] = ()
    load_status: Status = "unavailable"
    load: tuple[ModelLoad, ...] = ()
    load_at: float = 0.0
