"""The page for people: its files and policy, what it shows, and how many may look."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import pytest

from isthmus.router import ui
from tests.support.http import ask, parse_answers, talk
from tests.support.rawhttp import Request, Wire
from tests.support.routers import opened, request, routing

HOSTILE = "<img src=x onerror=alert(1)>"


async def _good(_: Request, wire: Wire) -> None:
    await wire.answer({"ok": True})


@pytest.mark.parametrize("path", sorted(ui.FILES))
async def test_file_of_the_page_must_be_served_under_a_policy_that_lets_nothing_else_in(
    tmp_path: Path, path: str
) -> None:
    async with routing(tmp_path, _good) as r:
        answer = await ask(r.port, target=path)
    assert answer.status == 200
    assert answer.headers["content-type"] == ui.FILES[path][1]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"


def test_page_must_name_no_place_but_its_own_and_make_no_markup() -> None:
    folder = resources.files("isthmus.router") / "page"
    texts = {name: (folder / name).read_text("utf-8") for name, _ in ui.FILES.values()}
    for text in texts.values():
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", texts["page.js"])
    assert not re.search(r"<script(?! src=)|<style|\son\w+=|style=", texts["index.html"])


async def test_state_must_tell_of_each_pool_and_its_traffic(tmp_path: Path) -> None:
    async with routing(tmp_path, _good) as r:
        await talk(r.port, request())
        r.file.write_text(r.file.read_text().replace('"tiny"', json.dumps(HOSTILE)))
        state = (await ask(r.port, target="/ui/state")).json
        (pool,) = state["pools"]
    assert (pool["name"], pool["eligible"], pool["breaker"]) == ("pool-0", True, "closed")
    assert pool["traffic"]["requests_per_s"] > 0
    assert pool["traffic"]["first_byte_p50_s"] > 0
    assert state["complete"] is True


async def test_events_must_come_at_once_and_to_no_more_than_a_bounded_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ui, "MAX_WATCHERS", 1)
    async with routing(tmp_path, _good) as r:
        raw = b"GET /ui/events HTTP/1.1\r\nHost: r\r\n\r\n"
        reader, writer = await opened(r.port, raw)
        event = await reader.readuntil(b"\n\n")
        assert b"text/event-stream" in event
        assert b"data: {" in event
        (refused,) = parse_answers(
            await talk(r.port, raw.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        )
        assert refused.status == 503
        writer.close()


async def test_page_must_be_absent_where_it_is_turned_off(tmp_path: Path) -> None:
    async with routing(tmp_path, _good, page=False) as r:
        assert (await ask(r.port, target="/ui")).status == 404
