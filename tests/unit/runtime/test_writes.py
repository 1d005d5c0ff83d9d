"""Several writes at once: bounded, in order, and each with what came of it."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.errors import WorldError
from isthmus.kube.errors import Forbidden, WriteRefused
from isthmus.runtime.writes import at_once
from tests.support.clock import settle


async def test_writes_must_be_bounded_and_told_in_their_order() -> None:
    running: list[int] = []
    most = 0
    gate = asyncio.Event()

    async def one(action: int) -> int:
        nonlocal most
        running.append(action)
        most = max(most, len(running))
        await gate.wait()
        running.remove(action)
        return action * 10

    task = asyncio.get_running_loop().create_task(at_once(range(7), one, most=3))
    await settle()
    assert running == [0, 1, 2]
    gate.set()
    assert await task == [(action, action * 10) for action in range(7)]
    assert most == 3


async def test_failure_must_keep_no_other_from_being_tried() -> None:
    error = WorldError("no answer")

    async def one(action: str) -> None:
        if action == "b":
            raise error

    assert await at_once("abc", one, most=1) == [("a", None), ("b", error), ("c", None)]
    assert await at_once("", one, most=1) == []


async def test_process_that_may_not_write_must_stop_there() -> None:
    tried: list[int] = []

    async def one(action: int) -> None:
        tried.append(action)
        raise WriteRefused("no longer the leader")

    with pytest.raises(WriteRefused):
        await at_once(range(50), one, most=2)
    assert len(tried) <= 2


def test_namespace_that_ends_must_be_told_from_a_missing_right() -> None:
    assert Forbidden(403, causes=(("metadata.namespace", "NamespaceTerminating", ""),)).namespace_ends
    assert not Forbidden(403).namespace_ends
