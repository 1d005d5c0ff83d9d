"""From a request's facts to the pools that it may be sent to, in order (PW-16, PW-17).

proxy.py asks `choose` per request, says `began` and `ended` of each try, and so feeds the counts and
breakers that the next choice goes by. The pipeline: pools that have the model -> those that can take a
request now -> the policy's order -> priority overrides in front. What is not known is never read as room: a
load that is too old, from the future, or of another run of the relay counts as none (GR-28). No I/O; `now`
is monotonic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from isthmus.api.pools import Model, Pool
from isthmus.router.plan import grid, load, locality
from isthmus.router.plan.breaker import CLOSED, Breaker, BreakerSettings
from isthmus.router.plan.directory import Directory
from isthmus.router.plan.grid import Defaults
from isthmus.router.plan.gridfile import Grid
from isthmus.router.plan.model import (
    Candidate,
    Choice,
    Load,
    Outcome,
    Place,
    Ranked,
    Refusal,
    RequestFacts,
)

GRID, LOAD, LOCALITY = "grid", "load", "locality"
POLICIES: Final = (GRID, LOAD, LOCALITY)
WHOLE: Final = frozenset({"aggregated", "legacy"})
MAX_SENT: Final = 16384


class PriorityRule(msgspec.Struct, frozen=True, gc=False):
    """Requests of these priorities try the pools of `selector` first. Both bounds belong to it (GR-15)."""

    low: int
    high: int
    selector: str


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How pools are chosen. `grid` is there where that is the policy. `limit`: requests of this router at one
    pool at once, 0: as many as its models say that they take, if they do. `max_load_age_s`: how old a load
    may be."""

    policy: str = LOAD
    grid: Grid | None = None
    defaults: Defaults = Defaults()
    place: Place = Place()
    spill_at: float = 0.9
    weights: Mapping[str, float] = {}
    priorities: tuple[PriorityRule, ...] = ()
    limit: int = 0
    max_load_age_s: float = 10.0
    breaker: BreakerSettings = BreakerSettings()


class Try(NamedTuple):
    """One request at one pool, from `began` to `ended`."""

    pool_id: str
    url: str
    pool_probe: bool
    url_probe: bool


class _Offer(NamedTuple):
    """What a pool is for a model, as far as that follows from what the directory knows: the model's own ID
    there, and why no request can go there, if so."""

    pool: Pool
    own: str
    unfit: str | None
    limit: int
    weight: float


class _Member:
    """What this router remembers of a pool."""

    __slots__ = ("breaker", "in_flight", "loads", "next", "sent", "urls")

    def __init__(self, settings: BreakerSettings) -> None:
        self.breaker = Breaker(settings)
        self.urls: dict[str, Breaker] = {}
        self.in_flight = 0
        self.loads: dict[str, Load] = {}
        self.sent: deque[float] = deque(maxlen=MAX_SENT)
        """When requests went there that `loads` cannot know of, since they were taken before."""
        self.next = 0


class Selector:
    """See the module. `directory` is filled by pools.py."""

    def __init__(self, settings: PolicySettings, directory: Directory) -> None:
        self._settings = settings
        self._members: dict[str, _Member] = {}
        self._offers: dict[str, tuple[_Offer, ...]] = {}
        self._offers_version = -1
        self.directory = directory

    @property
    def policy(self) -> dict[str, Any]:
        """What pools are chosen by, for diagnosis (GR-19): its name, and of a grid its mode and pools."""
        known = self._settings.grid
        if known is None:
            return {"name": self._settings.policy}
        return {"name": self._settings.policy, "mode": known.mode, "pools": known.pools, "retry": known.retry}

    def choose(self, facts: RequestFacts, now: float) -> Choice:
        """The pools to try for a request; a refusal where there is none."""
        offers = self._offers_of(facts.model)
        policy = self._settings.policy
        if not offers:
            return Choice(policy=policy, refusal=self._unknown(facts.model))
        reasons: list[str] = []
        candidates: list[Candidate] = []
        for offer in offers:
            why = self._why_not(offer, now)
            if why is None:
                candidates.append(self._candidate(offer, now))
            else:
                reasons.append(f"{offer.pool.key}: {why}")
        order = self._overridden(facts, candidates, self._order(facts, candidates))
        if not order:
            reasons += [
                f"{each.pool.key}: it is not what the grid has for this request" for each in candidates
            ]
            return Choice(policy=policy, refusal=_unready(facts.model, reasons))
        return Choice(tuple(order), policy)

    def why_not(self, pool: Pool, model: str, now: float) -> str | None:
        """Why a pool can take no request for a model now; None where it can."""
        return self._why_not(self._offer(pool, model), now)

    def _why_not(self, offer: _Offer, now: float) -> str | None:
        member = self._members.get(offer.pool.pool_id)
        if offer.unfit is not None or member is None:
            return offer.unfit
        if not member.breaker.allows(now):
            return f"its circuit breaker is {member.breaker.state(now)}"
        if offer.limit and member.in_flight >= offer.limit:
            return f"it has {member.in_flight} requests of this router, which is its limit"
        for url in offer.pool.frontend_urls:
            if _allows(member, url, now):
                return None
        return "none of its frontends can be reached"

    def _offers_of(self, model: str) -> tuple[_Offer, ...]:
        """What the pools that have a model are for it, kept until the directory changes."""
        if self._offers_version != self.directory.version:
            self._offers.clear()
            self._offers_version = self.directory.version
        found = self._offers.get(model)
        if found is None:
            pools = self.directory.serving(model)
            if not pools:
                return ()  # clients can make up any number of names: nothing is kept of them
            found = self._offers[model] = tuple(self._offer(pool, model) for pool in pools)
        return found

    def _offer(self, pool: Pool, model: str) -> _Offer:
        here = next((each for each in pool.models if model in each.names), None)
        unfit = None
        if here is None or not is_routable(here):
            unfit = "the model is not ready there"
        elif not pool.frontend_urls:
            unfit = "it has no frontend"
        weight = self._settings.weights.get(pool.cluster_id, 1.0)
        return _Offer(pool, model if here is None else here.id, unfit, self.limit_of(pool), weight)

    def limit_of(self, pool: Pool) -> int:
        """Requests of this router that may be there at once; 0: no limit."""
        return self._settings.limit or locality.capacity_of(pool)

    def began(self, pool_id: str, now: float) -> Try | None:
        """A request goes to this pool, and to which of its frontends: each in its turn. None where the pool
        has left or cannot take it any more."""
        pool = self.directory.get(pool_id)
        if pool is None:
            return None
        member = self._members.setdefault(pool_id, _Member(self._settings.breaker))
        limit = self.limit_of(pool)
        if not member.breaker.allows(now) or (limit and member.in_flight >= limit):
            return None
        urls = pool.frontend_urls
        for turn in range(len(urls)):
            url = urls[(member.next + turn) % len(urls)]
            if _allows(member, url, now):
                member.next = (member.next + turn + 1) % len(urls)
                member.in_flight += 1
                if member.loads:
                    member.sent.append(now)
                breaker = member.urls.setdefault(url, Breaker(self._settings.breaker))
                return Try(pool_id, url, member.breaker.began(now), breaker.began(now))
        return None

    def ended(self, each: Try, outcome: Outcome, now: float) -> None:
        """A try has ended so."""
        member = self._members.get(each.pool_id)
        if member is None:
            return
        member.in_flight = max(0, member.in_flight - 1)
        member.breaker.ended(outcome, now, probe=each.pool_probe)
        if (breaker := member.urls.get(each.url)) is not None:
            breaker.ended(outcome, now, probe=each.url_probe)
        if outcome is Outcome.OK:
            self.directory.answered(each.pool_id, now)
        if member.breaker.state(now) != CLOSED:
            self.directory.drop_doubtful(each.pool_id)
        if member.in_flight == 0 and self.directory.get(each.pool_id) is None:
            del self._members[each.pool_id]

    def set_loads(self, pool_id: str, loads: Mapping[str, Load]) -> None:
        """A sample of a pool's loads, by model; empty where there is none to go by any more (GR-29). What
        this router sent after the sample was true counts on top of it; what it sent before is in it."""
        if self.directory.get(pool_id) is None:
            return
        member = self._members.setdefault(pool_id, _Member(self._settings.breaker))
        member.loads = dict(loads)
        taken_s = min((each.taken_s for each in loads.values()), default=float("inf"))
        while member.sent and member.sent[0] <= taken_s:
            member.sent.popleft()

    def forget_gone(self) -> None:
        """Drop what is remembered of pools that have left and run nothing; of frontends too."""
        for pool_id, member in list(self._members.items()):
            pool = self.directory.get(pool_id)
            if pool is None:
                if member.in_flight == 0:
                    del self._members[pool_id]
                continue
            for url in member.urls.keys() - set(pool.frontend_urls):
                del member.urls[url]

    @property
    def remembered(self) -> int:
        """Of how many pools something is remembered: of some that are known, and of those that left and still
        run something."""
        return len(self._members)

    @property
    def remembered_models(self) -> int:
        """Of how many names of models something is remembered."""
        return len(self._offers)

    def in_flight(self, pool_id: str) -> int:
        """This router's requests at a pool now."""
        member = self._members.get(pool_id)
        return 0 if member is None else member.in_flight

    def breaker_state(self, pool_id: str, now: float) -> str:
        """Of a pool's breaker."""
        member = self._members.get(pool_id)
        return CLOSED if member is None else member.breaker.state(now)

    def frontend_states(self, pool: Pool, now: float) -> dict[str, str]:
        """The breaker's state of each frontend of a pool."""
        member = self._members.get(pool.pool_id)
        urls = {} if member is None else member.urls
        return {url: urls[url].state(now) if url in urls else CLOSED for url in pool.frontend_urls}

    def load_age_s(self, pool_id: str, model: str, now: float) -> float | None:
        """How old the load is that a choice would go by; None where there is none."""
        member, pool = self._members.get(pool_id), self.directory.get(pool_id)
        if member is None or pool is None:
            return None
        found = self._fresh(member, self._offer(pool, model).own, now)
        return None if found is None else now - found.taken_s

    def _candidate(self, offer: _Offer, now: float) -> Candidate:
        member = self._members.get(offer.pool.pool_id)
        if member is None:
            return Candidate(offer.pool, limit=offer.limit, weight=offer.weight)
        sample = self._fresh(member, offer.own, now)
        return Candidate(offer.pool, member.in_flight, len(member.sent), sample, offer.limit, offer.weight)

    def _fresh(self, member: _Member, model: str, now: float) -> Load | None:
        """The load, where it is neither too old nor from the future (GR-28, D-29)."""
        found = member.loads.get(model)
        if found is None or not 0 <= now - found.taken_s <= self._settings.max_load_age_s:
            return None
        return found

    def _order(self, facts: RequestFacts, candidates: Sequence[Candidate]) -> list[Ranked]:
        settings = self._settings
        if settings.policy == LOCALITY:
            return locality.rank(candidates, settings.place, settings.spill_at)
        if settings.grid is not None:
            return self._grid_order(settings.grid, facts, candidates)
        return load.rank(candidates)

    def _grid_order(self, chosen: Grid, facts: RequestFacts, candidates: Sequence[Candidate]) -> list[Ranked]:
        """The selected pool and its retries; pools that fit the same index go by load (GR-16)."""
        found: list[Ranked] = []
        selected = grid.choose(chosen, facts, self._settings.defaults)
        for index in grid.retry_order(chosen, selected):
            fitting = [each for each in candidates if fits(each.pool, chosen.pools[index])]
            taken = {each.pool_id for each in found}
            found += [
                each._replace(basis=f"grid:{index}")
                for each in load.rank(fitting)
                if each.pool_id not in taken
            ]
        return found

    def _overridden(
        self, facts: RequestFacts, candidates: Sequence[Candidate], order: list[Ranked]
    ) -> list[Ranked]:
        """The first priority rule that fits puts its pools in front (PW-17)."""
        if facts.priority is None:
            return order
        for rule in self._settings.priorities:
            if rule.low <= facts.priority <= rule.high:
                fitting = [each for each in candidates if fits(each.pool, rule.selector)]
                first = [each._replace(basis="priority") for each in load.rank(fitting)]
                taken = {each.pool_id for each in first}
                return [*first, *(each for each in order if each.pool_id not in taken)]
        return order

    def _unknown(self, model: str) -> Refusal:
        if not self.directory.synced:
            return Refusal(503, "the list of pools has not been read yet")
        if not self.directory.complete:
            return Refusal(
                503, f"no pool is known to have the model {model!r}, and not all have been heard of"
            )
        return Refusal(404, f"the model {model!r} does not exist here")


def fits(pool: Pool, selector: str) -> bool:
    """Whether a pool is meant: by one of its Dynamo namespaces, or as cluster/namespace/name."""
    return selector in pool.runtime_namespaces or selector == str(pool.key)


def is_routable(model: Model) -> bool:
    """Whether whole requests can be sent to it (GR-26)."""
    return model.ready and (len(model.roles) != 1 or model.roles[0] in WHOLE)


def _allows(member: _Member, url: str, now: float) -> bool:
    breaker = member.urls.get(url)
    return breaker is None or breaker.allows(now)


def _unready(model: str, reasons: list[str]) -> Refusal:
    return Refusal(503, f"no pool that has the model {model!r} can take a request now", tuple(reasons[:20]))
