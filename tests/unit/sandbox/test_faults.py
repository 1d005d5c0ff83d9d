"""The language of the fault annotation."""

from __future__ import annotations

import pytest

from isthmus.sandbox import faults
from isthmus.sandbox.faults import Fault, Kind


def test_annotation_must_name_kinds_with_durations_and_tags() -> None:
    assert faults.parse("never-ready, slow:1m30s,restart:500ms#2") == (
        Fault(Kind.NEVER_READY),
        Fault(Kind.SLOW, 90.0),
        Fault(Kind.RESTART, 0.5, "2"),
    )


def test_kind_without_duration_must_have_its_default() -> None:
    assert faults.parse("hang-termination") == (Fault(Kind.HANG_TERMINATION, 30.0),)


@pytest.mark.parametrize("text", ["", "none", " , "])
def test_empty_annotation_must_mean_no_fault(text: str) -> None:
    assert faults.parse(text) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bogus", "'bogus' is not a fault; there are never-ready"),
        ("slow:5", "'5' is not a duration"),
        ("slow:5s5", "'5s5' is not a duration"),
        ("slow:", "'slow:' is not a fault"),
        ("fail:5s", "fail takes no duration"),
        ("unready,Restart", "'Restart' is not a fault"),
    ],
)
def test_wrong_item_must_be_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        faults.parse(text)


def test_every_kind_must_be_explained() -> None:
    assert set(faults.HELP) == set(Kind)


def test_once_only_fault_must_be_fresh_only_when_first_seen() -> None:
    before = faults.parse("restart,unready")
    assert faults.fresh(before, faults.parse("restart,unready,restart#2,slow")) == (
        Fault(Kind.RESTART, 1.0, "2"),
    )


def test_repeated_once_only_fault_must_get_a_tag() -> None:
    text = ""
    for _ in range(3):
        text = faults.extend(text, "restart:2s")
    assert text == "restart:2s,restart:2s#2,restart:2s#3"


def test_repeated_lasting_fault_must_change_nothing() -> None:
    assert faults.extend("unready", "unready") == "unready"


def test_broken_annotation_never_is_extended() -> None:
    with pytest.raises(ValueError, match="bogus"):
        faults.extend("bogus", "restart")
