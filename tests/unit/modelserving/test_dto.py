from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from isthmus.modelserving.dto import (
    PIECE_BYTES,
    CacheDump,
    Decision,
    PlannedAction,
    ServingGroupDTO,
    encode_pieces,
)
from tests.support.dumps import group, serving

SEEN = b"""{"default/demo": {"demo-0": {"name": "demo-0", "runningPods": ["demo-0-prefill-0-1"],
 "revision": "759bf7cf75", "status": "Running", "roles": {"decode": {"decode-0": {"name": "decode-0",
 "revision": "759bf7cf75", "roleTemplateHash": "5cc6fc8695", "status": "Running"}}}}}}"""
"""An answer of the Go implementation, cut."""


@pytest.mark.covers("MS-47")
def test_the_types_must_fit_an_answer_of_the_go_implementation_to_the_letter() -> None:
    dump = msgspec.json.decode(SEEN, type=CacheDump)
    again = b"".join(encode_pieces((key, groups.values()) for key, groups in dump.items()))
    assert again.rstrip() == msgspec.json.format(SEEN, indent=-1)


@pytest.mark.covers("MS-47")
def test_an_empty_store_must_be_an_empty_object() -> None:
    assert list(encode_pieces([])) == [b"{}\n"]
    assert b"".join(encode_pieces([("a/b", [])])) == b'{"a/b":{}}\n'


def test_pieces_must_be_made_as_they_are_taken() -> None:
    made = []

    def servings() -> Iterator[tuple[str, list[ServingGroupDTO]]]:
        for number in range(100):
            made.append(number)
            yield serving(f"default/s-{number}", groups=10, instances=10)

    pieces = encode_pieces(servings())
    assert made == []
    assert len(next(pieces)) >= PIECE_BYTES
    assert len(made) < 10


def test_a_decision_must_leave_out_what_is_unknown() -> None:
    planned = [PlannedAction("create", "pod demo-0-x-0-0", "missing")]
    decision = Decision("default", "demo", "2026-11-30T22:02:10.5Z", {"pods": 3}, planned, "done", 0.5)
    raw = msgspec.json.encode(decision)
    assert b"trigger" not in raw
    assert msgspec.json.decode(raw)["durationSeconds"] == 0.5
    assert msgspec.json.decode(raw, type=Decision) == decision


@pytest.mark.covers("MS-47")
def test_the_docstring_must_explain_both_levels_of_roles() -> None:
    text = ServingGroupDTO.__doc__ or ""
    assert "two levels" in text
    assert "instance ID" in text
    assert group("demo-0").roles["prefill"]["prefill-1"].name == "prefill-1"
