"""The file of sources: followed while it changes, and kept to while it is broken."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from isthmus.clock import SystemClock
from isthmus.errors import UserError
from isthmus.relay import sourcefile
from isthmus.relay.view import View
from tests.support.eventually import eventually
from tests.support.relayfacts import options


def sources(*names: str) -> str:
    return json.dumps({"version": 1, "sources": [{"namespace": name} for name in names]})


@pytest.mark.covers("RL-3")
async def test_file_must_be_followed_and_a_bad_one_keep_the_last_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sourcefile, "POLL_S", 0.01)
    path = tmp_path / "sources.json"
    path.write_text(sources("a"))
    view = View(options(), lambda _: None, SystemClock())

    async def chosen(*names: str) -> None:
        assert view.selection.namespaces == names

    async with asyncio.TaskGroup() as group:
        following = group.create_task(sourcefile.follow(path, view, SystemClock()))
        await eventually(lambda: chosen("a"))
        for broken in ("{", sources("a", "a"), ""):
            path.write_text(broken)
            await asyncio.sleep(0.05)
            await chosen("a")
        path.unlink()
        await asyncio.sleep(0.05)
        await chosen("a")
        path.write_text(sources("b", "c"))
        await eventually(lambda: chosen("b", "c"))
        following.cancel()


@pytest.mark.covers("RL-3")
@pytest.mark.parametrize("content", [None, "{}", "x" * (2 << 20)])
def test_file_that_was_never_right_must_be_an_error_that_names_it(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "sources.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=r"sources\.json"):
        sourcefile.read(path)
