"""Waiting for the world to become what it must, with a deadline and a text that says what was seen last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(
    holds: Callable[[], bool], *, within_s: float = 10, seen: Callable[[], object] = lambda: ""
) -> None:
    """Return once `holds()`; raise AssertionError with `seen()` after `within_s` seconds of waiting."""
    deadline = asyncio.get_running_loop().time() + within_s
    while not holds():
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"not within {within_s} s; last seen: {seen()}")
        await asyncio.sleep(0.005)


async def eventually(check: Callable[[], Awaitable[T]], *, within_s: float = 30, every_s: float = 0.05) -> T:
    """What `check` returns once it raises no AssertionError; its last one where it does not within `within_s`
    seconds."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        try:
            return await check()
        except (AssertionError, LookupError):  # what it looks into may not be there yet
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(every_s)


async def always(check: Callable[[], Awaitable[None]], *, for_s: float, every_s: float = 0.05) -> None:
    """Hold `check` for `for_s` seconds; raises what it raises."""
    deadline = asyncio.get_running_loop().time() + for_s
    while asyncio.get_running_loop().time() < deadline:
        await check()
        await asyncio.sleep(every_s)
