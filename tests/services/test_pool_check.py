"""`isthmus pool check --discovery` against a discovery service that answers as it is told."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from isthmus.api.pools import PoolKey
from isthmus.web.routes import Answer, Request, Route, get
from tests.support.relayrun import serving

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "poolrelay" / "graph.yaml"
KEY = PoolKey("east", "default", "chat")
POOL = {
    "pool_id": KEY.pool_id,
    "cluster_id": "east",
    "namespace": "default",
    "name": "chat",
    "frontend_urls": ["http://10.0.0.1:8000"],
    "models": [{"id": "m"}],
    "expires_in_secs": 9.5,
}


@dataclass
class Hub:
    """A discovery service."""

    pools: list[Any] = field(default_factory=list)
    unmatched: list[Any] = field(default_factory=list)
    status: int = 200
    port: int = 0

    def routes(self) -> list[Route]:
        """What it answers."""

        async def pools(request: Request) -> Answer:
            if request.header("authorization") != "Bearer secret":
                return Answer(status=401, body=b'{"error":{"code":"unauthorized","message":"who?"}}')
            body = {"schema": 1, "version": "v", "complete": True, "mode": "mcs", "pools": self.pools}
            return Answer(status=self.status, body=json.dumps(body).encode())

        async def unmatched(_: Request) -> Answer:
            return Answer(status=self.status, body=json.dumps({"unmatched": self.unmatched}).encode())

        return [get("/pools", pools), get("/pools/unmatched", unmatched)]


async def check(hub: Hub, tmp_path: Path, *, token: str = "secret") -> tuple[int, dict[str, Any]]:
    """(exit code, answer) of the command in a process of its own."""
    path = tmp_path / "token"
    path.write_text(token)
    words = ["-m", "isthmus.cli.main", "pool", "check", "-f", str(EXAMPLE), "-o", "json"]
    flags = ["--discovery", f"http://127.0.0.1:{hub.port}", "--discovery-token-file", str(path)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, *flags, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    found: dict[str, Any] = json.loads(out)
    return process.returncode, found


def reasons(found: dict[str, Any]) -> list[str]:
    return [finding["reason"] for finding in found["findings"]]


async def test_pool_that_has_arrived_must_be_told_so(tmp_path: Path) -> None:
    async with serving(Hub(pools=[POOL])) as hub:
        code, found = await check(hub, tmp_path)
    assert (code, found["arrived"], reasons(found)) == (0, True, [])
    assert any("1 of 1 models ready" in note for note in found["notes"])


@pytest.mark.covers("PW-12")
async def test_pool_that_has_not_arrived_must_have_the_services_reason(tmp_path: Path) -> None:
    row = {"kind": "registration", "cluster_id": "east", "namespace": "default", "name": "chat"}
    async with serving(Hub(unmatched=[row | {"reason": "no_relay_import", "message": "none"}])) as hub:
        code, found = await check(hub, tmp_path)
        assert (code, found["arrived"], reasons(found)) == (1, False, ["NoRelayImport"])
        hub.unmatched = []
        code, found = await check(hub, tmp_path)
        assert (code, reasons(found)) == (1, ["NotRegistered"])


async def test_service_that_cannot_be_asked_must_end_with_2(tmp_path: Path) -> None:
    async with serving(Hub(pools=[POOL])) as hub:
        code, found = await check(hub, tmp_path, token="wrong")
        assert (code, found["arrived"], reasons(found)) == (2, False, ["DiscoveryUnreachable"])
        assert "401" in found["findings"][0]["text"]
        hub.pools = [{"pool_id": "nonsense"}]
        code, found = await check(hub, tmp_path)
        assert (code, reasons(found)) == (2, ["DiscoveryUnreachable"])
    code, found = await check(hub, tmp_path)
    assert (code, reasons(found)) == (2, ["DiscoveryUnreachable"])
