"""The global demo: pools of two clusters behind one address; one is lost, comes back, and one is deleted.

Everything is real but the GPUs: control planes, Cilium's controllers, operators, relays, discovery service,
router, the official client. The demo itself fails where a request that could be served was not.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from isthmus.sandbox import Sandbox, leftovers

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

DEMO = [sys.executable, "-m", "isthmus.cli.main", "sandbox", "demo-global"]


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of this test's own, so that nothing else is in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "isthmus" / "sandbox"


def play(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([*DEMO, *arguments], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def steps(told: str) -> list[tuple[str, dict[str, int]]]:
    """Of each step with traffic its first line, and who answered how often, cut and failed ones too."""
    found = []
    for block in told.split("\n\n"):
        lines = [line.partition("] ")[2] for line in block.strip().splitlines()]
        for line in lines:
            counts = re.fullmatch(
                r"requests since then: \d+ answered(?: \((.*)\))?, (\d+) cut, (\d+) failed", line
            )
            if counts is not None:
                answered = dict(each.split(" ") for each in (counts[1] or "").split(", ") if each)
                numbers = {name: int(count) for name, count in answered.items()}
                found.append((lines[0], numbers | {"cut": int(counts[2]), "failed": int(counts[3])}))
    return found


@pytest.mark.covers("D-30", "PW-18", "DS-10", "DS-14")
def test_demo_must_serve_all_that_can_be_served_while_clusters_come_and_go(state_home: Path) -> None:
    told = play()
    (both, lost, back, deleted, again) = steps(told)
    assert both[1]["east"] > 0 < both[1]["west"]
    assert "is lost" in lost[0]
    assert "comes back" in back[0]
    assert back[1]["west"] > 0
    assert "is deleted" in deleted[0]
    assert deleted[1]["west"] > 0
    assert "made again" in again[0]
    assert again[1]["east"] > 0
    assert [counts["failed"] for _, counts in (both, lost, back, deleted, again)] == [0] * 5
    assert [counts["cut"] for _, counts in (both, back, deleted, again)] == [0] * 4
    assert "pool east/serving/chat: example/tiny at http://198.18." in told
    assert "every request that could be served was" in told
    assert "everything is gone again" in told
    assert list(state_home.iterdir()) == []


def test_kept_demo_must_go_on_serving() -> None:
    told = play("--keep")
    sandbox = Sandbox.attach("demo-global")
    try:
        url = re.search(r"curl (http://127\.0\.0\.1:\d+)/v1/models", told)
        assert url is not None
        with urllib.request.urlopen(f"{url[1]}/v1/models", timeout=10) as answer:
            assert [each["id"] for each in json.load(answer)["data"]] == ["example/tiny"]
        assert "isthmus sandbox down --name demo-global" in told
    finally:
        sandbox.stop()
    assert leftovers.running() == []


@pytest.mark.parametrize("after", ["west is ready", "router: http", "is lost"])
def test_interrupted_demo_must_take_everything_back(state_home: Path, after: str) -> None:
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if after in line:
                break
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130, rest + errors
    assert "interrupted" in rest
    assert leftovers.running() == []
    assert list(state_home.iterdir()) == []
