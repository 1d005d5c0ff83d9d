import pytest
from structlog.testing import capture_logs

from isthmus.api.meta import Object
from isthmus.runtime.cache import Cache
from isthmus.runtime.expect import Expectations
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock
from tests.support.things import THINGS, thing

KEY = ("ns", "owner")


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.cache: Cache[Object] = Cache(THINGS, metrics=self.metrics)
        self.expect = Expectations(self.clock, self.metrics)

    def satisfied(self) -> bool:
        return self.expect.satisfied(KEY, {"things": self.cache})


@pytest.fixture
def world() -> World:
    return World()


def test_key_without_writes_must_be_satisfied(world: World) -> None:
    assert world.satisfied()
    assert world.expect.remaining_s(KEY) == 0


def test_write_must_be_satisfied_once_the_cache_has_reached_it(world: World) -> None:
    world.expect.wrote(KEY, "things", "5")
    world.expect.wrote(KEY, "things", 7)
    world.expect.wrote(KEY, "things", "6")
    world.cache.progress("", "6")
    assert not world.satisfied()
    world.cache.progress("", "7")
    assert world.satisfied()
    assert len(world.expect) == 0


def test_write_into_another_namespace_must_wait_for_the_source_that_watches_it() -> None:
    world = World()
    cache = Cache(THINGS, sources=("ns", "other"), metrics=world.metrics)
    world.expect.wrote(KEY, "things", 5, namespace="other")
    cache.progress("ns", "9")
    assert not world.expect.satisfied(KEY, {"things": cache})
    cache.progress("other", "5")
    assert world.expect.satisfied(KEY, {"things": cache})


@pytest.mark.parametrize("how", ["gone", "replaced", "terminating"])
def test_delete_must_be_satisfied_once_the_uid_is_not_alive_in_the_cache(world: World, how: str) -> None:
    world.cache.upsert("", thing("a", 1))
    world.expect.deleted(KEY, world.cache, ("ns", "a"), "a")
    assert not world.satisfied()
    match how:
        case "gone":
            world.cache.remove("", thing("a", 2))
        case "replaced":
            world.cache.upsert("", thing("a", 2, uid="new"))
        case "terminating":
            world.cache.upsert("", thing("a", 2, dying=True))
    assert world.satisfied()


def test_every_write_must_be_seen(world: World) -> None:
    world.cache.upsert("", thing("a", 1))
    world.cache.upsert("", thing("b", 2))
    world.expect.deleted(KEY, world.cache, ("ns", "a"), "a")
    world.expect.deleted(KEY, world.cache, ("ns", "b"), "b")
    world.expect.wrote(KEY, "things", 4)
    world.cache.remove("", thing("a", 3))
    assert not world.satisfied()
    world.cache.progress("", "4")
    assert not world.satisfied()
    world.cache.remove("", thing("b", 5))
    assert world.satisfied()


async def test_write_past_its_deadline_must_count_as_seen(world: World) -> None:
    world.expect.wrote(KEY, "things", 5)
    await world.clock.advance(20)
    world.expect.deleted(KEY, world.cache, ("ns", "a"), "a")
    world.cache.upsert("", thing("a", 1))
    await world.clock.advance(59)
    assert world.expect.remaining_s(KEY) == pytest.approx(1)
    assert not world.satisfied()
    await world.clock.advance(1)
    with capture_logs() as logs:
        assert world.satisfied()
    assert world.metrics.value("isthmus_expectations_expired_total") == 2
    assert logs[0]["unseen"] == 2
    assert world.satisfied()


def test_forgotten_key_must_be_satisfied_and_take_no_memory(world: World) -> None:
    world.expect.wrote(KEY, "things", 5)
    assert world.metrics.value("isthmus_expectations_pending", controller="") == 1
    world.expect.forget(KEY)
    world.expect.forget(KEY)
    assert world.satisfied()
    assert world.metrics.value("isthmus_expectations_pending", controller="") == 0
