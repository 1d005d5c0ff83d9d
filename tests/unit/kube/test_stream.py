from __future__ import annotations

import pytest

from isthmus.kube.errors import WrongAnswer
from isthmus.kube.stream import LineSplitter, WatchStream


def stream_of(*pieces: bytes, max_line_bytes: int = 100) -> WatchStream:
    source = iter((*pieces, b""))

    async def read() -> bytes:
        return next(source)

    return WatchStream(read, max_line_bytes)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"one\n\n \r\ntwo"], [b"one", b"two"]),
        ([b"o", b"n", b"e", b"\n", b"t", b"wo\nth", b"ree\n"], [b"one", b"two", b"three"]),
        ([b"whole"], [b"whole"]),
        ([b"\n"], []),
        ([], []),
    ],
)
async def test_stream_must_give_each_line_once(pieces: list[bytes], lines: list[bytes]) -> None:
    assert [line async for line in stream_of(*pieces)] == lines


async def test_stream_must_give_one_batch_per_piece() -> None:
    batches = [batch async for batch in stream_of(b"a\nb\nc", b"d", b"\n").batches()]
    assert batches == [[b"a", b"b"], [], [b"cd"]]


@pytest.mark.parametrize("pieces", [[b"", b"x" * 101], [b"x" * 60, b"y" * 60], [b"a\nx", b"x" * 100]])
def test_line_without_end_never_fills_the_memory(pieces: list[bytes]) -> None:
    splitter = LineSplitter(100)
    splitter.feed(pieces[0])
    with pytest.raises(WrongAnswer, match="longer than 100 bytes"):
        splitter.feed(pieces[1])


def test_huge_line_in_small_pieces_must_stay_linear() -> None:
    splitter = LineSplitter()
    for _ in range(100_000):
        assert splitter.feed(b"x" * 100) == []
    (line,) = splitter.feed(b"\n")
    assert len(line) == 10_000_000
