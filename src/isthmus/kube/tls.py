"""The TLS context for connections to an API server, made again when the CA or the client certificate changes.

transport.py asks for it before each request; the files behind it are read at most every 50 s, in a thread,
and at once after a connection failed on a certificate (R24). A new context gives new connections only: those
that are open keep theirs, and idle ones age out of the pool within seconds. Private keys that came as data
touch the disk only in a private file that is removed at once, since the ssl module takes nothing else.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
from pathlib import Path

import msgspec

from isthmus.clock import Clock
from isthmus.errors import UserError
from isthmus.kube.credentials import REREAD_S, Pem
from isthmus.kube.errors import Unreachable


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the trust comes from: for CA and client certificate either a path, which is read again, or PEM
    data. No CA at all means the system's.

    `server_name` replaces the host's name in SNI and in the check of the certificate.
    """

    ca_path: Path | None = None
    ca_pem: bytes = b""
    insecure: bool = False
    server_name: str = ""
    certificate_path: Path | None = None
    key_path: Path | None = None
    certificate: Pem | None = None


class TlsSource:
    """Keeps one SSLContext in step with its settings' files. Not for concurrent loops."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._material: tuple[bytes, Pem | None] | None = None
        self._context: ssl.SSLContext | None = None
        self._plugin: Pem | None = None
        self._stale_at = 0.0
        has_files = settings.ca_path is not None or settings.certificate_path is not None
        self._reread_s = REREAD_S if has_files else float("inf")
        self._lock = asyncio.Lock()

    def cached(self, now: float, plugin: Pem | None) -> ssl.SSLContext | None:
        """The context, or None where `refresh` must be awaited first. `now` is monotonic; `plugin` is the
        certificate of an exec plugin, if any."""
        if now >= self._stale_at or plugin is not self._plugin:
            return None
        return self._context

    async def refresh(self, clock: Clock, plugin: Pem | None) -> ssl.SSLContext:
        """Read the files, and make a new context where they have changed.

        Raises UserError where there never was a usable one; a file that is broken later leaves the last
        context in use until the next read.
        """
        async with self._lock:
            if (context := self.cached(clock.monotonic(), plugin)) is not None:
                return context
            try:
                await asyncio.to_thread(self._load, plugin)
            except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
                if self._context is None:
                    if isinstance(error, FileNotFoundError | PermissionError):
                        raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
                    raise UserError(f"the cluster's CA or client certificate is unusable: {error}") from error
            self._plugin = plugin
            self._stale_at = clock.monotonic() + self._reread_s
            if self._context is None:  # pragma: no cover - _load has set it or raised
                raise Unreachable("no TLS context", sent=False)
            return self._context

    def renew(self) -> None:
        """Read the files again before the next request: a connection has failed on a certificate."""
        self._stale_at = 0.0

    def _load(self, plugin: Pem | None) -> None:
        settings = self._settings
        ca = settings.ca_path.read_bytes() if settings.ca_path is not None else settings.ca_pem
        if settings.ca_path is not None and not ca.strip():  # never the system's CAs instead
            raise ValueError(f"{settings.ca_path} is empty")
        pem = settings.certificate
        if settings.certificate_path is not None and settings.key_path is not None:
            pem = Pem(settings.certificate_path.read_bytes(), settings.key_path.read_bytes())
        material = (ca, plugin or pem)
        if material == self._material and self._context is not None:
            return
        self._context = _context(ca, plugin or pem, insecure=settings.insecure)
        self._material = material


def _context(ca: bytes, pem: Pem | None, *, insecure: bool) -> ssl.SSLContext:
    if insecure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
    if pem is not None:
        with tempfile.TemporaryDirectory(prefix="isthmus-") as folder:  # mode 0700
            path = os.path.join(folder, "pem")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(pem.certificate.rstrip() + b"\n" + pem.key)
            context.load_cert_chain(path)
    return context
