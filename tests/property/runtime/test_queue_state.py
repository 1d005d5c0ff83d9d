"""The work queue against a model that is too simple to be wrong: sets and a list."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.runtime.queue_state import Backoff, QueueState

KEYS = st.sampled_from("abcdef")
BACKOFF = Backoff(base_s=1, max_s=10, spread=0.5)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue: QueueState[str] = QueueState(BACKOFF)
        self.now = 0.0
        self.order: list[str] = []  # queued, first to be taken first
        self.running: dict[str, float] = {}
        self.dirty: set[str] = set()  # added while running
        self.since: dict[str, float] = {}
        self.wakes: dict[str, float] = {}
        self.failures: dict[str, int] = {}

    def model_add(self, key: str) -> bool:
        if key in self.order or key in self.dirty:
            return False
        self.since[key] = self.now
        if key in self.running:
            self.dirty.add(key)
        else:
            self.order.append(key)
        return True

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        assert self.queue.add(key, self.now) == self.model_add(key)

    @rule(key=KEYS, after=st.integers(0, 20))
    def add_later(self, key: str, after: int) -> None:
        self.queue.add_at(key, self.now + after)
        self.wakes[key] = min(self.wakes.get(key, float("inf")), self.now + after)

    @rule(key=KEYS, times=st.integers(1, 200))
    def add_ever_earlier(self, key: str, times: int) -> None:
        for step in range(times, 0, -1):
            self.queue.add_at(key, self.now + step)
        self.wakes[key] = min(self.wakes.get(key, float("inf")), self.now + 1)

    @rule(seconds=st.integers(0, 10))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        due = sorted(at for at in self.wakes.values() if at <= self.now)
        before = list(self.order)
        expected = {key for key, at in self.wakes.items() if at <= self.now}
        queued = self.queue.wake_due(self.now)
        added = {key for key in expected if self.model_add(key)}
        assert queued == len(added)
        if len(due) > 1:  # ties come in the order of the wishes, which the model does not keep
            self.order = before + [key for key in self.queue._order if key not in before]
        for key in expected:
            del self.wakes[key]

    @rule()
    def take(self) -> None:
        taken = self.queue.take(self.now)
        if not self.order:
            assert taken is None
            return
        key = self.order.pop(0)
        assert taken == (key, self.now - self.since.pop(key))
        self.running[key] = self.now

    @precondition(lambda self: self.running)
    @rule(data=st.data(), well=st.booleans(), jitter=st.floats(0, 1), at_least=st.sampled_from([0, 0, 15]))
    def finish(self, data: st.DataObject, well: bool, jitter: float, at_least: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.running)))
        if well:
            self.queue.forget(key)
            self.failures.pop(key, None)
        else:
            failures = self.failures.get(key, 0)
            self.failures[key] = failures + 1
            delay = self.queue.retry(key, self.now, jitter, at_least_s=at_least)
            assert max(at_least, min(10, 2**failures) * 0.5) <= delay <= max(at_least, min(10, 2**failures))
            self.wakes[key] = min(self.wakes.get(key, float("inf")), self.now + delay)
        assert self.queue.done(key, self.now) == self.now - self.running.pop(key)
        if key in self.dirty:
            self.dirty.discard(key)
            self.order.append(key)

    @invariant()
    def queue_must_be_as_the_model(self) -> None:
        assert self.queue.depth == len(self.order)
        assert self.queue.running == self.running
        assert self.queue.waiting == len(self.wakes)
        assert self.queue.failing == len(self.failures)
        assert self.queue.next_wake() == (min(self.wakes.values()) if self.wakes else None)

    @invariant()
    def key_that_runs_never_may_be_taken(self) -> None:
        assert not set(self.queue._order) & set(self.running)
        assert len(set(self.queue._order)) == len(self.queue._order)

    @invariant()
    def memory_must_be_bounded_by_live_keys(self) -> None:
        assert len(self.queue._heap) <= 2 * len(self.wakes) + 65


QueueMachine.TestCase.settings = settings(deadline=None, stateful_step_count=40)
TestQueueState = QueueMachine.TestCase


def test_queue_must_be_fair() -> None:
    """However often a key comes back, each other key is taken once before it is taken twice."""
    queue: QueueState[str] = QueueState(Backoff())
    for key in "abc":
        queue.add(key, 0)
    taken = []
    for _ in range(9):
        got = queue.take(0)
        assert got is not None
        taken.append(got[0])
        queue.add(got[0], 0)
        queue.done(got[0], 0)
    assert "".join(taken) == "abcabcabc"


def test_backoff_must_double_up_to_its_bound() -> None:
    backoff = Backoff()
    assert [backoff.delay(n, 0) for n in (0, 1, 2)] == [0.005, 0.01, 0.02]
    assert backoff.delay(16, 0) == 300 == backoff.delay(10_000, 0)
    assert backoff.delay(3, 1) == pytest.approx(0.04 * 0.8)
