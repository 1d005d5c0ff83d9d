"""Who may ask the discovery service: tokens per cluster, and TLS whose certificate is renewed."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from isthmus.web.tls import RELOAD_S
from tests.support.certs import Authority
from tests.support.clock import FakeClock
from tests.support.discoveries import registration
from tests.support.discoveryrun import Running, discovering
from tests.support.eventually import eventually

TOKENS = "token-east east\ntoken-read read\n"
PATH = "/pools/east/serving/chat"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    async with discovering(FakeClock(), tokens_file=path) as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.covers("DS-4")
async def test_request_without_a_known_token_must_get_401(running: Running) -> None:
    asking = running.asking
    for path in ("/pools", "/pools/watch", "/pools/unmatched", "/routers"):
        for headers in ({}, bearer("nonsense")):
            refused = await asking.get(path, headers=headers)
            assert (refused.status, refused.code) == (401, "unauthenticated")
            assert refused.headers["www-authenticate"] == "Bearer"
        read = bearer("token-read")
        if path != "/pools/watch":
            assert (await asking.get(path, headers=read)).status == 200
    assert (await asking.post(b"{")).status == 401
    assert (await asking.ask("DELETE", PATH)).status == 401
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await asking.get(path)).status == 200


@pytest.mark.covers("DS-4")
async def test_token_must_register_only_its_own_cluster(running: Running) -> None:
    asking, clock = running.asking, running.clock
    assert isinstance(clock, FakeClock)
    assert (await asking.register(registration("east"), headers=bearer("token-east"))).status == 201
    refused = await asking.register(registration("west"), headers=bearer("token-east"))
    assert (refused.status, refused.code) == (403, "permission_denied")
    assert (await asking.register(registration("east"), headers=bearer("token-read"))).status == 403
    assert (await asking.ask("DELETE", PATH, headers=bearer("token-read"))).status == 403
    await clock.advance(0.1)
    asking.headers = bearer("token-read")
    assert await asking.names() == ["east/serving/chat"]
    assert await asking.metric('gds_registrations_total{result="permission_denied"}') == 3
    assert (await asking.ask("DELETE", PATH, headers=bearer("token-east"))).status == 204


async def test_certificate_that_is_renewed_must_be_used_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    files = (tmp_path / "cert.pem", tmp_path / "key.pem")

    def write(authority: Authority) -> None:
        for path, data in zip(files, authority.issue("discovery"), strict=True):
            path.write_bytes(data)

    async def trusted(port: int, authority: Authority) -> bool:
        context = ssl.create_default_context(cadata=authority.pem.decode())
        try:
            async with aiohttp.ClientSession() as session:
                url = f"https://127.0.0.1:{port}/healthz"
                async with session.get(url, ssl=context) as answer:
                    return answer.status == 200
        except aiohttp.ClientConnectorCertificateError:
            return False

    write(old)
    async with discovering(tls=files) as running:
        assert await trusted(running.port, old)
        write(new)

        async def renewed() -> None:
            assert await trusted(running.port, new)

        await eventually(renewed, within_s=2 * RELOAD_S, every_s=0.2)
        assert not await trusted(running.port, old)
