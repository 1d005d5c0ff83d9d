"""Who may register as which cluster, and who may read: bearer tokens from a file, read again when it changes.

Each line of the file is a token, a space, and what it is good for: `read`, a list of cluster IDs with commas
(registering as these, and reading), or `*` (everything). Empty lines and those that begin with `#` are
passed over; a cluster that is called `read` can only be registered with `*`. routes.py asks for each
request; without a file everybody may do everything. Tokens are kept and compared as digests, so that neither
time nor memory tells them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from isthmus import logs
from isthmus.clock import Clock
from isthmus.errors import UserError

log = logs.get(__name__)

PERIOD_S: Final = 2.0
MAX_BYTES: Final = 1 << 20
EVERYTHING, READ = "*", "read"


class Tokens:
    """See the module. Raises UserError, naming the flag and the line, for a file that cannot be used."""

    def __init__(self, path: Path | None, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._seen: object = None
        self._scopes: Mapping[bytes, frozenset[str]] = {}
        self.failed = 0
        if path is not None:
            self._seen = _stamp(path)
            self._scopes = read(path)

    def refused(self, authorization: str, cluster_id: str | None) -> int:
        """401 or 403 for a request with this header that is about a cluster, or reads (None); 0 where it may
        go on."""
        if self._path is None:
            return 0
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token:
            return 401
        scopes = self._scopes.get(_digest(token.strip()))
        if scopes is None:
            return 401
        if cluster_id is None or EVERYTHING in scopes:
            return 0
        return 0 if cluster_id in scopes and cluster_id != READ else 403

    async def run(self) -> None:
        """Follow the file until cancelled; a bad one keeps the last good one in force."""
        while self._path is not None:
            await self._clock.sleep(PERIOD_S)
            seen = _stamp(self._path)
            if seen == self._seen:
                continue
            self._seen = seen
            try:
                self._scopes = read(self._path)
            except UserError as problem:
                self.failed += 1
                log.error("tokens not reloaded", error=str(problem))
        await self._clock.sleep(1e9)


def read(path: Path) -> Mapping[bytes, frozenset[str]]:
    """Scopes by the token's digest. Raises UserError."""
    try:
        text = path.read_bytes()[: MAX_BYTES + 1].decode()
    except OSError as problem:
        raise UserError(f"--tokens-file: {path}: {problem.strerror}") from problem
    except UnicodeDecodeError:
        raise UserError(f"--tokens-file: {path} is not UTF-8") from None
    if len(text) > MAX_BYTES:
        raise UserError(f"--tokens-file: {path} is longer than {MAX_BYTES} bytes")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        token, _, scopes = line.strip().partition(" ")
        names = frozenset(name.strip() for name in scopes.split(",") if name.strip())
        if len(token) < 8 or not names:
            raise UserError(
                f"--tokens-file: {path} line {number}: write a token of at least 8 characters, a space, and "
                "`read`, `*` or cluster IDs with commas"
            )
        found[_digest(token)] = names
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _stamp(path: Path) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
