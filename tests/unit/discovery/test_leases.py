"""Who holds a registration, and until when."""

from __future__ import annotations

import pytest

from isthmus.discovery.plan import leases as module
from isthmus.discovery.plan.leases import Leases, Verdict
from tests.support.discoveries import registration

KEY = registration().key


@pytest.mark.covers("D-10", "PW-6", "DS-4")
def test_lease_must_end_when_it_is_over_and_be_kept_by_renewal() -> None:
    leases = Leases(15.0)
    assert leases.put(registration(), 0.0) == (Verdict.NEW, True)
    assert [len(list(leases.live(now))) for now in (14.9, 15.0, 15.1)] == [1, 0, 0]
    leases.put(registration(), 20.0)
    assert leases.put(registration(), 30.0) == (Verdict.RENEWED, False)
    assert [len(list(leases.live(now))) for now in (44.9, 45.1)] == [1, 0]
    assert leases.next_expiry_s(31.0) == 45.0


@pytest.mark.covers("D-11", "PW-2")
def test_new_run_must_take_over_and_the_old_one_be_refused_while_it_lives() -> None:
    leases = Leases(15.0)
    leases.put(registration(run="old"), 0.0)
    assert leases.put(registration(run="new"), 1.0) == (Verdict.NEW, True)
    assert leases.put(registration(run="old"), 2.0) == (Verdict.STALE_INCARNATION, False)
    assert [each.registration.relay.incarnation for each in leases.live(2.0)] == ["new"]
    assert leases.put(registration(run="old"), 16.5)[0] is Verdict.NEW


@pytest.mark.covers("PW-2")
def test_revisions_of_one_run_never_go_back() -> None:
    leases = Leases(15.0)
    leases.put(registration(revision=5), 0.0)
    assert leases.put(registration(revision=4), 1.0) == (Verdict.STALE_REVISION, False)
    assert leases.put(registration(revision=5), 1.0) == (Verdict.RENEWED, False)
    assert leases.put(registration(revision=6), 1.0) == (Verdict.RENEWED, True)
    assert leases.put(registration(run="b", revision=1), 1.0)[0] is Verdict.NEW


@pytest.mark.covers("D-12", "PW-5")
def test_withdrawal_must_be_of_the_run_that_holds_it() -> None:
    leases = Leases(15.0)
    assert leases.remove(KEY, "a", 0.0) is Verdict.UNKNOWN
    leases.put(registration(run="a"), 0.0)
    assert leases.remove(KEY, "b", 1.0) is Verdict.OTHER_INCARNATION
    assert leases.remove(KEY, "a", 1.0) is Verdict.REMOVED
    assert leases.remove(KEY, "a", 1.0) is Verdict.UNKNOWN
    leases.put(registration(run="c"), 2.0)
    assert leases.remove(KEY, "c", 17.1) is Verdict.UNKNOWN
    assert leases.put(registration(run="d"), 17.2)[0] is Verdict.NEW
    assert leases.remove(KEY, "", 17.3) is Verdict.REMOVED


def test_run_that_withdrew_must_not_come_back_over_its_successor() -> None:
    leases = Leases(15.0)
    leases.put(registration(run="a"), 0.0)
    leases.remove(KEY, "a", 1.0)
    leases.put(registration(run="b"), 2.0)
    assert leases.put(registration(run="a"), 3.0)[0] is Verdict.STALE_INCARNATION


def test_number_of_pools_must_be_bounded_and_what_is_long_over_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_POOLS", 2)
    leases = Leases(1.0)
    for name in ("a", "b"):
        leases.put(registration(name=name), 0.0)
    assert leases.put(registration(name="c"), 0.5) == (Verdict.FULL, False)
    assert leases.put(registration(name="a"), 0.5)[0] is Verdict.RENEWED
    assert leases.put(registration(name="c"), 100.0) == (Verdict.NEW, True)


def test_expired_registration_that_comes_again_must_change_the_list() -> None:
    leases = Leases(1.0)
    leases.put(registration(), 0.0)
    assert leases.put(registration(), 5.0) == (Verdict.NEW, True)


@pytest.mark.covers("PW-6")
def test_lease_must_be_over_at_the_very_moment_of_its_end() -> None:
    leases = Leases(15.0)
    leases.put(registration(), 0.0)
    assert leases.put(registration(), 15.0) == (Verdict.NEW, True)
    assert leases.remove(KEY, "a", 30.0) is Verdict.UNKNOWN


@pytest.mark.covers("PW-6")
def test_what_is_over_must_be_kept_for_twenty_leases_and_not_longer() -> None:
    leases = Leases(1.0)
    leases.put(registration(revision=5), 0.0)
    leases.forget(1.0 + module.FORGET_LEASES)
    assert leases.put(registration(revision=4), 21.0)[0] is Verdict.STALE_REVISION
    leases.forget(1.1 + module.FORGET_LEASES)
    assert leases.put(registration(revision=4), 21.1)[0] is Verdict.NEW


@pytest.mark.covers("PW-2")
def test_replaced_runs_must_be_remembered_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POOLS", 2)

    def comes_back(*names: str) -> list[bool]:
        """Whether the run `old` of each pool is taken after it withdrew and `forget`, while `new` holds."""
        leases = Leases(1.0)
        for name in names:
            leases.put(registration(name=name, run="old"), 0.0)
            leases.remove(registration(name=name).key, "old", 0.0)
        leases.forget(0.5)
        taken = []
        for name in names:
            leases.put(registration(name=name, run="new"), 0.5)
            verdict, _ = leases.put(registration(name=name, run="old"), 0.5)
            taken.append(verdict is not Verdict.STALE_INCARNATION)
            leases.remove(registration(name=name).key, "", 0.5)
        return taken

    assert comes_back("a", "b") == [False, False]
    assert comes_back("a", "b", "c") == [True, False, False]


@pytest.mark.covers("PW-2")
def test_replaced_run_of_a_pool_that_holds_must_not_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POOLS", 2)
    leases = Leases(1.0)
    leases.put(registration(run="old"), 0.0)
    leases.put(registration(run="new"), 0.0)
    for name in ("gone", "gone-too"):
        leases.put(registration(name=name), 0.0)
        leases.remove(registration(name=name).key, "a", 0.0)
    leases.forget(0.5)
    assert leases.put(registration(run="old"), 0.5)[0] is Verdict.STALE_INCARNATION
