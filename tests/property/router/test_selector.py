"""Whatever happens, a choice holds only pools that can take the request, each once, and counts are right."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.api.pools import Pool
from isthmus.router.plan.breaker import HALF_OPEN, OPEN, BreakerSettings
from isthmus.router.plan.directory import Directory
from isthmus.router.plan.model import Load, Outcome, Place, RequestFacts
from isthmus.router.plan.selector import (
    GRID,
    LOAD,
    LOCALITY,
    PolicySettings,
    PriorityRule,
    Selector,
    Try,
    fits,
    is_routable,
)
from tests.property.router.strategies import NAMES, facts, loads, pools
from tests.support.poolfacts import agg, grid, pool

GRID_FILE = agg(
    num_agg_pools=3,
    agg_pool_dynamo_namespaces=["dynamo-a", "dynamo-b", "east/serving/c"],
    agg_pool_priorities=[1, 0, 1],
    enable_priority_retry=True,
    strategy={"agg_pool_mapping": [[0, 1], [2, 2]]},
)
PROBES = 2


class Machine(RuleBasedStateMachine):
    """A router's life: lists, loads, requests, answers and failures, in any order."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.now = 0.0
        self.directory = Directory()
        self.settings = PolicySettings(
            breaker=BreakerSettings(threshold=2, first_s=3.0, longest_s=10.0, probes=PROBES),
            priorities=(PriorityRule(5, 9, "dynamo-d"), PriorityRule(8, 10, "dynamo-a")),
            weights={"east": 2.0},
            place=Place("eu", "eu-1"),
            **settings,
        )
        self.selector = Selector(self.settings, self.directory)
        self.running: list[Try] = []

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 10.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(found=st.lists(pools, max_size=5), complete=st.booleans())
    def list_comes(self, found: list[Pool], complete: bool) -> None:
        self.directory.replace(found, complete=complete, now=self.now)
        self.selector.forget_gone()

    @rule(each=pools)
    def pool_changes(self, each: Pool) -> None:
        self.directory.put(each)

    @rule(name=NAMES)
    def pool_leaves(self, name: str) -> None:
        self.directory.remove(pool(name).pool_id)
        self.selector.forget_gone()

    @rule(name=NAMES, load=st.none() | loads)
    def load_comes(self, name: str, load: Load | None) -> None:
        self.selector.set_loads(pool(name).pool_id, {} if load is None else {"example/tiny": load})

    @rule(asked=facts, follow=st.booleans())
    def request_comes(self, asked: RequestFacts, follow: bool) -> None:
        choice = self.selector.choose(asked, self.now)
        order = [each.pool_id for each in choice.order]
        assert (choice.refusal is None) == bool(order)
        assert len(order) == len(set(order))
        for pool_id in order:
            self._check_eligible(pool_id, asked.model)
        if choice.refusal is None:
            self._check_policy(asked, order)
        elif choice.refusal.status == 404:
            assert not self.directory.serving(asked.model)
        if follow and order:
            at = self.selector.began(order[0], self.now)
            assert at is not None  # nothing has happened since it was chosen
            self.running.append(at)

    def _check_eligible(self, pool_id: str, model: str) -> None:
        found = self.directory.get(pool_id)
        assert found is not None
        assert any(model in each.names and is_routable(each) for each in found.models)
        assert found.frontend_urls
        assert self.selector.breaker_state(pool_id, self.now) != OPEN
        limit = self.selector.limit_of(found)
        assert not limit or self.selector.in_flight(pool_id) < limit

    def _check_policy(self, asked: RequestFacts, order: list[str]) -> None:
        """Outside of grids every eligible pool is in the order."""
        able = {
            each.pool_id
            for each in self.directory.serving(asked.model)
            if self.selector.why_not(each, asked.model, self.now) is None
        }
        assert set(order) <= able
        if self.settings.policy != GRID:
            assert set(order) == able
        rules = [each for each in self.settings.priorities if asked.priority is not None]
        for each in rules:
            if each.low <= (asked.priority or 0) <= each.high:
                known = [self.directory.get(pool_id) for pool_id in order]
                first = [at for at, found in enumerate(known) if found and fits(found, each.selector)]
                assert first == list(range(len(first)))
                break

    @rule(name=NAMES)
    def request_goes(self, name: str) -> None:
        at = self.selector.began(pool(name).pool_id, self.now)
        if at is not None:
            self.running.append(at)
            assert at.url in self.directory.get(at.pool_id).frontend_urls  # type: ignore[union-attr] # it is known

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0), outcome=st.sampled_from(list(Outcome)))
    def request_ends(self, index: int, outcome: Outcome) -> None:
        self.selector.ended(self.running.pop(index % len(self.running)), outcome, self.now)

    @invariant()
    def counts_are_right(self) -> None:
        for name in "abcde":
            pool_id = pool(name).pool_id
            own = [each for each in self.running if each.pool_id == pool_id]
            assert self.selector.in_flight(pool_id) == len(own)

    @invariant()
    def nothing_is_remembered_for_ever(self) -> None:
        self.selector.forget_gone()
        known = {each.pool_id for each in self.directory.pools} | {each.pool_id for each in self.running}
        assert self.selector.remembered <= len(known)

    @invariant()
    def probes_are_few(self) -> None:
        for name in "abcde":
            pool_id = pool(name).pool_id
            if self.selector.breaker_state(pool_id, self.now) == HALF_OPEN:
                assert sum(each.pool_probe for each in self.running if each.pool_id == pool_id) <= PROBES


class LoadMachine(Machine):
    """With the policy load."""

    def __init__(self) -> None:
        super().__init__(policy=LOAD, limit=3)


class LocalityMachine(Machine):
    """With the policy locality."""

    def __init__(self) -> None:
        super().__init__(policy=LOCALITY)


class GridMachine(Machine):
    """With a grid."""

    def __init__(self) -> None:
        super().__init__(policy=GRID, grid=grid(GRID_FILE))


TestLoad = LoadMachine.TestCase
TestLocality = LocalityMachine.TestCase
TestGrid = GridMachine.TestCase
