"""An operator process under measurement: its CPU, its peak memory, and what the audit log says that it asked
for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int, field: str = "VmHWM") -> float:
    """Peak (VmHWM) or present (VmRSS) resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


class Operator:
    """`isthmus operator` on one kubeconfig, with a debug port; started and killed at will."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._kubeconfig = kubeconfig
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; returns at once."""
        arguments = ["--metrics-bind-address=0", "--health-probe-bind-address=0"]
        command = [sys.executable, "-m", "isthmus.cli.main", "operator", f"--kubeconfig={self._kubeconfig}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def reset_peak(self) -> None:
        """Let the peak of memory begin anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


class Request(NamedTuple):
    """One audited request. `what` is verb, resource and subresource."""

    what: str
    code: int


class _Ref(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _User(msgspec.Struct):
    username: str = ""


class _Event(msgspec.Struct, rename="camel"):
    verb: str
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    user: _User
    object_ref: _Ref | None = None
    response_status: _Status = msgspec.field(default_factory=_Status)


class Audit:
    """Reads what has been added to an audit log since the last reading."""

    def __init__(self, path: Path, user: str) -> None:
        self._path = path
        self._user = user
        self._offset = 0
        self._decode = msgspec.json.Decoder(_Event).decode

    def read(self) -> list[Request]:
        """The user's requests since the last call; watches count when they begin."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        complete = data.rfind(b"\n") + 1
        self._offset += complete
        requests = []
        for line in data[:complete].splitlines():
            event = self._decode(line)
            counted = "ResponseStarted" if event.verb == "watch" else "ResponseComplete"
            if event.user.username != self._user or event.stage != counted:
                continue
            ref = event.object_ref
            target = (
                event.request_uri if ref is None else "/".join(filter(None, (ref.resource, ref.subresource)))
            )
            requests.append(Request(f"{event.verb} {target}", event.response_status.code))
        return requests


def by_kind(requests: list[Request]) -> dict[str, Any]:
    """How often each was asked for, most often first."""
    return dict(Counter(request.what for request in requests).most_common())
