"""Pod addresses: from 198.18.0.0/15, each in use once at a time, for all clusters of a sandbox together.

EndpointSlices refuse loopback addresses, and the networks of private ranges may exist on this machine; this
one is set aside for benchmarks and is routed nowhere (docs/decisions/0003). The simulated nodes take and
free; no state outlives the supervisor, which claims again what pods have.
"""

from __future__ import annotations

import ipaddress
import itertools
from typing import Final

NETWORK: Final = ipaddress.ip_network("198.18.0.0/15")
RESERVED: Final = 256
"""Addresses at each end that no pod gets: the Nodes' own is among them."""


class Addresses:
    """Hands out each address once; freed ones come last, so that a successor is told from its predecessor."""

    def __init__(self) -> None:
        self._first = int(NETWORK.network_address) + RESERVED
        self._count = NETWORK.num_addresses - 2 * RESERVED
        self._next = itertools.count()
        self._used: set[str] = set()

    def take(self) -> str:
        """A free address. Raises RuntimeError where all 130,560 are in use."""
        if len(self._used) >= self._count:
            raise RuntimeError(f"all addresses of {NETWORK} are in use")
        while True:
            address = str(ipaddress.IPv4Address(self._first + next(self._next) % self._count))
            if address not in self._used:
                self._used.add(address)
                return address

    def claim(self, address: str) -> None:
        """Take one that a pod has already."""
        self._used.add(address)

    def free(self, address: str) -> None:
        """Give one back; unknown ones are fine."""
        self._used.discard(address)
