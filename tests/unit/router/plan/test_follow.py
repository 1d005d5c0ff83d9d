"""Lists and events of a discovery service into the directory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.pools import InvalidField, Pool, PoolList
from isthmus.router.plan import follow
from isthmus.router.plan.directory import Directory
from isthmus.router.plan.eventstream import Event
from isthmus.router.plan.follow import Follower
from tests.support.poolfacts import pool

A, B, C = pool("a"), pool("b"), pool("c")


def told(name: str, each: Pool) -> Event:
    return Event(name, msgspec.json.encode(each))


def synced(version: str = "v", *, complete: bool = True, **more: Any) -> Event:
    return Event("synced", msgspec.json.encode({"version": version, "complete": complete, **more}))


class World:
    """A follower and its directory."""

    def __init__(self, *pools: Pool, complete: bool = True) -> None:
        self.directory = Directory()
        self.follower = Follower(self.directory)
        if pools:
            found = PoolList(version="v0", complete=complete, mode="mcs", pools=pools)
            self.follower.listed(found, 0.0)

    def take(self, *events: Event) -> World:
        for event in events:
            self.follower.take(event, 1.0)
        return self

    @property
    def known(self) -> list[str]:
        return [each.name for each in self.directory.pools]


@pytest.mark.covers("PW-7")
def test_list_must_be_taken_in_with_its_version() -> None:
    world = World(A, B, complete=False)
    assert (world.known, world.follower.version, world.directory.complete) == (["a", "b"], "v0", False)
    assert world.follower.began() == "v0"


@pytest.mark.covers("PW-9")
def test_first_events_of_a_watch_must_count_together_when_it_is_synced() -> None:
    world = World()
    assert world.follower.began() == ""
    world.take(told("added", A), told("added", B))
    assert world.known == []
    world.take(synced("v1"))
    assert (world.known, world.follower.version, world.directory.complete) == (["a", "b"], "v1", True)


@pytest.mark.covers("PW-9")
def test_resumed_watch_must_only_change_what_is_known() -> None:
    world = World(A, B)
    assert world.follower.began() == "v0"
    world.take(told("added", C), told("removed", A), synced("v1", resumed=True))
    assert (world.known, world.follower.version) == (["b", "c"], "v1")


@pytest.mark.covers("PW-9", "D-19")
def test_resumed_removal_must_count_in_an_incomplete_list_too() -> None:
    world = World(A, B)
    world.follower.began()
    world.take(told("removed", A), synced("v1", complete=False, resumed=True))
    assert world.known == ["b"]
    assert not world.directory.is_doubtful(B.pool_id)


@pytest.mark.covers("PW-9")
def test_whole_set_after_a_version_that_is_not_known_must_replace_what_was() -> None:
    world = World(A, B)
    world.follower.began()
    assert world.take(told("added", C), synced("v1", resumed=False)).known == ["c"]


@pytest.mark.covers("PW-9")
def test_set_that_nobody_asked_to_resume_must_be_whole() -> None:
    world = World(A)
    world.follower.began()
    world.take(synced("v1", resumed=True), told("added", B))
    assert world.follower.began() == ""
    assert world.take(told("added", C), synced("v2", resumed=True)).known == ["c"]


@pytest.mark.covers("PW-9", "D-19")
def test_whole_set_that_is_incomplete_must_take_nothing_away() -> None:
    world = World(A, B)
    world.follower.began()
    world.take(told("added", A), synced("v1", complete=False, resumed=False))
    assert world.known == ["a", "b"]
    assert world.directory.is_doubtful(B.pool_id)


@pytest.mark.covers("PW-8", "D-19")
def test_list_that_becomes_complete_must_take_the_doubtful_away() -> None:
    world = World(A, B)
    world.follower.began()
    world.take(told("added", A), synced("v1", complete=False, resumed=False), synced("v2"))
    assert (world.known, world.directory.complete, world.follower.version) == (["a"], True, "v2")


@pytest.mark.covers("PW-9")
def test_events_after_it_is_synced_must_count_at_once() -> None:
    world = World()
    world.follower.began()
    world.take(synced("v1"), told("added", A), told("added", B))
    assert world.known == ["a", "b"]
    world.take(told("changed", pool("a", zone="z")), told("removed", B))
    assert [each.location.availability_zone for each in world.directory.pools] == ["z"]
    assert world.take(synced("v2")).known == ["a"]


@pytest.mark.covers("PW-9")
def test_watch_that_is_cut_between_two_syncs_must_begin_with_a_list() -> None:
    world = World(A)
    world.follower.began()
    world.take(synced("v1", resumed=True), told("added", B))
    assert world.follower.version == ""
    assert world.follower.began() == ""
    assert world.take(told("added", A), synced("v3")).known == ["a"]


@pytest.mark.covers("PW-9")
def test_watch_that_is_cut_before_it_is_synced_must_change_nothing() -> None:
    world = World(A, B)
    world.follower.began()
    world.take(told("removed", A), told("added", C))
    assert (world.known, world.follower.version) == (["a", "b"], "v0")
    world.follower.began()
    assert world.take(synced("v0", resumed=True)).known == ["a", "b"]


@pytest.mark.covers("PW-9", "PW-8")
def test_service_that_does_not_say_whether_it_resumed_must_be_asked_for_all() -> None:
    world = World(A, B)
    world.follower.began()
    with pytest.raises(InvalidField, match="resumed"):
        world.take(told("added", C), synced("v1"))
    assert (world.known, world.follower.began()) == (["a", "b"], "")
    assert world.take(told("added", C), synced("v2")).known == ["c"]


@pytest.mark.covers("PW-9")
def test_synced_of_the_same_completeness_must_keep_doubts_as_they_are() -> None:
    world = World(A, B)
    world.follower.began()
    world.take(synced("v1", complete=False, resumed=False), synced("v2", complete=False))
    assert world.directory.is_doubtful(A.pool_id)
    assert world.known == ["a", "b"]


@pytest.mark.covers("PW-7")
@pytest.mark.parametrize("version", ["", "a\nb", 'a"b', "a b", "é", "x" * 129])
def test_version_that_fits_no_header_must_not_be_resumed_from(version: str) -> None:
    world = World()
    found = PoolList(version=version, complete=True, mode="mcs", pools=(A,))
    world.follower.listed(found, 0.0)
    assert (world.known, world.follower.began()) == (["a"], "")
    world.take(told("added", B), synced(version))
    assert (world.known, world.follower.began()) == (["b"], "")
    world.take(synced("x" * 128))
    assert world.follower.began() == "x" * 128


@pytest.mark.parametrize(
    "event",
    [
        Event("synced", b"{}"),
        Event("synced", b'{"version":1,"complete":true}'),
        Event("synced", b'{"version":"v","complete":1}'),
        Event("synced", b"\xff"),
        Event("added", b"{}"),
        Event("added", b"[" * 100_000),
        Event("changed", msgspec.json.encode(A).replace(b"http://a", b"ftp://a")),
        Event("removed", b'{"name":"a"}'),
        Event("removed", b"null"),
    ],
)
def test_event_that_makes_no_sense_must_be_refused_and_change_nothing(event: Event) -> None:
    world = World(A)
    world.follower.began()
    with pytest.raises(InvalidField):
        world.take(event)
    assert world.known == ["a"]


def test_event_of_another_name_must_be_passed_over() -> None:
    assert World(A).take(Event("whatever", b"{")).known == ["a"]


def test_more_pools_than_can_be_kept_must_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_POOLS", 2)
    with pytest.raises(InvalidField):
        World(A, B, C)
    world = World(A, B)
    world.follower.began()
    world.take(told("added", A), told("added", B))
    with pytest.raises(InvalidField):
        world.take(told("added", C))
    world = World(A, B)
    world.follower.began()
    with pytest.raises(InvalidField):
        world.take(synced("v1", resumed=True), told("added", C))
