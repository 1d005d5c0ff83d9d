"""Traffic counts answers by who gave them, and tells cut answers from requests that failed."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from isthmus.sandbox.completions import said
from isthmus.sandbox.ledger import Outcome
from isthmus.sandbox.traffic import Traffic, judge

MODEL = "example/tiny"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


@pytest.fixture
def start(port: int, tmp_path: Path) -> Iterator[Start]:
    """Starts a server at the port, as `who`, with a delay between tokens."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("ab"))

        def run(who: str, delay_ms: int) -> subprocess.Popen[bytes]:
            where = ["--host", "127.0.0.1", "--port", str(port)]
            how = ["--name", who, "--token-delay-ms", str(delay_ms)]
            command = [sys.executable, "-m", "isthmus.sandbox.openai", *where, *how]
            process = subprocess.Popen(command, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            deadline = time.monotonic() + 15
            while True:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        return process
                assert time.monotonic() < deadline
                time.sleep(0.05)

        yield run


def in_the_middle(port: int, answers: int) -> bool:
    """Whether so many answers have begun, and none is waited for; each takes seconds from then on."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    counts = {"inflight": f"{answers}.0", "queued": "0.0"}
    return all(
        f'dynamo_frontend_{name}_requests{{model="{MODEL}"}} {value}' in text
        for name, value in counts.items()
    )


def wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_answers_must_be_counted_by_who_gave_them(start: Start, port: int) -> None:
    start("east", 1)
    with Traffic(f"http://127.0.0.1:{port}", model=MODEL, workers=4, tokens=5) as traffic:
        wait(lambda: traffic.ledger.tally().total >= 20)
    tally = traffic.ledger.tally()
    assert set(tally.answered) == {"east"}
    assert (tally.cut, tally.failed) == (0, 0)


def test_server_that_dies_must_leave_cut_answers_and_failures(start: Start, port: int) -> None:
    server = start("east", 100)
    with Traffic(f"http://127.0.0.1:{port}", model=MODEL, workers=4, tokens=30) as traffic:
        wait(lambda: in_the_middle(port, 4))
        server.kill()
        wait(lambda: traffic.ledger.tally().failed >= 4)
    tally = traffic.ledger.tally()
    assert tally.cut == 2  # half of the workers stream
    assert {each.by for each in traffic.ledger.troubles if each.outcome.value == "cut"} == {"east"}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (said(3), Outcome.ANSWERED),
        (said(2), Outcome.CUT),
        ("", Outcome.FAILED),
        (said(4), Outcome.FAILED),
        (said(1) + said(1), Outcome.FAILED),
        ("other words", Outcome.FAILED),
    ],
)
def test_answer_must_be_judged_by_its_words(text: str, outcome: Outcome) -> None:
    assert judge(text, 3) is outcome


def test_refusal_must_count_as_a_failure(start: Start, port: int) -> None:
    start("east", 0)
    traffic = Traffic(f"http://127.0.0.1:{port}", model="other", workers=1, tokens=5)
    with traffic:
        wait(lambda: traffic.ledger.tally().failed >= 1)
    assert "does not exist" in traffic.ledger.troubles[0].detail
