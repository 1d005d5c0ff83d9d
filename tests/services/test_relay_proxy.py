"""A relay asks its frontends through the proxy that the environment names, as everything else does."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.errors import UserError
from isthmus.relay.plan.model import Door
from isthmus.sandbox import ports
from isthmus.sandbox.proxy import Proxy
from tests.support.eventually import eventually
from tests.support.relayfacts import options
from tests.support.relayrun import Frontend, TestRelay, fetch, relaying, serving

POD = Door(url="http://198.18.1.7:8000", service="east-frontend")


@pytest.mark.covers("R25")
async def test_frontends_must_be_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[tuple[str, int]] = set()
    async with serving(Frontend()) as frontend, asyncio.TaskGroup() as group:

        async def find(host: str, port: int) -> int:
            asked.add((host, port))
            found: int = frontend.port
            return found

        with ports.reserve() as held:
            proxy = Proxy(find, port=ports.port_of(held))
            running = group.create_task(proxy.run())
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            async with relaying() as relay:
                relay.see(POD)

                async def listed() -> None:
                    _, body = await fetch(f"{relay.url}/v1/relay")
                    assert body["models"] == ["example/tiny"]

                await eventually(listed)
            running.cancel()
    assert asked == {("198.18.1.7", 8000)}


@pytest.mark.covers("R25")
async def test_proxy_that_cannot_be_used_must_be_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1")
    with pytest.raises(UserError, match="HTTP_PROXY"):
        TestRelay(options(bind=(("127.0.0.1",), 1)))
