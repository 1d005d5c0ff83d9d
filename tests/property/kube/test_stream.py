from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.kube.stream import LineSplitter

LINE = st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"."))


@given(lines=st.lists(LINE, max_size=8), tail=LINE, cuts=st.sets(st.integers(0, 200)))
def test_lines_must_not_depend_on_where_the_pieces_are_cut(
    lines: list[bytes], tail: bytes, cuts: set[int]
) -> None:
    body = b"".join(line + b"\n" for line in lines) + tail
    splitter = LineSplitter()
    got: list[bytes] = []
    start = 0
    for end in [*sorted(cut for cut in cuts if cut < len(body)), len(body)]:
        got += splitter.feed(body[start:end])
        start = end
    assert got == [line for line in lines if line.strip()]
    assert splitter.rest() == tail
