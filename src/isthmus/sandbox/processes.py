"""Processes that cannot outlive their supervisor, and a way to end old ones without hitting a stranger.

The supervisor starts every server through `spawn`: a wrapper asks the kernel to kill it when its parent dies
(PR_SET_PDEATHSIG), and then becomes the server. So even `kill -9` of the supervisor leaves nothing behind.
A recorded process is signalled only while its start time and command line are those that were recorded, and
through a pidfd, so that a pid that was given to somebody else in between is never hit.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

# Runs as `python -I -S -c`: asks for SIGKILL at the parent's death (1 = PR_SET_PDEATHSIG), makes sure that
# the parent had not died before that, and becomes the program.
_WRAPPER: Final = """
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).prctl(1, 9, 0, 0, 0) != 0:
    sys.exit("cannot set the parent death signal: " + os.strerror(ctypes.get_errno()))
if os.getppid() != int(sys.argv[1]):
    sys.exit("the supervisor died")
os.execv(sys.argv[2], sys.argv[2:])
"""


class Identity(msgspec.Struct, frozen=True):
    """What tells a process from a later one with the same pid: `start` in clock ticks since boot, and `boot`,
    since both begin again when the machine does. `program` must be one word of its command line."""

    pid: int
    start: int
    boot: str
    program: str


def spawn(argv: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start `argv` with output appended to `log`, in a session of its own, bound to the life of this process.

    Must be called on the main thread: the kernel counts the death of the thread that started it. Raises
    OSError where the program cannot be started at all.
    """
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WRAPPER, str(os.getpid()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
        )


async def ended(process: subprocess.Popen[bytes]) -> None:
    """Return when the process is dead, and collect it."""
    handle = os.pidfd_open(process.pid)
    loop = asyncio.get_running_loop()
    dead = asyncio.Event()
    loop.add_reader(handle, dead.set)
    try:
        await dead.wait()
        process.poll()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def identify(pid: int, program: str) -> Identity | None:
    """The identity of a live process; None where there is none with that pid (or only its corpse)."""
    start = _start_ticks(pid)
    return None if start is None else Identity(pid, start, _boot_id(), program)


def is_alive(identity: Identity) -> bool:
    """Whether that very process still runs."""
    if identity.boot != _boot_id() or _start_ticks(identity.pid) != identity.start:
        return False
    try:
        line = Path(f"/proc/{identity.pid}/cmdline").read_bytes()
    except OSError:
        return False
    # It is empty for the moment in which the wrapper becomes the program; corpses were told apart above.
    return not line or identity.program.encode() in line.split(b"\0")


def end(identity: Identity, *, grace_s: float) -> bool:
    """Ask that very process to end (SIGTERM), kill it after `grace_s` seconds (at once where 0), and wait.

    Returns whether it is gone now; True where it was gone before.
    """
    try:
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return True
    try:
        # Only now is the pid held; what it names cannot change any more.
        if not is_alive(identity):
            return True
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            if wait_s <= 0:
                continue
            try:
                signal.pidfd_send_signal(handle, number)
            except ProcessLookupError:
                return True
            if select.select([handle], [], [], wait_s)[0]:
                return True
        return False
    finally:
        os.close(handle)


def children(parent: int, word: str) -> dict[int, str]:
    """Processes that `parent` started and that have `word` in their command line: the word after that, by
    pid."""
    found: dict[int, str] = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal():
            continue
        fields = _stat(int(path.name))
        if fields is None or int(fields[1]) != parent:
            continue
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if word in words[:-1]:
            found[int(path.name)] = words[words.index(word) + 1]
    return found


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 where it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used; 0 where it is gone."""
    fields = _stat(pid)
    return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _start_ticks(pid: int) -> int | None:
    fields = _stat(pid)
    # Z and X: dead already, only not collected by its parent.
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[19])


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third (state) on; the second may hold blanks and parentheses."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
