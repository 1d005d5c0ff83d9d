"""Several writes of one pass at once, bounded, each with what came of it.

Executors of features call `at_once`. One failure keeps none of the others from being tried; a process that
may not write any more stops there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from isthmus.errors import IsthmusError
from isthmus.kube.errors import WriteRefused

A = TypeVar("A")
R = TypeVar("R")


async def at_once(
    actions: Sequence[A], one: Callable[[A], Awaitable[R]], *, most: int
) -> list[tuple[A, R | IsthmusError]]:
    """Call `one` with each action, at most `most` at a time; each action with what came of it, in their
    order. Raises WriteRefused where this process may not write any more."""
    results: dict[int, R | IsthmusError] = {}
    rest = iter(enumerate(actions))

    async def work() -> None:
        for index, action in rest:
            try:
                results[index] = await one(action)
            except WriteRefused:
                raise
            except IsthmusError as error:
                results[index] = error

    if len(actions) == 1:  # the usual case, and no group around what it raises
        await work()
        return [(actions[0], results[0])]
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(most, len(actions))):
                tasks.create_task(work())
    except* WriteRefused as refused:
        raise next(iter(refused.exceptions)) from None
    return [(action, results[index]) for index, action in enumerate(actions)]
