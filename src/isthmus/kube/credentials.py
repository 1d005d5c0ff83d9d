"""Who we are to an API server: tokens, token files and passwords, each read again when it must be.

transport.py asks for the Authorization header before every request and says `renew` after a 401. A file is
read again at least every 60 s, so a token that the kubelet has rotated is out of use a minute later (R24);
an exec plugin (execplugin.py) is run again when its answer expires or was refused. Client certificates of a
plugin are handed to tls.py as PEM.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Final, Protocol

import msgspec

from isthmus.clock import Clock
from isthmus.kube.errors import Unreachable

REREAD_S: Final = 50.0
"""Longest time between two reads of a token or certificate file: 60 s less the time that a retry may take."""


class Pem(msgspec.Struct, frozen=True):
    """A client certificate chain with its key, as PEM."""

    certificate: bytes
    key: bytes


class Credentials(Protocol):
    """What transport.py asks. `renewable`: whether a 401 may pass by asking again."""

    renewable: bool

    def cached(self, now: float) -> str | None:
        """The Authorization header ("" for none), or None where `refresh` must be awaited first. `now` is
        monotonic."""

    async def refresh(self, clock: Clock) -> str:
        """Fetch anew, and return the Authorization header. Raises UserError or Unreachable(sent=False)."""

    def renew(self) -> None:
        """What `cached` gave was refused: do not give it again unread."""

    def certificate(self) -> Pem | None:
        """Client certificate that came with the last `refresh`, if any."""


class Fixed:
    """A header that never changes: nothing, a token, or a user with a password."""

    renewable = False

    def __init__(self, authorization: str = "") -> None:
        self._authorization = authorization

    @classmethod
    def token(cls, token: str) -> Fixed:
        """Bearer token."""
        return cls(f"Bearer {token}")

    @classmethod
    def basic(cls, user: str, password: str) -> Fixed:
        """Basic authentication."""
        return cls("Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())

    def cached(self, now: float) -> str | None:
        """See Credentials.cached."""
        return self._authorization

    async def refresh(self, clock: Clock) -> str:
        """See Credentials.refresh."""
        return self._authorization

    def renew(self) -> None:
        """Nothing can be done."""

    def certificate(self) -> Pem | None:
        """None."""
        return None


class TokenFile:
    """A bearer token in a file that something else rotates, as kubelets do with a symlink swap (R24).

    An unreadable or empty file leaves the last token in use until the next read: kubelets replace the file
    in one step, so that is a fault that passes.
    """

    renewable = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._authorization = ""
        self._stale_at: float | None = None

    def cached(self, now: float) -> str | None:
        """See Credentials.cached."""
        if self._stale_at is None or now >= self._stale_at:
            return None
        return self._authorization

    async def refresh(self, clock: Clock) -> str:
        """Read the file, in a thread. Raises Unreachable(sent=False) where there has never been a token."""
        try:
            token = (await asyncio.to_thread(self._path.read_text)).strip()
        except (OSError, UnicodeDecodeError) as error:
            if not self._authorization:
                raise Unreachable(f"cannot read the token file {self._path}: {error}", sent=False) from error
            token = ""
        if token:
            self._authorization = f"Bearer {token}"
        elif not self._authorization:
            raise Unreachable(f"the token file {self._path} is empty", sent=False)
        self._stale_at = clock.monotonic() + REREAD_S
        return self._authorization

    def renew(self) -> None:
        """Read again before the next request."""
        self._stale_at = None

    def certificate(self) -> Pem | None:
        """None."""
        return None
