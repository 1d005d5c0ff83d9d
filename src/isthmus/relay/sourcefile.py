"""Follows the file of sources: read each second, and whatever is wrong with it leaves the last good one
(RL-3).

app.py runs it where `--sources-file` is given, and calls `first` before anything starts, so that a file that
was never right is an error and not a relay without a pool.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from isthmus import logs
from isthmus.clock import Clock
from isthmus.errors import UserError
from isthmus.relay.plan.sources import MAX_BYTES, read_sources
from isthmus.relay.view import View

log = logs.get(__name__)

POLL_S: Final = 1.0


def read(path: Path) -> tuple[str, ...]:
    """The namespaces that a file names. Raises UserError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}") from problem
    try:
        return read_sources(content)
    except UserError as problem:
        raise UserError(f"{path}: {problem}") from None


async def follow(path: Path, view: View, clock: Clock) -> None:
    """Tell the view what the file says, until cancelled."""
    wrong = ""
    while True:
        try:
            namespaces = await asyncio.to_thread(read, path)
        except UserError as problem:
            if str(problem) != wrong:
                wrong = str(problem)
                log.warning("the sources cannot be used; the last good ones stay", problem=wrong)
        else:
            wrong = ""
            if namespaces != view.selection.namespaces:
                log.info("other sources", namespaces=len(namespaces))
                view.select(namespaces)
        await clock.sleep(POLL_S)
