"""Server-sent events out of pieces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from isthmus.api.pools import InvalidField
from isthmus.router.plan.eventstream import MAX_EVENT_BYTES, EventStream


@pytest.mark.covers("PW-9")
@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"event: added\ndata: {}\n\n", [("added", b"{}")]),
        (b"event:added\ndata:{}\r\n\r\n", [("added", b"{}")]),
        (b"data:  x\nevent: a\ndata\ndata: y\n\n", [("a", b" x\n\ny")]),
        (b": hello\n\nevent: a\n\n", [("a", b"")]),
        (b"data: x\n\n", []),
        (b"id: 1\nretry: 5\nevent: a\ndata: x\n\nevent: b\n", [("a", b"x")]),
        (b"event: a\ndata: x\n\nevent: b\ndata: y\n\n", [("a", b"x"), ("b", b"y")]),
        (b"event: \xff\ndata: x\n\n", [("\ufffd", b"x")]),
    ],
)
def test_events_must_be_read(text: bytes, events: list[tuple[str, bytes]]) -> None:
    assert EventStream().feed(text) == events
    stream = EventStream()
    assert [event for at in range(len(text)) for event in stream.feed(text[at : at + 1])] == events


def _until_refused(stream: EventStream, line: bytes) -> Iterator[None]:
    for _ in range(MAX_EVENT_BYTES // 900):
        try:
            assert stream.feed(line) == []
        except InvalidField:
            return
        yield
    raise AssertionError("never refused")


@pytest.mark.covers("PW-9")
@pytest.mark.parametrize("line", [b"data: " + b"x" * 1000 + b"\n", b"x" * 1000, b": " + b"x" * 1000 + b"\n"])
def test_event_that_never_ends_must_be_refused(line: bytes) -> None:
    stream = EventStream()
    fed = sum(1 for _ in _until_refused(stream, line))
    assert MAX_EVENT_BYTES - 1010 <= fed * len(line) <= MAX_EVENT_BYTES + 4000


def test_many_events_must_never_add_up() -> None:
    stream = EventStream()
    data = b"x" * (MAX_EVENT_BYTES // 2)
    for _ in range(5):
        assert stream.feed(b"event: a\ndata: " + data + b"\n\n") == [("a", data)]
    assert stream.feed(b"x" * MAX_EVENT_BYTES) == []
    with pytest.raises(InvalidField):
        stream.feed(b"x")
