"""An operator that dies by SIGKILL as its K-th write is about to leave, which is as abrupt as a crash can be.

It runs the operator's own command line, in a process forked from one that has imported it all already, since
a test kills dozens of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

import uvloop

from isthmus.app import operator
from isthmus.cli.main import cli
from isthmus.kube import client

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["__main__", __name__])
_PRELOADED: Final = (uvloop, operator)


class KillingGate:
    """A write gate that lets K - 1 writes pass."""

    left = 0

    def check(self) -> None:
        """End the process at the last write that it may send."""
        KillingGate.left -= 1
        if KillingGate.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def start(kubeconfig: Path, log: Path, *arguments: str, kill_at: int) -> ForkServerProcess:
    """Start one; its exit code is -SIGKILL once it has died. `arguments` are added to the command line."""
    command = [
        "operator",
        f"--kubeconfig={kubeconfig}",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        *arguments,
    ]
    process = _CONTEXT.Process(target=_run, args=(command, str(log), kill_at))
    process.start()
    return process


def _run(command: list[str], log: str, kill_at: int) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    KillingGate.left = kill_at
    vars(client)["OpenGate"] = KillingGate
    cli.main(command)
