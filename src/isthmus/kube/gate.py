"""The last question before a write leaves this process: may it still?

client.Client asks its gate right before each mutating request goes onto a connection, after every wait for
limits, retries, credentials and the connection itself. runtime/election.py has the gate that closes at the
renew deadline of a lease, so a former leader's queued writes never leave (R15).
"""

from __future__ import annotations

from typing import Protocol


class WriteGate(Protocol):
    """Whoever decides whether this process may write now."""

    def check(self) -> None:
        """Return where a write may leave now; raise errors.WriteRefused otherwise. Must not wait."""


class OpenGate:
    """The gate of a process that needs nobody's leave."""

    def check(self) -> None:
        """Return."""
