"""`isthmus discovery` as a process: flags that are set for another mode, a start and an end (DS-1, D-8)."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable

import msgspec
import pytest

from isthmus import logs
from isthmus.cli.discovery import command
from isthmus.cli.main import main
from tests.support.discoveries import registration
from tests.support.eventually import eventually
from tests.support.operator import ROOT
from tests.support.ports import free_port

COMMAND = [sys.executable, "-m", "isthmus.cli.main", "discovery"]


Told = tuple[int, str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Told]:
    """The command in this process, to its end: its code, and what it says on stderr."""

    monkeypatch.setattr(logs, "configure", lambda *_: None)  # the process' logs outlive this test

    def ended(*arguments: str) -> Told:
        monkeypatch.setattr(sys, "argv", ["isthmus", "discovery", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        assert isinstance(caught.value.code, int)
        return caught.value.code, capsys.readouterr().err

    return ended


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    """The command, running."""
    return subprocess.Popen([*COMMAND, *arguments], cwd=ROOT)


def register(port: int) -> int:
    """The status that a registration gets."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/pools",
        data=msgspec.json.encode(registration()),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        status: int = answer.status
        return status


@pytest.mark.covers("DS-1", "D-8")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--redis-url", "redis://a"), "--redis-url does not go with --registration-storage memory"),
        (("--redis-prefix", "isthmus:"), "--redis-prefix does not go with"),
        (("--frontend-suffix", "-frontend"), "--frontend-suffix does not go with --pool-discovery"),
        (("--relay-suffix", "-x"), "--relay-suffix does not go with"),
        (("--kubeconfig", "/k"), "--kubeconfig does not go with"),
        (("--context", "c"), "--context does not go with"),
        (("--pool-discovery", "mcs", "--router", "a=http://a"), "--router does not go with"),
        (("--pool-discovery", "karmada", "--router", "a=http://a"), "--router does not go with"),
        (("--heartbeat-interval-secs", "15"), "--heartbeat-interval-secs"),
        (("--heartbeat-interval-secs", "0"), "--heartbeat-interval-secs"),
        (("--heartbeat-interval-secs", "nan"), "--heartbeat-interval-secs"),
        (("--lease-duration-secs", "86401"), "--lease-duration-secs"),
        (("--lease-duration-secs", "5"), "--lease-duration-secs"),
        (("--registration-storage", "redis"), "needs --redis-url"),
        (("--registration-storage", "redis", "--redis-url", "http://a"), "--redis-url"),
        (("--tls-cert-path", "/a"), "go together"),
        (("--tls-key-path", "/a"), "go together"),
        (("--tls-cert-path", "/nowhere", "--tls-key-path", "/nowhere"), "--tls-cert-path"),
        (("--tokens-file", "/nowhere"), "--tokens-file"),
        (("--router", "a"), "--router"),
        (("--router", "=http://a"), "--router"),
        (("--router", "a=ftp://a"), "--router"),
        (("--router", "a=http://a", "--router", "a=http://b"), "twice"),
        (("--listen", ""), "--listen"),
        (("--listen", "east:1"), "--listen"),
        (("--pool-discovery", "mcs", "--kubeconfig", "/nowhere"), "/nowhere"),
        (("--pool-discovery", "mcs", "--relay-suffix", ""), "suffix"),
        (("--pool-discovery", "mcs", "--relay-suffix", "-x", "--frontend-suffix", "-x"), "suffix"),
    ],
)
def test_flag_that_cannot_be_must_end_the_start(
    run: Callable[..., Told], arguments: tuple[str, ...], problem: str
) -> None:
    code, told = run(*arguments)
    assert (code, problem in told) == (2, True), told


def test_flags_must_be_those_of_the_documentation() -> None:
    text = (ROOT / "docs" / "discovery.md").read_text().partition("## Flags")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `--")]
    named = set(re.findall(r"--[a-z-]+", " ".join(rows)))
    assert named == {option for each in command.params for option in each.opts}


@pytest.mark.covers("DS-1")
def test_environment_must_count_as_set(run: Callable[..., Told], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_REDIS_URL", "redis://a")
    code, told = run()
    assert (code, "--redis-url does not go with" in told) == (2, True)


@pytest.mark.covers("D-8", "DS-1")
async def test_service_must_start_with_defaults_and_end_on_sigterm() -> None:
    port = free_port()
    arguments = ["--listen", f"127.0.0.1:{port}", "--router", "r=http://router:8000"]
    with start(arguments) as process:
        try:

            async def registered() -> None:
                try:
                    assert await asyncio.to_thread(register, port) in (200, 201)
                except OSError as error:
                    raise AssertionError(error) from error

            await eventually(registered, within_s=20)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_port_that_is_taken_must_be_told(run: Callable[..., Told]) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        code, told = run("--listen", f"127.0.0.1:{busy.getsockname()[1]}")
    assert (code, "--listen" in told) == (2, True)
