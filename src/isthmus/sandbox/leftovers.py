"""What sandboxes leave on this machine: which there are, which have crashed, and how those are cleared.

A supervisor holds the lock of its folder for as long as it lives, and the kernel frees it, so a folder whose
lock can be had belongs to nobody. sandbox.py clears crashed ones before each start and takes the lock that
the supervisor then inherits; `isthmus sandbox status` and `down` ask here too. A folder is changed only while
its lock is held, and a recorded process is ended only if it is still that very process (processes.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator

import msgspec

from isthmus.sandbox import places, processes
from isthmus.sandbox.settings import Folder, Record


def running() -> list[Record]:
    """What every sandbox of this user says of itself, crashed ones that were not cleared included."""
    try:
        paths = sorted(path for path in places.state_home().iterdir() if path.is_dir())
    except FileNotFoundError:
        return []
    records = (Folder(path).try_read_record() for path in paths)
    return [record for record in records if record is not None]


def is_running(record: Record) -> bool:
    """Whether its supervisor lives."""
    return processes.is_alive(record.supervisor)


def clear_crashed() -> None:
    """Remove the folders of ephemeral sandboxes whose supervisor is gone, and end what is left of them.

    Others stay until their name is used again or `down` removes them, so that one can read their logs.
    """
    try:
        paths = [path for path in places.state_home().iterdir() if path.is_dir()]
    except FileNotFoundError:
        return
    for path in paths:
        folder = Folder(path)
        with lock(folder, create=False) as held:
            if held is None:
                continue
            try:
                ephemeral = folder.read_spec().ephemeral
            except (OSError, msgspec.DecodeError):
                ephemeral = True
            _end_recorded(folder)
            if ephemeral:
                shutil.rmtree(path, ignore_errors=True)


def clear(name: str) -> bool:
    """Remove what a crashed sandbox of that name left. Returns whether there was anything."""
    folder = Folder(places.state_home() / places.check_name(name))
    return remove(folder)


def remove(folder: Folder) -> bool:
    """End what is left of a sandbox whose supervisor is gone, and remove its folder. Returns whether there
    was such a one."""
    with lock(folder, create=False) as held:
        if held is None:
            return False
        _end_recorded(folder)
        shutil.rmtree(folder.path, ignore_errors=True)
        return True


def empty(folder: Folder) -> None:
    """Empty a folder that is locked, of all but the lock."""
    _end_recorded(folder)
    for path in folder.path.iterdir():
        if path == folder.lock:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _end_recorded(folder: Folder) -> None:
    """End what a supervisor that is gone recorded, if it still lives; normally the kernel has."""
    record = folder.try_read_record()
    if record is None:
        return
    for component in record.components.values():
        if component.identity is not None:
            processes.end(component.identity, grace_s=0)


@contextlib.contextmanager
def lock(folder: Folder, *, create: bool) -> Iterator[int | None]:
    """The locked file descriptor of a folder, or None where its supervisor (or another start) holds it.

    With `create`, the folder is made where it is not there; else None stands for that too.
    """
    handle = _try_lock(folder, create=create)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _try_lock(folder: Folder, *, create: bool) -> int | None:
    while True:
        if create:
            folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            if create:
                continue
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return None
        # Another may have removed the folder between opening and locking; then this lock guards nothing.
        try:
            if os.path.samestat(os.fstat(handle), folder.lock.stat()):
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)
        if not create:
            return None
