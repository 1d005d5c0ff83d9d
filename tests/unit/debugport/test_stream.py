from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from isthmus.debugport.stream import SLICE_BYTES, SLICE_S, Encodes, take_slice


def numbered(made: list[int], size: int = 1) -> Iterator[bytes]:
    for number in range(1000):
        made.append(number)
        yield b"x" * size


def still() -> float:
    return 5.0


def test_a_slice_must_end_at_its_size() -> None:
    made: list[int] = []
    pieces = numbered(made, size=1000)
    assert len(take_slice(pieces, still)) == 66_000 > SLICE_BYTES
    assert len(made) == 66


def test_a_slice_must_end_at_its_time_but_have_one_piece() -> None:
    made: list[int] = []
    pieces = numbered(made)
    times = iter([0.0, SLICE_S / 2, SLICE_S, 10.0, 20.0])
    assert take_slice(pieces, lambda: next(times)) == b"xx"
    assert take_slice(pieces, lambda: next(times)) == b"x"
    assert len(made) == 3


def test_slices_must_end_with_an_empty_one() -> None:
    pieces = iter([b"a", b"b"])
    assert take_slice(pieces, still) == b"ab"
    assert take_slice(pieces, still) == b""


async def test_a_stream_that_is_dropped_must_free_its_slot_and_make_no_more() -> None:
    encodes, made = Encodes(at_once=1, wait_s=5.0), list[int]()
    stream = encodes.stream(lambda: numbered(made, size=SLICE_BYTES))
    assert len(await anext(stream)) == SLICE_BYTES
    assert encodes.running == 1
    await stream.aclose()
    assert (encodes.running, made) == (0, [0])
    other = encodes.stream(lambda: iter([b"1"]))
    assert [piece async for piece in other] == [b"1"]
    encodes.close()


async def test_a_stream_that_is_cancelled_while_it_waits_must_leave_no_trace() -> None:
    encodes = Encodes(at_once=1, wait_s=5.0)
    held = encodes.stream(lambda: iter([b"1", b"2"]))
    await anext(held)
    begun = []

    def start() -> Iterator[bytes]:
        begun.append(True)
        return iter([b""])

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(anext(encodes.stream(start)))
        await asyncio.sleep(0.01)
        waiting.cancel()
    await held.aclose()
    assert begun == []
    assert [piece async for piece in encodes.stream(lambda: iter([b"3"]))] == [b"3"]
    encodes.close()


async def test_a_failure_to_begin_must_free_the_slot() -> None:
    encodes = Encodes(at_once=1, wait_s=5.0)

    def fail() -> Iterator[bytes]:
        raise ValueError("no snapshot")

    for _ in range(3):
        with pytest.raises(ValueError, match="no snapshot"):
            await anext(encodes.stream(fail))
    encodes.close()
