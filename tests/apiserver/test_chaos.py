"""A short random history against a control plane of its own; `make chaos` plays longer ones (tests/chaos)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("--seed=7", "--seconds=1", "--steps=14")


def test_short_history_must_keep_every_invariant_and_end_as_asked_for() -> None:
    command = [sys.executable, "-m", "tests.chaos.run", *SHORT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-4000:]
    assert "seed 7: as asked for" in done.stdout
