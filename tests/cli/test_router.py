"""`isthmus router` as a process: it serves the examples' pools, says what is wrong, and ends on SIGTERM."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.operator import ROOT
from tests.support.ports import free_port
from tests.support.rawhttp import RawServer, Request, Wire

COMMAND = [sys.executable, "-m", "isthmus.cli.main", "router"]
EXAMPLES = ROOT / "examples" / "router"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, until it ends by itself."""
    return subprocess.run(
        [*COMMAND, *words], cwd=ROOT, capture_output=True, text=True, timeout=15, check=False
    )


def start(words: list[str]) -> subprocess.Popen[bytes]:
    """The command, running."""
    return subprocess.Popen([*COMMAND, *words], cwd=ROOT)


def ask(port: int, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any, dict[str, str]]:
    """(status, JSON or text, headers) of a request to a port of ours."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data=data, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            raw, status, headers = answer.read(), answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        raw, status, headers = error.read(), error.code, dict(error.headers)
    except OSError as error:
        raise AssertionError(error) from error
    try:
        return status, json.loads(raw), headers
    except ValueError:
        return status, raw.decode(), headers


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "error: give one of --discovery and --pools-file"),
        (["--pools-file", "/none"], "error: --pools-file: /none: No such file or directory"),
        (["--pools-file", str(EXAMPLES / "grid-agg.json")], "error: --pools-file: "),
        (
            ["--pools-file", str(EXAMPLES / "pools.json"), "--policy", "grid"],
            "error: --policy grid needs --config",
        ),
    ],
)
def test_router_that_cannot_start_must_say_why_in_one_line(words: list[str], text: str) -> None:
    found = run("--listen", f"127.0.0.1:{free_port()}", *words)
    assert found.returncode == 2
    assert text in found.stderr
    assert "Traceback" not in found.stderr


class Backend:
    """Notes the models that it is asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.server = RawServer(self._answer)

    async def _answer(self, _: Request, wire: Wire) -> None:
        self.asked += 1
        await wire.answer({"ok": True}, headers={"Content-Type": "application/json"})


def pools_file(folder: Path, small: str, large: str) -> Path:
    """The example's, with pools that are here."""
    raw = json.loads((EXAMPLES / "pools.json").read_text())
    for each, url in zip(raw["pools"], (small, large), strict=True):
        each["frontend_urls"], each["relay_urls"] = [url], []
    (folder / "pools.json").write_text(json.dumps(raw))
    return folder / "pools.json"


NAMES = ["serving-chat-small", "serving-chat-large"]
POLICIES = [
    pytest.param(
        ["--policy", "grid", "--config", str(EXAMPLES / "grid-agg.json")],
        {"name": "grid", "mode": "agg", "pools": [*NAMES, "east/serving/chat-batch"], "retry": True},
        id="agg",
    ),
    pytest.param(
        ["--policy", "grid", "--config", str(EXAMPLES / "grid-disagg.json")],
        {"name": "grid", "mode": "prefill", "pools": NAMES, "retry": False},
        id="disagg",
    ),
    pytest.param(
        ["--priority-override", "-9:-1=serving-chat-large", "--policy", "locality", "--region", "us-east"],
        {"name": "locality"},
        id="locality",
    ),
]


@pytest.mark.covers("GR-1", "GR-14", "GR-19", "PW-16", "PW-17")
@pytest.mark.parametrize(("words", "policy"), POLICIES)
async def test_router_must_serve_the_examples_by_its_policy(
    tmp_path: Path, words: list[str], policy: dict[str, Any]
) -> None:
    small, large = Backend(), Backend()
    async with small.server, large.server:
        file = pools_file(tmp_path, small.server.url, large.server.url)
        port = free_port()
        arguments = ["--listen", f"127.0.0.1:{port}", "--pools-file", str(file), "--drain-delay", "0", *words]
        with start(arguments) as process:
            try:

                async def ready() -> None:
                    assert (await asyncio.to_thread(ask, port, "/readyz"))[0] == 200

                await eventually(ready, within_s=15)
                quick = {"model": "tiny", "messages": [], "nvext": {"router": {"ttft_target": 10}}}
                patient = {
                    "model": "example/tiny",
                    "prompt": list(range(20_000)),
                    "nvext": {
                        "router": {"ttft_target": 2900, "itl_target": 10},
                        "agent_hints": {"priority": -3},
                    },
                }
                status, body, headers = await asyncio.to_thread(ask, port, "/v1/chat/completions", quick)
                assert (status, body) == (200, {"ok": True})
                assert headers["x-dynamo-routing-basis"] in ("grid:0", "region")
                assert (small.asked, large.asked) == (1, 0)
                assert (await asyncio.to_thread(ask, port, "/v1/completions", patient))[0] == 200
                assert (small.asked, large.asked) == (1, 1)
                missing = await asyncio.to_thread(
                    ask, port, "/v1/completions", {"model": "none", "prompt": ""}
                )
                assert missing[0] == 404
                assert (await asyncio.to_thread(ask, port, "/pools"))[1]["policy"] == policy
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, 10) == 0
            finally:
                process.kill()
