"""Requests to the supervisor and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import UserError
from isthmus.sandbox import control
from tests.support.eventually import until

Raw = dict[str, Any]


async def answer(request: Raw) -> Raw:
    match request["do"]:
        case "user":
            raise UserError("your fault")
        case "break":
            raise RuntimeError("mine")
        case "hang":
            await asyncio.Event().wait()
    return {"got": request["do"]}


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    # Deeper than the 108 bytes of a socket's address.
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    async with asyncio.TaskGroup() as group:
        server = group.create_task(control.serve(deep, answer))
        await until((deep / control.SOCKET).exists)
        yield deep
        server.cancel()


async def ask(folder: Path, request: Raw, timeout_s: float = 5) -> Raw:
    return await asyncio.to_thread(control.call, folder, request, timeout_s=timeout_s)


async def test_request_must_be_answered_however_deep_the_folder(folder: Path) -> None:
    assert await ask(folder, {"do": "x" * 100_000}) == {"got": "x" * 100_000}


async def test_error_of_the_user_must_come_back_as_one(folder: Path) -> None:
    with pytest.raises(UserError, match="your fault"):
        await ask(folder, {"do": "user"})


async def test_failure_must_come_back_and_leave_the_server_running(folder: Path) -> None:
    with pytest.raises(control.ControlFailed, match="mine"):
        await ask(folder, {"do": "break"})
    assert await ask(folder, {"do": "y"}) == {"got": "y"}


async def test_request_that_hangs_must_end_at_its_deadline(folder: Path) -> None:
    with pytest.raises(control.ControlFailed, match=r"did not hang within 0\.2 s"):
        await ask(folder, {"do": "hang"}, timeout_s=0.2)


def test_folder_without_supervisor_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(control.ControlFailed, match="no sandbox answers"):
        control.call(tmp_path, {"do": "x"}, timeout_s=1)
