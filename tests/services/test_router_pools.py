"""How a router follows a discovery service over real sockets, whatever that does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from isthmus.clock import SystemClock
from isthmus.router import pools
from isthmus.router.plan.directory import Directory
from isthmus.router.pools import Discovered, Source
from tests.support.certs import Authority
from tests.support.eventually import until
from tests.support.poolfacts import pool
from tests.support.rawhttp import RawServer, Request, Wire
from tests.support.scripteddiscovery import ScriptedDiscovery

A, B, C = pool("a"), pool("b"), pool("c")


class Following:
    """A router's view of a service."""

    def __init__(self, url: str, **source: Any) -> None:
        self.directory = Directory()
        self.changes = 0
        self.discovered = Discovered(Source(url=url, **source), self.directory, SystemClock(), self._changed)

    def _changed(self) -> None:
        self.changes += 1

    @property
    def known(self) -> list[str]:
        return [each.name for each in self.directory.pools]

    async def knows(self, *names: str) -> None:
        await until(
            lambda: self.known == list(names), seen=lambda: (self.known, self.discovered.heard.problem)
        )

    async def has_problem(self, text: str) -> None:
        heard = self.discovered.heard
        await until(lambda: text in heard.problem, seen=lambda: heard.problem)


@asynccontextmanager
async def following(url: str, **source: Any) -> AsyncIterator[Following]:
    found = Following(url, **source)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(found.discovered.run())
        yield found
        assert not task.done()
        task.cancel()


@pytest.fixture
async def service() -> AsyncIterator[ScriptedDiscovery]:
    async with ScriptedDiscovery(A, B) as found:
        yield found


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "FIRST_BACKOFF_S", 0.02)
    monkeypatch.setattr(pools, "MAX_BACKOFF_S", 0.1)


@pytest.mark.covers("PW-7", "PW-9", "PW-16")
async def test_router_must_read_the_list_and_then_follow_the_watch_from_there(
    service: ScriptedDiscovery,
) -> None:
    async with following(service.url + "/") as router:
        await router.knows("a", "b")
        await until(lambda: service.watchers == 1)
        assert service.asked("/pools/watch")[0].query == {"from": "v1"}
        service.number = 2
        await service.tell("added", C)
        await service.tell("removed", {"cluster_id": "east", "namespace": "serving", "name": "a"})
        await service.synced()
        await router.knows("b", "c")
        assert len(service.asked("/pools")) == 1
        assert 0 <= router.discovered.heard.age_s() < 5
        changes = router.changes
        assert changes > 0
        await service.send(b": beat\n\n")
        await service.tell("removed", {"cluster_id": "east", "namespace": "serving", "name": "b"})
        await router.knows("c")
        assert router.changes == changes + 1


@pytest.mark.covers("PW-9")
async def test_watch_that_ends_must_be_resumed_with_the_etag_of_what_is_known(
    service: ScriptedDiscovery,
) -> None:
    async with following(service.url) as router:
        await until(lambda: service.watchers == 1)
        service.number = 2
        await service.tell("added", C)
        await service.synced()
        await router.knows("a", "b", "c")
        service.pools = (A, B, C)
        service.cut()
        await until(lambda: len(service.asked("/pools/watch")) == 2)
        assert service.asked("/pools")[1].headers["if-none-match"] == '"v2"'
        assert service.asked("/pools/watch")[1].query == {"from": "v2"}
        await router.has_problem("")
        assert router.known == ["a", "b", "c"]


@pytest.mark.covers("PW-9", "PW-7")
async def test_router_without_a_watch_must_poll(service: ScriptedDiscovery) -> None:
    service.watchable = False
    async with following(service.url) as router:
        await router.knows("a", "b")
        await until(lambda: len(service.asked("/pools")) >= 3)
        assert all("if-none-match" in each.headers for each in service.asked("/pools")[1:])
        service.set(C)
        await router.knows("c")


@pytest.mark.covers("D-20")
async def test_router_must_keep_its_pools_while_the_service_is_down(service: ScriptedDiscovery) -> None:
    async with following(service.url) as router:
        await router.knows("a", "b")
        await service.server.__aexit__()
        await router.has_problem("")
        await until(lambda: router.discovered.heard.problem != "")
        await asyncio.sleep(0.3)
        assert router.known == ["a", "b"]
        service.set(C)
        await service.server.__aenter__()
        await router.knows("c")


@pytest.mark.covers("D-19", "PW-8")
async def test_router_must_keep_its_pools_where_the_service_restarts_empty(
    service: ScriptedDiscovery,
) -> None:
    async with following(service.url) as router:
        await router.knows("a", "b")
        service.set(complete=False)
        service.cut()
        await until(lambda: router.directory.is_doubtful(A.pool_id))
        assert router.known == ["a", "b"]
        await until(lambda: service.watchers == 1)
        service.number += 1
        await service.tell("added", A)
        service.complete = True
        await service.synced()
        await router.knows("a")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"schema":2,"version":"v","complete":true,"mode":"mcs","pools":[]}',
        b'{"version":"v","complete":true,"mode":"mcs","pools":[{"pool_id":"x"}]}',
        b"x" * 2000,
    ],
)
async def test_list_that_makes_no_sense_must_change_nothing(
    service: ScriptedDiscovery, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nonsense(_: Request, wire: Wire) -> bool:
        await wire.answer(body)
        return True

    monkeypatch.setattr(pools, "MAX_LIST_BYTES", 1500)
    async with following(service.url) as router:
        await router.knows("a", "b")
        service.instead = nonsense
        service.cut()
        await until(lambda: router.discovered.heard.problem not in ("", "the watch ended"))
        assert router.known == ["a", "b"]
        service.instead = None
        service.set(C)
        await router.knows("c")
        assert router.discovered.heard.problem == ""


@pytest.mark.parametrize("path", ["/pools", "/pools/watch"])
async def test_service_that_does_not_answer_must_be_asked_again(
    service: ScriptedDiscovery, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "ANSWER_S", 0.1)

    async def silent(request: Request, _: Wire) -> bool:
        if request.path == path and len(service.asked(path)) == 1:
            await asyncio.Event().wait()
        return False

    service.instead = silent
    async with following(service.url) as router:
        await router.knows("a", "b")
        await until(lambda: service.watchers == 1)


@pytest.mark.covers("PW-9")
async def test_watch_that_says_nothing_must_be_dropped(
    service: ScriptedDiscovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SILENCE_S", 0.15)
    async with following(service.url) as router:
        await until(lambda: len(service.asked("/pools/watch")) >= 3)
        assert router.known == ["a", "b"]


@pytest.mark.covers("PW-9")
async def test_heartbeats_must_keep_a_watch(
    service: ScriptedDiscovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "SILENCE_S", 2.0)
    async with following(service.url) as router:
        await until(lambda: service.watchers == 1)
        for _ in range(25):
            await asyncio.sleep(0.1)
            await service.send(b": beat\n\n")
        assert len(service.asked("/pools/watch")) == 1
        assert router.discovered.heard.age_s() < 2


async def test_long_watch_must_be_followed_by_a_look_at_the_list(
    service: ScriptedDiscovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "RELIST_S", 0.2)
    async with following(service.url) as router:
        await until(lambda: service.watchers == 1)
        await asyncio.sleep(0.25)
        await service.send(b": beat\n\n")
        await until(lambda: len(service.asked("/pools")) == 2)
        assert router.discovered.heard.problem == ""


async def test_event_that_never_ends_must_end_the_watch(service: ScriptedDiscovery) -> None:
    async with following(service.url) as router:
        await until(lambda: service.watchers == 1)
        for _ in range(40):
            if service.watchers:
                await service.send(b"data: " + b"x" * 65536)
        await router.has_problem("longer than")
        assert router.known == ["a", "b"]


async def test_token_must_be_sent_and_read_again_after_a_401(
    service: ScriptedDiscovery, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")

    async def strict(request: Request, wire: Wire) -> bool:
        if request.headers.get("authorization") == "Bearer new":
            return False
        await wire.answer({"error": {}}, 401)
        return True

    service.instead = strict
    async with following(service.url, token=token) as router:
        await router.has_problem("401")
        assert service.server.requests[0].headers["authorization"] == "Bearer old"
        token.write_text("new\n")
        await router.knows("a", "b")


async def test_redirect_must_never_carry_the_token_elsewhere(
    service: ScriptedDiscovery, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")

    async def nowhere(_: Request, wire: Wire) -> None:
        await wire.answer({})

    async with RawServer(nowhere) as other:

        async def away(_: Request, wire: Wire) -> bool:
            await wire.answer({}, 307, {"Location": other.url + "/pools"})
            return True

        service.instead = away
        async with following(service.url, token=token) as router:
            await router.has_problem("307")
        assert other.requests == []


async def test_service_with_an_authority_of_its_own_must_be_trusted_by_its_file(tmp_path: Path) -> None:
    authority, other = Authority(), Authority("other")
    certificate, key = authority.issue("discovery")
    pair, ca = tmp_path / "pair.pem", tmp_path / "ca.pem"
    pair.write_bytes(certificate + key)
    ca.write_bytes(other.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    async with ScriptedDiscovery(A, tls=context) as service, following(service.url, ca=ca) as router:
        await router.has_problem("certificate verify failed")
        ca.write_bytes(authority.pem)
        await router.knows("a")


async def test_authority_that_cannot_be_read_must_be_a_problem_that_passes(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    authority = Authority()
    pair = tmp_path / "pair.pem"
    pair.write_bytes(b"".join(authority.issue("discovery")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    async with ScriptedDiscovery(A, tls=context) as service, following(service.url, ca=ca) as router:
        await router.has_problem("ca.pem")
        ca.write_bytes(authority.pem)
        await router.knows("a")


async def test_service_must_be_asked_through_the_proxy_of_the_environment(
    service: ScriptedDiscovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", service.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with following("http://discovery.test:8080") as router:
        await router.knows("a", "b")
        await until(lambda: service.watchers == 1)
    assert [each.target for each in service.server.requests] == [
        "http://discovery.test:8080/pools",
        "http://discovery.test:8080/pools/watch?from=v1",
    ]
