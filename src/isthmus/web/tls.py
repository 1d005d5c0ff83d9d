"""A listener's certificate and key: read at the start, and again whenever their files change.

server.py gives `context` to the event loop and calls `reload` every RELOAD_S, so that a certificate that
cert-manager or a Secret renews is used for the next handshake, without a restart. A pair that cannot be read
or does not belong together leaves the old one in use; `failed` counts, and the log says which file.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from isthmus import logs
from isthmus.errors import UserError

log = logs.get(__name__)

RELOAD_S: Final = 5.0


class ServerTls:
    """See the module. Raises UserError, naming `flags`, where the first pair cannot be used."""

    def __init__(self, certificate: Path, key: Path, *, flags: str) -> None:
        self._files = (certificate, key)
        self._seen = self._state()
        self.reloaded = 0
        self.failed = 0
        try:
            self.context = self._load()
        except (OSError, ssl.SSLError) as problem:
            raise UserError(f"{flags}: the pair cannot be used: {problem}") from problem

    def reload(self) -> None:
        """Take in the files if they have changed since they were last looked at."""
        seen = self._state()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._load()  # into a context of its own first: a bad pair must not touch the one in use
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as problem:
            self.failed += 1
            log.error("certificate not reloaded", file=str(self._files[0]), error=str(problem))
        else:
            self.reloaded += 1
            log.info("certificate reloaded", file=str(self._files[0]))

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _state(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What tells one version of the files from the next. A Secret's files are links to a new folder."""
        return tuple(_stamp(path) for path in self._files)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
