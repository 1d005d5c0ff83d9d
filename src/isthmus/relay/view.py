"""The relay's one view of its pool: what the caches have, what frontends said, and what follows is told.

The caches, the prober and the sources file change it; each change makes it dirty, and `keep` composes anew,
at most ten times a second, and publishes the load once in each window (RL-14). Nothing is published before
the caches are complete and every frontend has been asked once: unknown is not empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from isthmus import logs
from isthmus.api.pools import Registration, RelayRun
from isthmus.clock import Clock
from isthmus.relay.options import RelayOptions
from isthmus.relay.plan import heard as hearing
from isthmus.relay.plan.compose import cards_of, compose
from isthmus.relay.plan.model import Card, Facts, Heard, Roster, Sample, Selection, Totals
from isthmus.relay.planes import Plane
from isthmus.runtime.tasks import wait_event

log = logs.get(__name__)

MIN_GAP_S: Final = 0.1
WINDOW_S: Final = 1.0
MAX_MODELS_COUNTED: Final = 1024
"""Models whose totals are kept."""


class View:
    """See the module. `read` makes a Roster of what the caches hold, or None while they are not complete."""

    def __init__(
        self, options: RelayOptions, read: Callable[[Selection], Roster | None], clock: Clock
    ) -> None:
        self.options = options
        self.selection = options.selection
        self.roster: Roster | None = None
        self.heard: dict[str, Heard] = {}
        self.totals: Mapping[str, Totals] = {}
        self.catalog, self.readiness, self.load = Plane("catalogue"), Plane("readiness"), Plane("load")
        self.revision = 0
        """Of what is registered; 0 while there is nothing to register."""
        self.changed = asyncio.Event()
        """What is registered has changed. Whoever waits for it clears it."""
        self.moved = asyncio.Event()
        """Frontends have come or gone. Whoever waits for it clears it."""
        self._read = read
        self._clock = clock
        self._known: tuple[Card, ...] = ()
        self._facts: Facts | None = None
        self._dirty = asyncio.Event()

    @property
    def facts(self) -> Facts | None:
        """What is told now; None where nothing is known yet."""
        return self._facts

    @property
    def planes(self) -> tuple[Plane, ...]:
        """All three."""
        return self.catalog, self.readiness, self.load

    def registration(self) -> Registration:
        """What is registered at the present revision."""
        facts, options = self._facts, self.options
        assert facts is not None
        return Registration(
            cluster_id=options.cluster_id,
            namespace=options.selection.namespace,
            name=options.selection.name,
            relay=RelayRun(url=options.advertise, incarnation=options.incarnation, revision=self.revision),
            runtime_namespaces=facts.namespaces[:256],
            location=facts.location,
            models=facts.models,
            frontends=facts.frontends,
        )

    # What changes it.

    def touch(self) -> None:
        """Something in the caches may have changed."""
        self._dirty.set()

    def select(self, namespaces: tuple[str, ...]) -> None:
        """Only these Dynamo namespaces count from now on."""
        self.selection = replace(self.selection, namespaces=namespaces)
        self.touch()

    def tell(self, url: str, change: Callable[[Heard], Heard]) -> None:
        """A frontend has answered, or not; one that has gone meanwhile is not heard."""
        if url in self.heard:
            self.heard[url] = change(self.heard[url])
            self.touch()

    def tell_load(self, url: str, sample: Mapping[str, Sample]) -> None:
        """A frontend has told its load."""
        before = self.heard.get(url)
        if before is None:
            return
        now = self.heard[url] = hearing.sampled(before, sample, self._clock.monotonic())
        assert now.load is not None
        totals = hearing.added(self.totals, before.load, now.load)
        if len(totals) <= MAX_MODELS_COUNTED:
            self.totals = totals
        self.touch()

    # What follows.

    async def keep(self) -> None:
        """Keep what is told in line with what is known, until cancelled."""
        window = self._clock.monotonic()
        while True:
            await wait_event(self._dirty, max(0.0, window - self._clock.monotonic()), self._clock)
            self._dirty.clear()
            now = self._clock.monotonic()
            self.refresh(now, window=now >= window)
            if now >= window:
                window = now + WINDOW_S
            await self._clock.sleep(MIN_GAP_S)

    def refresh(self, now: float, *, window: bool) -> None:
        """Compose anew, and publish what is different; the load at the end of each `window`."""
        roster = self._read(self.selection)
        if roster is None:
            return
        self._enrol(roster)
        if self._facts is None and not all(found.asked for found in self.heard.values()):
            return
        self._known = cards_of(roster, self.heard, self._known)
        facts = compose(roster, self.heard, self.options.settings, known=self._known, now=now)
        before, self._facts = self._facts, facts
        self.catalog.publish(facts, now, changed=before is None or _catalog(before) != _catalog(facts))
        self.readiness.publish(facts, now, changed=before is None or _readiness(before) != _readiness(facts))
        if window or before is None:
            self.load.publish(facts, now, changed=True)
        if before is None or _registered(before) != _registered(facts):
            self.revision += 1
            self.changed.set()
            log.info(
                "the pool has changed",
                revision=self.revision,
                models=[f"{each.id}{'' if each.ready else ' (not ready)'}" for each in facts.models],
                frontends=len(facts.frontends),
            )

    def _enrol(self, roster: Roster) -> None:
        """Hear those that are there now, and no others."""
        urls = {door.url for door in roster.doors}
        if urls != self.heard.keys():
            self.heard = {url: self.heard.get(url, Heard()) for url in sorted(urls)}
            self.moved.set()
        self.roster = roster


def _catalog(facts: Facts) -> object:
    return (
        facts.status,
        facts.catalog,
        tuple((crew.namespace, crew.component, crew.role) for crew in facts.crews),
    )


def _readiness(facts: Facts) -> object:
    return facts.status, facts.readiness, _catalog(facts)


def _registered(facts: Facts) -> object:
    return facts.models, facts.frontends, facts.namespaces, facts.location
