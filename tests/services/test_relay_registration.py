"""A relay and a discovery service that notes what it is asked, over real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from isthmus.api.pools import InvalidField, read_registration
from isthmus.relay.discoveryclient import DiscoveryClient, NotTaken
from isthmus.relay.options import DiscoveryOptions
from isthmus.relay.registrar import Registrar
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import Supervisor
from tests.support.certs import Authority
from tests.support.eventually import eventually
from tests.support.relayfacts import crew
from tests.support.relayrun import Discovery, Frontend, TestRelay, relaying, serving


@pytest.fixture
async def relay() -> AsyncIterator[TestRelay]:
    async with relaying() as found, serving(Frontend()) as frontend:
        found.see(frontend.door)
        yield found


@pytest.fixture
async def discovery() -> AsyncIterator[Discovery]:
    async with serving(Discovery()) as found:
        yield found


class Registering:
    """A registrar that runs."""

    def __init__(self, relay: TestRelay, url: str, **files: Path) -> None:
        self.metrics = Metrics()
        self.client = DiscoveryClient(DiscoveryOptions(url=url, **files), relay.clock, environ={})
        self.registrar = Registrar(relay.view, self.client, relay.clock, self.metrics)
        self.tasks = Supervisor(relay.clock, self.metrics)

    async def __aenter__(self) -> Registering:
        await self.client.__aenter__()
        await self.tasks.__aenter__()
        self.tasks.start("register", self.registrar.run)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.tasks.__aexit__(None, None, None)
        await self.client.__aexit__()


async def count(discovery: Discovery, at_least: int) -> None:
    async def enough() -> None:
        assert len(discovery.registered) >= at_least

    await eventually(enough)


@pytest.mark.covers("RL-18", "PW-1", "PW-4")
async def test_relay_must_register_and_renew_at_the_services_pace(
    relay: TestRelay, discovery: Discovery
) -> None:
    async with Registering(relay, discovery.url) as found:
        await count(discovery, 1)
        began = asyncio.get_running_loop().time()
        await count(discovery, 6)
        assert 0.8 < asyncio.get_running_loop().time() - began < 4.0
        assert found.registrar.registered
        body = discovery.registered[0]
        assert {key: body[key] for key in ("schema", "cluster_id", "namespace", "name")} == {
            "schema": 1,
            "cluster_id": "one",
            "namespace": "serving",
            "name": "east",
        }
        assert body["relay"] == {
            "url": "http://10.0.0.7:5561",
            "incarnation": relay.view.options.incarnation,
            "revision": 1,
        }
        assert [(model["id"], model["ready"]) for model in body["models"]] == [("example/tiny", True)]
        assert [each["service"] for each in body["frontends"]] == ["east-frontend"]
        assert discovery.authorized[0] == ""
        assert (found.metrics.value("isthmus_relay_registrations_total", result="granted") or 0) >= 5


@pytest.mark.covers("PW-4")
async def test_change_must_be_told_at_once(relay: TestRelay, discovery: Discovery) -> None:
    discovery.answer["heartbeat_interval_secs"] = 600
    async with Registering(relay, discovery.url):
        await count(discovery, 1)
        assert relay.view.roster is not None
        relay.see(*relay.view.roster.doors, crews=(crew(ready=0),))
        await count(discovery, 2)
        last = discovery.registered[-1]
        assert [model["ready"] for model in last["models"]] == [False]
        assert last["relay"]["revision"] == 2


@pytest.mark.covers("PW-2", "PW-4")
@pytest.mark.parametrize(
    ("status", "answer", "standing"),
    [
        (503, {"error": {"code": "store_unavailable", "message": "away"}}, "failing"),
        (409, {"error": {"code": "stale_incarnation", "message": "another"}}, "superseded"),
        (409, {"error": {"code": "stale_revision", "message": "lower"}}, "failing"),
        (400, {"error": {"code": "invalid_field", "message": "name"}}, "refused"),
        (200, {"pool_id": "p", "heartbeat_interval_secs": -1, "lease_duration_secs": 2}, "failing"),
        (200, {"pool_id": "p" * 70_000}, "failing"),
        (302, {}, "failing"),
        (500, {"error": "text"}, "failing"),
    ],
)
async def test_relay_must_go_on_serving_and_asking_when_it_is_refused(
    relay: TestRelay, discovery: Discovery, status: int, answer: dict[str, Any], standing: str
) -> None:
    good = discovery.answer
    async with Registering(relay, discovery.url) as found:
        await count(discovery, 1)
        discovery.status, discovery.answer = status, answer

        async def refused() -> None:
            assert found.registrar.asked.standing == standing
            assert found.registrar.asked.problem

        await eventually(refused)
        seen = len(discovery.registered)
        await count(discovery, seen + 2)
        assert relay.view.facts is not None
        discovery.status, discovery.answer = 200, good

        async def back() -> None:
            assert found.registrar.asked.standing == "registered"

        await eventually(back)


@pytest.mark.covers("PW-4")
async def test_service_that_comes_later_must_be_found(relay: TestRelay) -> None:
    discovery = Discovery()
    async with serving(discovery):
        url = discovery.url
    async with Registering(relay, url) as found:

        async def failing() -> None:
            assert found.registrar.asked.standing == "failing"

        await eventually(failing)
        assert not found.registrar.registered


@pytest.mark.covers("PW-5")
async def test_registration_must_be_taken_back_once(relay: TestRelay, discovery: Discovery) -> None:
    async with Registering(relay, discovery.url) as found:
        await found.registrar.leave()
        await count(discovery, 1)
        await found.registrar.leave()
        incarnation = relay.view.options.incarnation
        assert discovery.left == [f"/pools/one/serving/east?{{'incarnation': '{incarnation}'}}"]


@pytest.mark.covers("PW-5")
async def test_leaving_never_waits_for_a_service_that_is_silent(
    relay: TestRelay, discovery: Discovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.relay.registrar.LEAVE_S", 0.2)
    async with Registering(relay, discovery.url) as found:
        await count(discovery, 1)

        async def silent(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(found.client, "deregister", silent)
        async with asyncio.timeout(2):
            await found.registrar.leave()


async def test_token_must_be_sent_and_read_again_after_a_401(
    relay: TestRelay, discovery: Discovery, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with Registering(relay, discovery.url, token_file=token):
        await count(discovery, 1)
        assert discovery.authorized[-1] == "Bearer first"
        token.write_text("second\n")
        discovery.status = 401
        await count(discovery, len(discovery.registered) + 1)
        discovery.status = 200

        async def renewed() -> None:
            assert discovery.authorized[-1] == "Bearer second"

        await eventually(renewed)


async def test_missing_token_must_be_a_problem_and_no_request(
    relay: TestRelay, discovery: Discovery, tmp_path: Path
) -> None:
    async with Registering(relay, discovery.url, token_file=tmp_path / "none") as found:

        async def told() -> None:
            assert "token file" in found.registrar.asked.problem

        await eventually(told)
        assert discovery.registered == []


async def test_unreadable_ca_must_be_a_problem(relay: TestRelay, tmp_path: Path) -> None:
    client = DiscoveryClient(
        DiscoveryOptions(url="https://127.0.0.1:1", ca_file=tmp_path / "none"), relay.clock, environ={}
    )
    async with client:
        with pytest.raises(NotTaken, match="none"):
            await client.deregister(relay.view.options.key, "i")


GRANT = b'{"pool_id":"p","heartbeat_interval_secs":5,"lease_duration_secs":15}'
REPLY = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(GRANT) + GRANT


@asynccontextmanager
async def replying(context: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """(port, first lines of requests) of a server that grants whatever it is asked."""
    lines: list[bytes] = []

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(REPLY)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], lines


async def known(relay: TestRelay) -> None:
    async def seen() -> None:
        assert relay.view.facts is not None

    await eventually(seen)


async def test_service_must_be_known_by_its_ca(relay: TestRelay, tmp_path: Path) -> None:
    await known(relay)
    right, wrong = Authority("right"), Authority("wrong")
    ca = tmp_path / "ca.pem"
    async with replying(right.server_context(tmp_path)) as (port, _):
        options = DiscoveryOptions(url=f"https://127.0.0.1:{port}", ca_file=ca)
        ca.write_bytes(wrong.pem)
        async with DiscoveryClient(options, relay.clock, environ={}) as client:
            with pytest.raises(NotTaken, match=r"(?i)certificate"):
                await client.register(relay.view.registration())
            ca.write_bytes(right.pem)
            assert (await client.register(relay.view.registration())).pool_id == "p"


@pytest.mark.covers("R25")
async def test_service_must_be_asked_through_the_standard_proxy(relay: TestRelay) -> None:
    await known(relay)
    async with replying() as (port, lines):
        environ = {"HTTP_PROXY": f"http://127.0.0.1:{port}", "NO_PROXY": "near.example"}
        options = DiscoveryOptions(url="http://far.example:8080/hub/")
        async with DiscoveryClient(options, relay.clock, environ=environ) as client:
            await client.register(relay.view.registration())
    assert lines == [b"POST http://far.example:8080/hub/pools HTTP/1.1\r\n"]


@pytest.mark.covers("PW-1", "PW-3")
async def test_what_is_sent_must_be_fit_to_be_kept(relay: TestRelay, discovery: Discovery) -> None:
    async with Registering(relay, discovery.url):
        await count(discovery, 1)
    found = read_registration(msgspec.json.encode(discovery.registered[0]))
    assert found == relay.view.registration()
    with pytest.raises(InvalidField):
        read_registration(b"{}")
