"""Who belongs to the pool, and what its frontends said -> all that is told of it: `compose`.

The relay calls it whenever either changes, and once a second for the load. A model is READY where a ready
frontend lists it and no role of workers is missing (RL-10): an aggregated crew does alone, else each typed
role that the pool has must have somebody. While no frontend answers, the models that were known stay, not
ready: a pool that restarts is not one without models. A gauge of the load is told only where every frontend
has told its own, since half a sum would read as less load (RL-11). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from isthmus.api.pools import MAX_ITEMS, Frontend, LoadFrontends, Location, Model, ModelLoad
from isthmus.api.relayfacts import CatalogEntry, ReadinessEntry
from isthmus.relay.plan.model import (
    AGGREGATED,
    Card,
    Door,
    Facts,
    Heard,
    Roster,
    Sample,
    Settings,
    Status,
)


def compose(
    roster: Roster,
    heard: Mapping[str, Heard],
    settings: Settings,
    *,
    known: tuple[Card, ...],
    now: float,
) -> Facts:
    """All that is told. `heard` is by URL, `known` the models of the last time that a frontend answered;
    `now` is monotonic."""
    answering = {door.url: cards for door in roster.doors if (cards := _cards(heard, door)) is not None}
    cards = _merged(answering.values()) if answering else known
    models = _canonical(cards, settings)
    declared, missing = _roles(roster)
    present = tuple(role for role in declared if role not in missing)
    ready = {each: _listing(each, answering) for each in models}
    state = "UNKNOWN" if roster.doors and not answering else "UNAVAILABLE"
    catalog, readiness = [], []
    for card, names in models.items():
        catalog.append(
            CatalogEntry(
                namespace=settings.namespace,
                model=card.id,
                base=card.base,
                aliases=tuple(name for name in names if name != card.id),
                roles=declared,
                max_concurrency=_concurrency(names, roster, heard, settings),
            )
        )
        readiness.append(
            ReadinessEntry(
                namespace=settings.namespace,
                model=card.id,
                state="READY" if ready[card] and not missing else state,
                present_roles=present,
                missing_roles=missing,
            )
        )
    load, load_status, load_at = _load(roster, heard, settings, models, ready, now)
    return Facts(
        status=_status(len(roster.doors) + roster.left_out + roster.stale, len(answering)),
        models=_registered(catalog, readiness),
        frontends=tuple(
            Frontend(url=door.url, service=door.service) for door in roster.doors if door.url in answering
        ),
        namespaces=roster.namespaces or (settings.namespace,),
        location=_location(roster.doors, settings),
        catalog=tuple(catalog),
        readiness=tuple(readiness),
        crews=roster.crews,
        load_status=load_status,
        load=load,
        load_at=load_at,
    )


def cards_of(roster: Roster, heard: Mapping[str, Heard], known: tuple[Card, ...]) -> tuple[Card, ...]:
    """The models to know from now on: those that the frontends list, or the known ones while none does."""
    found = [cards for door in roster.doors if (cards := _cards(heard, door)) is not None]
    return _merged(found) if found else known


def _cards(heard: Mapping[str, Heard], door: Door) -> tuple[Card, ...] | None:
    found = heard.get(door.url)
    return None if found is None else found.cards


def _merged(lists: Iterable[tuple[Card, ...]]) -> tuple[Card, ...]:
    found: dict[str, Card] = {}
    for cards in lists:
        for card in cards:
            found.setdefault(card.id, card)
    return tuple(found[name] for name in sorted(found)[:MAX_ITEMS])


def _canonical(cards: tuple[Card, ...], settings: Settings) -> dict[Card, tuple[str, ...]]:
    """Each model with all its names, its own first. A name that is another's alias is no model of its own."""
    there = {card.id for card in cards}
    taken = {
        alias
        for model, aliases in settings.aliases.items()
        if model in there
        for alias in aliases
        if alias != model
    }
    return {card: (card.id, *settings.aliases.get(card.id, ())) for card in cards if card.id not in taken}


def _roles(roster: Roster) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(roles that the pool has, those of them that nobody fills now and that are needed)."""
    declared = tuple(sorted({crew.role for crew in roster.crews})) or (AGGREGATED,)
    present = {crew.role for crew in roster.crews if crew.ready}
    if not roster.crews:
        return declared, () if roster.doors else declared
    if AGGREGATED in present:
        return declared, ()
    return declared, tuple(role for role in declared if role not in present)


def _listing(card: Card, answering: Mapping[str, tuple[Card, ...]]) -> int:
    """How many frontends list the model, under its own name."""
    return sum(any(each.id == card.id for each in cards) for cards in answering.values())


def _status(expected: int, observed: int) -> Status:
    if observed == 0:
        return "unavailable"
    return "complete" if observed == expected else "degraded"


def _concurrency(
    names: tuple[str, ...], roster: Roster, heard: Mapping[str, Heard], settings: Settings
) -> int | None:
    """What the pool takes at once of a model: as told, else what one worker takes, by its workers that are
    ready. Who only prefills keeps no request."""
    if settings.max_concurrency is not None:
        return settings.max_concurrency
    workers = sum(crew.ready for crew in roster.crews if crew.role in ("decode", AGGREGATED))
    each = [
        sample.max_sequences
        for door in roster.doors
        for sample in _samples(heard.get(door.url), names)
        if sample.max_sequences
    ]
    found = max(each, default=0) * workers
    return found if 0 < found < 1 << 31 else None


def _samples(heard: Heard | None, names: tuple[str, ...]) -> Iterator[Sample]:
    """What a frontend says under any of the names; Dynamo's metrics have them in lower case."""
    wanted = {name.lower() for name in names}
    for label, sample in ((heard.load if heard else None) or {}).items():
        if label.lower() in wanted:
            yield sample


def _registered(catalog: list[CatalogEntry], readiness: list[ReadinessEntry]) -> tuple[Model, ...]:
    return tuple(
        Model(
            id=entry.model,
            aliases=entry.aliases,
            ready=state.state == "READY",
            roles=entry.roles,
            max_concurrency=entry.max_concurrency,
        )
        for entry, state in zip(catalog, readiness, strict=True)
    )


def _location(doors: tuple[Door, ...], settings: Settings) -> Location:
    """As told; the zone is that of the nodes where all frontends are in one."""
    told = settings.location
    zones = {door.zone for door in doors}
    zone = told.availability_zone or (zones.pop() if len(zones) == 1 else "")
    return Location(
        region=told.region,
        availability_zone=zone,
        cluster=told.cluster or settings.cluster_id,
        datacenter=told.datacenter,
    )


def _load(
    roster: Roster,
    heard: Mapping[str, Heard],
    settings: Settings,
    models: Mapping[Card, tuple[str, ...]],
    ready: Mapping[Card, int],
    now: float,
) -> tuple[tuple[ModelLoad, ...], Status, float]:
    """(entries, status, monotonic time of the oldest sample among them)."""
    fresh = [
        found
        for door in roster.doors
        if (found := heard.get(door.url)) is not None
        and found.load is not None
        and now - found.load_at <= settings.load_max_age_s
    ]
    expected = len(roster.doors) + roster.left_out
    status = _status(expected, len(fresh))
    entries = []
    for card, names in models.items():
        samples = [sample for found in fresh for sample in _samples(found, names)]
        whole = status == "complete"
        entries.append(
            ModelLoad(
                model=card.id,
                awaiting_first_token=sum(each.awaiting or 0 for each in samples) if whole else None,
                generating=sum(each.generating or 0 for each in samples) if whole else None,
                frontends=LoadFrontends(expected=expected, observed=len(fresh), ready=ready[card]),
                max_concurrency=_concurrency(names, roster, heard, settings),
            )
        )
    return tuple(entries), status, min((found.load_at for found in fresh), default=now)
