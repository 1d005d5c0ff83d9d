from __future__ import annotations

import sys

import msgspec

from isthmus.api.decode import MESSAGE_LIMIT, OptionalRaw, cut_text, own_raw, settle
from isthmus.api.meta import Frozen


class Holder(Frozen, frozen=True, kw_only=True):
    raw: OptionalRaw = None
    message: str = ""

    def __post_init__(self) -> None:
        own_raw(self, "raw")


class Owner(Frozen, frozen=True, kw_only=True):
    raw: msgspec.Raw

    def __post_init__(self) -> None:
        own_raw(self, "raw")


class Viewer(Frozen, frozen=True, kw_only=True):
    raw: msgspec.Raw


def referrers_added_by(page: bytes, kind: type[Frozen]) -> int:
    before = sys.getrefcount(page)
    decoded = msgspec.json.decode(page, type=kind)
    added = sys.getrefcount(page) - before
    assert decoded is not None
    return added


def test_raw_field_must_let_go_of_the_input() -> None:
    page = b'{"raw": {"a": [1, 2, 3]}, "rest": "' + b"x" * 10_000 + b'"}'
    assert referrers_added_by(page, Viewer) > 0, "a plain Raw holds its input; else this test shows nothing"
    assert referrers_added_by(page, Owner) == 0


def test_raw_field_must_keep_its_bytes() -> None:
    owner = msgspec.json.decode(b'{"raw": {"a": [1,  2]}}', type=Owner)
    assert bytes(owner.raw) == b'{"a": [1,  2]}'


def test_absent_raw_field_must_stay_absent() -> None:
    assert Holder().raw is None
    assert msgspec.json.decode(b"{}", type=Holder).raw is None


def test_null_in_an_optional_raw_field_must_be_none() -> None:
    assert msgspec.json.decode(b'{"raw": null}', type=Holder).raw is None


def test_object_in_an_optional_raw_field_must_be_kept() -> None:
    holder = msgspec.json.decode(b'{"raw": {"a":1}}', type=Holder)
    assert holder.raw is not None
    assert bytes(holder.raw) == b'{"a":1}'


def test_long_message_must_be_cut_with_an_ellipsis() -> None:
    holder = Holder(message="x" * (MESSAGE_LIMIT + 1))
    cut_text(holder, "message")
    assert len(holder.message) == MESSAGE_LIMIT
    assert holder.message.endswith("x…")


def test_message_at_the_limit_must_stay_whole() -> None:
    holder = Holder(message="x" * MESSAGE_LIMIT)
    cut_text(holder, "message")
    assert holder.message == "x" * MESSAGE_LIMIT


def test_settled_field_must_have_the_new_value() -> None:
    holder = Holder()
    settle(holder, "message", "new")
    assert holder.message == "new"
