"""Any interleaving of lists, watches, cuts and silence: no pool goes on the word of an incomplete list, and
none stays for ever that nobody speaks for."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.api.pools import Pool, PoolList
from isthmus.router.plan.directory import DOUBT_S, Directory
from isthmus.router.plan.eventstream import Event
from isthmus.router.plan.follow import Follower
from tests.property.router.strategies import NAMES, pools
from tests.support.poolfacts import pool


class Machine(RuleBasedStateMachine):
    """A service with a true set of pools, which may be complete or not, followed through a bad network.

    `vouched` has, for each pool, when the service or the pool itself last spoke for it; `gone` those that the
    service has said to be gone, or that a complete list lacked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.directory = Directory()
        self.follower = Follower(self.directory)
        self.truth: dict[str, Pool] = {}
        self.history: list[tuple[str, dict[str, Pool]]] = []
        self.complete = False
        self.sent: dict[str, Pool] | None = None
        self.vouched: dict[str, float] = {}
        self.number = 0

    @property
    def version(self) -> str:
        return f"v{self.number}"

    def vouch(self) -> None:
        for pool_id in self.truth:
            self.vouched[pool_id] = self.now
        if self.complete:
            self.vouched = {each: at for each, at in self.vouched.items() if each in self.truth}

    # The service

    @rule(found=st.lists(pools, max_size=4), complete=st.booleans())
    def service_changes(self, found: list[Pool], complete: bool) -> None:
        self.history.append((self.version, dict(self.truth)))
        self.number += 1
        self.truth = {each.pool_id: each for each in found}
        self.complete = complete

    @rule()
    def service_restarts_empty(self) -> None:
        self.history.clear()
        self.number += 1
        self.truth, self.complete, self.sent = {}, False, None

    # What reaches the router

    @rule()
    def list_comes(self) -> None:
        self.sent = None
        found = PoolList(
            version=self.version, complete=self.complete, mode="mcs", pools=tuple(self.truth.values())
        )
        self.follower.listed(found, self.now)
        self.vouch()

    @rule()
    def watch_begins(self) -> None:
        version = self.follower.began()
        old = dict(self.history).get(version) if version != self.version else self.truth
        resumed = bool(version) and old is not None
        self._send({} if old is None or not resumed else old)
        for pool_id in set(old or {}) - set(self.truth) if resumed else ():
            self.vouched.pop(pool_id, None)
        self._sync(resumed)

    @rule(count=st.integers(0, 3))
    def watch_begins_and_is_cut(self, count: int) -> None:
        self.follower.began()
        for each in list(self.truth.values())[:count]:
            self.follower.take(Event("added", msgspec.json.encode(each)), self.now)
        self.sent = None

    @precondition(lambda self: self.sent is not None)
    @rule()
    def changes_come(self) -> None:
        assert self.sent is not None
        for pool_id in set(self.sent) - set(self.truth):
            self.vouched.pop(pool_id, None)
        self._send(self.sent)
        self._sync(True)

    @precondition(lambda self: self.sent is not None)
    @rule()
    def first_change_comes_and_the_watch_is_cut(self) -> None:
        assert self.sent is not None
        for pool_id in sorted(set(self.sent) - set(self.truth))[:1]:
            self._event("removed", self.sent[pool_id])
            self.vouched.pop(pool_id, None)
        self.sent = None

    def _send(self, old: dict[str, Pool]) -> None:
        for pool_id in sorted(set(old) - set(self.truth)):
            self._event("removed", old[pool_id])
        for pool_id, each in self.truth.items():
            if old.get(pool_id) != each:
                self._event("changed" if pool_id in old else "added", each)

    def _event(self, name: str, each: Pool) -> None:
        self.follower.take(Event(name, msgspec.json.encode(each)), self.now)

    def _sync(self, resumed: bool) -> None:
        body = {"version": self.version, "complete": self.complete, "resumed": resumed}
        self.follower.take(Event("synced", msgspec.json.encode(body)), self.now)
        self.sent = dict(self.truth)
        self.vouch()

    @precondition(lambda self: self.sent is not None)
    @rule()
    def heartbeat_comes(self) -> None:
        self.directory.heard(self.now)

    @rule(seconds=st.sampled_from([1.0, 20.0, DOUBT_S / 2, DOUBT_S, 10 * DOUBT_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(name=NAMES)
    def pool_answers(self, name: str) -> None:
        pool_id = pool(name).pool_id
        if self.directory.get(pool_id) is not None:
            self.directory.answered(pool_id, self.now)
            self.vouched[pool_id] = self.now

    @rule(name=NAMES)
    def pool_cannot_be_reached(self, name: str) -> None:
        pool_id = pool(name).pool_id
        if self.directory.drop_doubtful(pool_id):
            assert self.sent is None or pool_id not in self.sent
            self.vouched.pop(pool_id, None)

    # What must hold

    @invariant()
    def nothing_that_was_vouched_for_is_dropped(self) -> None:
        for pool_id, at in self.vouched.items():
            if self.now - at < DOUBT_S:
                assert self.directory.get(pool_id) is not None

    @invariant()
    def what_is_known_is_what_was_told(self) -> None:
        if self.sent is None:
            return
        assert self.follower.version
        for pool_id, each in self.sent.items():
            assert self.directory.get(pool_id) == each
        extra = [each.pool_id for each in self.directory.pools if each.pool_id not in self.sent]
        assert all(self.directory.is_doubtful(pool_id) for pool_id in extra)
        if self.directory.complete:
            assert extra == []

    @invariant()
    def nothing_stays_for_ever(self) -> None:
        """A list that comes much later drops what nobody spoke for: tried out on a copy."""
        copy = Directory()
        copy.replace(self.directory.pools, complete=True, now=0.0)
        copy.replace([], complete=False, now=self.now)
        copy.heard(self.now + DOUBT_S)
        assert copy.pools == ()

    @invariant()
    def names_are_those_of_the_pools(self) -> None:
        names = {name for each in self.directory.pools for model in each.models for name in model.names}
        assert set(self.directory.models) == names
        for name in names:
            holders = [p for p in self.directory.pools if any(name in m.names for m in p.models)]
            assert list(self.directory.serving(name)) == holders


TestDirectory = Machine.TestCase
