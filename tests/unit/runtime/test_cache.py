import asyncio
from collections.abc import Iterable

import pytest
from structlog.testing import capture_logs

from isthmus.api.meta import Object
from isthmus.runtime.cache import Cache, Change, parse_version
from isthmus.runtime.metrics import Metrics
from tests.support.things import THINGS, thing


class Told:
    """A subscriber that writes down changes as (name, old version, new version)."""

    def __init__(self, cache: Cache[Object]) -> None:
        self.changes: list[Change[Object]] = []
        cache.subscribe(self.changes.append)

    def pop(self) -> list[tuple[str, str | None, str | None]]:
        told = [(c.key[1], version(c.old), version(c.new)) for c in self.changes]
        self.changes.clear()
        return told


def version(obj: Object | None) -> str | None:
    return obj.metadata.resource_version if obj is not None else None


def make(*sources: str) -> tuple[Cache[Object], Told]:
    cache = Cache(THINGS, sources=sources or ("",), metrics=Metrics())
    return cache, Told(cache)


def test_cache_must_add_change_and_delete() -> None:
    cache, told = make()
    cache.upsert("", thing("a", 1))
    cache.upsert("", thing("a", 2))
    assert version(cache.get(("ns", "a"))) == "2"
    cache.remove("", thing("a", 3))
    assert told.pop() == [("a", None, "1"), ("a", "1", "2"), ("a", "2", None)]
    assert (cache.get(("ns", "a")), len(cache), list(cache.values())) == (None, 0, [])


@pytest.mark.covers("R05", "R19")
def test_cache_must_tell_a_replaced_object_as_delete_and_add() -> None:
    cache, told = make()
    cache.upsert("", thing("a", 1, uid="one"))
    cache.upsert("", thing("a", 2, uid="two"))
    assert told.pop() == [("a", None, "1"), ("a", "1", None), ("a", None, "2")]
    cache.replace("", [thing("a", 3, uid="three")], "3")
    assert told.pop() == [("a", "2", None), ("a", None, "3")]


@pytest.mark.covers("R19")
def test_list_must_delete_what_vanished_before_it_adds() -> None:
    cache, told = make()
    cache.replace("", [thing("a", 1), thing("b", 1)], "5")
    told.pop()
    cache.replace("", [thing("c", 6), thing("b", 1)], "7")
    assert told.pop() == [("a", "1", None), ("c", None, "6")]


def test_list_must_be_silent_about_what_did_not_change_and_keep_the_held_object() -> None:
    cache, told = make()
    cache.replace("", [thing("a", 1)], "5")
    held = cache.get(("ns", "a"))
    told.pop()
    cache.replace("", [thing("a", 1)], "9")
    assert told.pop() == []
    assert cache.get(("ns", "a")) is held


def test_list_must_be_believed_even_if_it_is_older() -> None:
    cache, told = make()
    cache.replace("", [thing("a", 50)], "60")
    cache.replace("", [thing("a", 7)], "8")
    assert version(cache.get(("ns", "a"))) == "7"
    assert cache.resource_version() == 8
    cache.upsert("", thing("a", 9))
    assert version(cache.get(("ns", "a"))) == "9"
    assert len(told.pop()) == 3


def test_late_event_never_overwrites_or_resurrects() -> None:
    cache, told = make()
    cache.upsert("", thing("a", 5))
    cache.upsert("", thing("a", 5))
    cache.upsert("", thing("a", 4))
    cache.upsert("", thing("a", 4, uid="older"))
    cache.remove("", thing("a", 4))
    assert told.pop() == [("a", None, "5")]
    cache.remove("", thing("a", 6))
    cache.upsert("", thing("a", 5))
    assert cache.get(("ns", "a")) is None
    assert told.pop() == [("a", "5", None)]


def test_delete_of_another_uid_never_removes() -> None:
    cache, told = make()
    cache.upsert("", thing("a", 5, uid="new"))
    cache.remove("", thing("a", 6, uid="old"))
    cache.remove("", thing("b", 7))
    assert told.pop() == [("a", None, "5")]


def test_versions_that_are_no_integers_must_always_count_as_new() -> None:
    cache, told = make()
    cache.upsert("", thing("a", "x"))
    cache.upsert("", thing("a", "y"))
    cache.remove("", thing("a", "z"))
    assert told.pop() == [("a", None, "x"), ("a", "x", "y"), ("a", "y", None)]
    assert parse_version("x") == 0


async def test_cache_must_be_complete_once_every_source_was_listed() -> None:
    cache, _ = make("one", "two")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(cache.wait_complete())
        cache.upsert("one", thing("a", 1))
        cache.replace("one", [], "1")
        await asyncio.sleep(0)
        assert (cache.complete, cache.missing_sources(), waiting.done()) == (False, ("two",), False)
        cache.replace("two", [], "1")
    assert cache.complete
    cache.replace("two", [], "2")
    assert cache.complete


def test_sources_must_not_delete_each_others_objects() -> None:
    cache, told = make("one", "two")
    cache.replace("one", [thing("a", 1)], "1")
    cache.replace("two", [thing("b", 1)], "1")
    cache.replace("one", [thing("c", 2)], "2")
    assert sorted(obj.metadata.name for obj in cache.values()) == ["b", "c"]
    assert told.pop() == [("a", None, "1"), ("b", None, "1"), ("a", "1", None), ("c", None, "2")]


def test_object_that_moves_to_another_source_must_survive_the_first_ones_delete() -> None:
    cache, _ = make("one", "two")
    cache.upsert("one", thing("a", 1))
    cache.upsert("two", thing("a", 2))
    cache.remove("one", thing("a", 2))
    cache.replace("one", [], "2")
    assert version(cache.get(("ns", "a"))) == "2"
    cache.remove("two", thing("a", 3))
    assert len(cache) == 0
    cache.upsert("one", thing("a", 4))
    cache.remove("one", thing("a", 3))
    assert len(cache) == 1


def test_late_event_of_one_source_never_overwrites_the_other_sources_newer_object() -> None:
    cache, _ = make("one", "two")
    cache.upsert("one", thing("a", 9))
    cache.upsert("two", thing("a", 5))
    assert version(cache.get(("ns", "a"))) == "9"
    cache.upsert("two", thing("a", 10))
    cache.remove("two", thing("b", 11))
    cache.upsert("one", thing("b", 20))
    cache.upsert("two", thing("b", 15, uid="b"))
    cache.remove("two", thing("b", 16))
    assert version(cache.get(("ns", "b"))) == "20"


def test_replaced_object_of_a_moving_source_must_have_one_owner() -> None:
    cache, told = make("one", "two")
    cache.replace("one", [thing("a", 1, uid="x")], "1")
    cache.replace("two", [thing("a", 2, uid="y")], "2")
    cache.replace("one", [], "3")
    assert version(cache.get(("ns", "a"))) == "2"
    assert told.pop() == [("a", None, "1"), ("a", "1", None), ("a", None, "2")]


def test_resource_version_must_follow_lists_events_and_bookmarks() -> None:
    cache, _ = make("one", "two")
    cache.replace("one", [], "5")
    cache.upsert("one", thing("a", 7))
    cache.progress("one", "9")
    cache.progress("one", "8")
    cache.remove("two", thing("z", 3))
    assert (cache.resource_version("one"), cache.resource_version("two")) == (9, 3)
    assert (cache.seen("one"), cache.seen("elsewhere")) == (9, 0)
    every, _ = make()
    every.progress("", "4")
    assert every.seen("one") == 4
    with pytest.raises(KeyError):
        cache.upsert("three", thing("a", 8))


def test_index_must_be_right_when_subscribers_hear() -> None:
    cache, _ = make()
    cache.upsert("", thing("a", 1, color="red"))
    cache.add_index("color", lambda obj: obj.metadata.labels.values())
    seen: list[list[str]] = []
    cache.subscribe(
        lambda change: seen.append([o.metadata.name for o in cache.by_index("color", "red").values()])
    )
    cache.upsert("", thing("b", 2, color="red"))
    cache.remove("", thing("a", 3))
    assert seen == [["a", "b"], ["b"]]
    with pytest.raises(ValueError, match="color"):
        cache.add_index("color", lambda obj: ())
    with pytest.raises(KeyError):
        cache.by_index("shape", "round")


@pytest.mark.covers("R22")
def test_failing_subscriber_or_index_never_stops_the_others() -> None:
    metrics = Metrics()
    cache = Cache(THINGS, metrics=metrics)

    def bad_index(obj: Object) -> Iterable[str]:
        raise RuntimeError("no")

    def bad(change: Change[Object]) -> None:
        raise RuntimeError("no")

    cache.add_index("bad", bad_index)
    cache.subscribe(bad)
    told = Told(cache)
    with capture_logs() as logs:
        cache.upsert("", thing("a", 1))
    assert told.pop() == [("a", None, "1")]
    assert metrics.value("isthmus_cache_subscriber_errors_total", resource="things.test.isthmus.dev") == 2
    assert [entry["log_level"] for entry in logs] == ["error", "error"]


def test_absent_api_must_count_as_complete_and_empty() -> None:
    cache, told = make()
    cache.mark_absent()
    assert (cache.complete, cache.absent) == (True, True)
    assert cache.seen("default") > 10**18  # whoever waits to see a write of theirs need not wait
    cache.mark_unknown()
    assert (cache.complete, cache.absent) == (False, False)
    cache.replace("", [thing("a", 1)], "1")
    assert (cache.complete, cache.absent) == (True, False)
    cache.mark_absent()
    assert told.pop() == [("a", None, "1"), ("a", "1", None)]


def test_cache_size_must_be_a_metric() -> None:
    metrics = Metrics()
    cache = Cache(THINGS, metrics=metrics, name="mine")
    cache.upsert("", thing("a", 1))
    assert metrics.value("isthmus_cache_objects", resource="mine") == 1


def test_change_must_name_its_object() -> None:
    old, new = thing("a", 1), thing("a", 2)
    assert Change(old, new).object is new
    assert Change(old, None).object is old
    assert Change(None, new).key == ("ns", "a")
