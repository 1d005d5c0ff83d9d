from __future__ import annotations

import string
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isthmus.web.framing import MAX_CHUNK_LINE_BYTES, Framing, Phase
from isthmus.web.head import Refused
from isthmus.web.limits import Limits

SMALL = Limits(head_bytes=256, target_bytes=64, head_lines=8, body_bytes=64)

Message = tuple[str, str, bytes]
Outcome = tuple[list[Message], int]
"""The requests that came out, and the status of the refusal that ended it, or 0."""

token = st.text(string.ascii_letters + string.digits + "-", min_size=1, max_size=6)
extension = st.sampled_from([b"", b";a", b';a="b"', b";" + b"x" * 20])


@st.composite
def honest(draw: st.DrawFn) -> tuple[bytes, Message]:
    """An unambiguous request within SMALL, in any legal form, and what it means."""
    path = "/" + draw(token)
    headers = b"".join(
        f"x-{draw(token)}:{draw(st.sampled_from(['', ' ', '  ']))}{draw(token)}\r\n".encode()
        for _ in range(draw(st.integers(0, 3)))
    )
    body = draw(st.binary(max_size=SMALL.body_bytes))
    form = draw(st.sampled_from(["none", "length", "chunked"]))
    method = (
        draw(st.sampled_from(["GET", "DELETE", "BREW"]))
        if form == "none"
        else draw(st.sampled_from(["POST", "BREW"]))
    )
    top = f"{method} {path} HTTP/1.1\r\nHost: a\r\n".encode() + headers
    if form == "none":
        return top + b"\r\n", (method, path, b"")
    if form == "length":
        return top + b"Content-Length: %d\r\n\r\n" % len(body) + body, (method, path, body)
    raw, rest = top + b"Transfer-Encoding: chunked\r\n\r\n", body
    while rest:
        size = draw(st.integers(1, len(rest)))
        raw += b"%x" % size + draw(extension) + b"\r\n" + rest[:size] + b"\r\n"
        rest = rest[size:]
    trailer = draw(st.sampled_from([b"", b"X-Sum: 1\r\n"]))
    return raw + b"0" + draw(extension) + b"\r\n" + trailer + b"\r\n", (method, path, body)


def run(pieces: Sequence[bytes]) -> Outcome:
    """Feed the pieces, taking each request out at once."""
    framing, out = Framing(SMALL), []

    def take() -> None:
        while framing.phase is Phase.READY:
            out.append((framing.head.method, framing.head.path, framing.body))
            framing.release()

    try:
        for piece in pieces:
            framing.feed(piece)
            take()
            assert framing.buffered_bytes <= max(SMALL.head_bytes, MAX_CHUNK_LINE_BYTES) + 4
    except Refused as refusal:
        return out, refusal.status
    return out, 0


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(raw)) for place in places} | {len(raw)})
    return [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.covers("R54")
@given(st.lists(honest(), max_size=4), st.lists(st.integers(0, 2000), max_size=12))
def test_honest_requests_must_come_out_as_they_were_meant_however_cut(
    requests: list[tuple[bytes, Message]], places: list[int]
) -> None:
    raw = b"".join(part for part, _ in requests)
    assert run(cut(raw, places)) == ([message for _, message in requests], 0)


fragments = st.sampled_from(
    [
        b"GET / HTTP/1.1\r\n",
        b"POST /p HTTP/1.1\r\n",
        b"Host: a\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"abc",
        b"3\r\nabc\r\n",
        b"0\r\n\r\n",
        b"x" * 300,
        b";ext",
        b" ",
        b"\x00",
    ]
)
hostile = st.one_of(st.lists(fragments, max_size=20).map(b"".join), st.binary(max_size=400))


@pytest.mark.covers("R54")
@example(b"GET / HTTP/1.1\r\nHost: a\r\n\r", [3])
@given(hostile, st.lists(st.integers(0, 2000), max_size=12))
def test_any_bytes_must_mean_the_same_however_cut_and_never_more_than_a_refusal(
    raw: bytes, places: list[int]
) -> None:
    whole, pieces = run([raw]), run(cut(raw, places))
    assert pieces[0] == whole[0]
    assert bool(pieces[1]) == bool(whole[1])


@pytest.mark.covers("R54")
@given(honest(), st.lists(st.integers(0, 300), min_size=1, max_size=3), st.data())
def test_a_request_with_bytes_changed_never_lets_more_through_than_was_sent(
    request: tuple[bytes, Message], places: list[int], data: st.DataObject
) -> None:
    """Noise can spoil a request or change its meaning, but one request line is at most one request."""
    raw = bytearray(request[0])
    for place in places:
        raw[place % len(raw)] = data.draw(st.integers(0, 255))
    out, _ = run([bytes(raw)])
    assert len(out) <= bytes(raw).count(b"HTTP/1.")
