"""The file of sources: upstream's form, and what is wrong with others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.errors import UserError
from isthmus.relay.plan.sources import read_sources


def document(*names: Any, **more: Any) -> bytes:
    return json.dumps({"version": 1, "sources": [{"namespace": name} for name in names]} | more).encode()


@pytest.mark.covers("RL-3")
def test_sources_must_be_read_sorted() -> None:
    assert read_sources(document("b", "a-1_X")) == ("a-1_X", "b")
    assert read_sources(document(connectionRevision="r7")) == ()
    assert len(read_sources(document(*(f"n{number}" for number in range(4096))))) == 4096


@pytest.mark.covers("RL-3")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not right"),
        (b"[" * 50_000, "not right"),
        (b"\xff", "not right"),
        (document("a", version=2), "version 2"),
        (document("a", extra=1), "extra"),
        (document("a", "a"), "twice"),
        (document("a b"), "no Dynamo namespace"),
        (document(""), "no Dynamo namespace"),
        (document("x" * 513), "no Dynamo namespace"),
        (document(*(f"n{number}" for number in range(4097))), "4097"),
        (b" " * (1 << 20) + document("a"), "bytes"),
    ],
)
def test_sources_that_are_not_right_must_be_refused(content: bytes, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        read_sources(content)
