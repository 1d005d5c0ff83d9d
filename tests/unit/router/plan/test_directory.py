"""What lists may take away, and what they may not."""

from __future__ import annotations

import pytest

from isthmus.api.pools import Model
from isthmus.router.plan.directory import DOUBT_S, Directory
from tests.support.poolfacts import MODEL, pool

A, B = pool("a"), pool("b")


def known(directory: Directory) -> list[str]:
    return [each.name for each in directory.pools]


def filled(*, complete: bool = True) -> Directory:
    directory = Directory()
    directory.replace([B, A], complete=complete, now=0.0)
    return directory


@pytest.mark.covers("PW-16")
def test_directory_must_tell_its_pools_in_order_and_whether_it_has_read_any() -> None:
    directory = Directory()
    assert (directory.synced, directory.complete, directory.pools) == (False, False, ())
    directory.replace([pool("west/a"), B, A], complete=False, now=0.0)
    assert (directory.synced, directory.complete) == (True, False)
    assert [str(each.key) for each in directory.pools] == [
        "east/serving/a",
        "east/serving/b",
        "west/serving/a",
    ]


@pytest.mark.covers("PW-8")
def test_complete_list_must_take_away_what_it_lacks() -> None:
    directory = filled()
    assert directory.replace([A], complete=True, now=1.0) == {B.pool_id}
    assert known(directory) == ["a"]
    assert directory.get(B.pool_id) is None
    assert directory.serving(MODEL) == (A,)


@pytest.mark.covers("PW-8", "D-19")
def test_incomplete_list_must_take_nothing_away_and_leave_a_doubt() -> None:
    directory = filled()
    assert directory.replace([A], complete=False, now=1.0) == frozenset()
    assert known(directory) == ["a", "b"]
    assert (directory.is_doubtful(A.pool_id), directory.is_doubtful(B.pool_id)) == (False, True)
    assert directory.replace([], complete=True, now=2.0) == {A.pool_id, B.pool_id}


@pytest.mark.covers("D-19", "DS-3")
def test_service_that_restarted_empty_must_cost_no_pool() -> None:
    directory = filled()
    directory.replace([], complete=False, now=1.0)
    directory.put(A)
    directory.put(B)
    assert directory.replace([A, B], complete=True, now=16.0) == frozenset()
    assert known(directory) == ["a", "b"]


@pytest.mark.covers("PW-8")
def test_doubtful_pool_that_cannot_be_reached_must_go_and_no_other() -> None:
    directory = filled()
    directory.replace([A], complete=False, now=1.0)
    assert not directory.drop_doubtful(A.pool_id)
    assert directory.drop_doubtful(B.pool_id)
    assert not directory.drop_doubtful(B.pool_id)
    assert known(directory) == ["a"]


@pytest.mark.covers("PW-8")
@pytest.mark.parametrize("how", ["put", "list"])
def test_doubt_must_end_when_the_pool_is_named_again(how: str) -> None:
    directory = filled()
    directory.replace([A], complete=False, now=1.0)
    if how == "put":
        directory.put(B)
    else:
        directory.replace([B], complete=False, now=2.0)
    assert not directory.is_doubtful(B.pool_id)
    assert not directory.drop_doubtful(B.pool_id)


@pytest.mark.covers("PW-16", "PW-8")
def test_doubtful_pool_must_go_when_nobody_spoke_for_it_in_time() -> None:
    directory = filled()
    directory.replace([A], complete=False, now=1.0)
    directory.replace([A], complete=False, now=100.0)
    assert directory.heard(DOUBT_S + 0.9) == frozenset()
    assert directory.heard(DOUBT_S + 1.0) == {B.pool_id}
    assert known(directory) == ["a"]


@pytest.mark.covers("PW-16")
def test_lists_must_be_the_moment_at_which_doubt_ends_too() -> None:
    directory = filled()
    directory.replace([A], complete=False, now=1.0)
    assert directory.replace([A], complete=False, now=DOUBT_S + 1.0) == {B.pool_id}


@pytest.mark.covers("D-20")
def test_answer_of_a_doubtful_pool_must_speak_for_it() -> None:
    directory = filled()
    directory.replace([A], complete=False, now=1.0)
    directory.answered(A.pool_id, 200.0)
    directory.answered(B.pool_id, 200.0)
    assert directory.heard(DOUBT_S + 1.0) == frozenset()
    assert directory.heard(DOUBT_S + 200.0) == {B.pool_id}


@pytest.mark.covers("D-20")
def test_silence_must_take_nothing_away() -> None:
    directory = filled()
    assert directory.heard(1e9) == frozenset()
    assert known(directory) == ["a", "b"]


def test_removed_pool_must_be_gone_with_all_its_names() -> None:
    directory = filled()
    assert directory.remove(A.pool_id)
    assert not directory.remove(A.pool_id)
    assert directory.remove(B.pool_id)
    assert (directory.models, directory.serving("tiny"), directory.has_model(MODEL)) == ((), (), False)


def test_removed_pool_must_leave_no_doubt_behind() -> None:
    directory = filled()
    directory.replace([], complete=False, now=1.0)
    directory.remove(A.pool_id)
    assert not directory.is_doubtful(A.pool_id)


@pytest.mark.covers("PW-16")
def test_pools_must_be_found_by_name_and_alias_of_the_moment() -> None:
    directory = filled()
    assert directory.models == (MODEL, "tiny")
    assert directory.serving("tiny") == (A, B)
    changed = pool("a", models=(Model(id="other", aliases=("tiny",)), Model(id="new")))
    directory.put(changed)
    assert directory.serving("tiny") == (changed, B)
    assert directory.serving(MODEL) == (B,)
    assert directory.serving("other") == (changed,)
    assert directory.serving("unknown") == ()
    assert directory.has_model("new")
    directory.put(A)
    assert directory.models == (MODEL, "tiny")


def test_version_must_change_with_the_pools_only() -> None:
    directory = filled()
    version = directory.version
    directory.put(A)
    directory.replace([A, B], complete=False, now=1.0)
    directory.heard(1.0)
    assert directory.version == version
    directory.put(pool("a", zone="z"))
    assert directory.version > version
