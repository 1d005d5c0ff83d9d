"""The supervisor's control socket: one line of JSON in, one line of JSON out.

`Sandbox` (tests, the command line) calls `call`; the supervisor runs `serve` with a function that answers.
The socket lies in the sandbox's folder, which only its owner may enter. Its path goes through /proc/self/fd,
so that no folder is too deep for the 108 bytes that an address may have. A request that fails is answered
with its text and never ends the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from isthmus import logs
from isthmus.errors import UserError, WorldError

log = logs.get(__name__)

SOCKET: Final = "control"
MAX_LINE_BYTES: Final = 16 << 20

Raw = dict[str, Any]


class ControlFailed(WorldError):
    """The supervisor is not there, or could not do what it was asked for."""


def call(folder: Path, request: Raw, *, timeout_s: float) -> Raw:
    """Ask the supervisor of `folder` and return its answer. Blocks; raises ControlFailed or UserError."""
    try:
        with _address(folder) as address, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(address)
            connection.sendall(msgspec.json.encode(request) + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except TimeoutError as error:
        raise ControlFailed(f"the sandbox did not {request.get('do')} within {timeout_s:g} s") from error
    except OSError as error:
        raise ControlFailed(f"no sandbox answers in {folder}: {error}") from error
    if not line:
        raise ControlFailed(f"the sandbox in {folder} ended during {request.get('do')}")
    answer: Raw = msgspec.json.decode(line)
    if "user_error" in answer:
        raise UserError(answer["user_error"])
    if "error" in answer:
        raise ControlFailed(answer["error"])
    return answer


async def serve(folder: Path, answer: Callable[[Raw], Awaitable[Raw]]) -> None:
    """Answer requests until cancelled."""

    with contextlib.suppress(FileNotFoundError):
        (folder / SOCKET).unlink()
    async with asyncio.TaskGroup() as group:

        def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            group.create_task(_talk(reader, writer, answer))

        with _address(folder) as address:
            server = await asyncio.start_unix_server(meet, address, limit=MAX_LINE_BYTES)
        try:
            await server.serve_forever()
        finally:
            server.close()


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Callable[[Raw], Awaitable[Raw]]
) -> None:
    try:
        with contextlib.suppress(OSError, ValueError):
            line = await reader.readline()
            if line:
                writer.write(msgspec.json.encode(await _answer_safely(line, answer)) + b"\n")
                await writer.drain()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _answer_safely(line: bytes, answer: Callable[[Raw], Awaitable[Raw]]) -> Raw:
    try:
        return await answer(msgspec.json.decode(line, type=Raw))
    except UserError as error:
        return {"user_error": str(error)}
    except Exception as error:
        log.exception("request failed", request=line[:200].decode(errors="replace"))
        return {"error": str(error) or type(error).__name__}


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[str]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)
