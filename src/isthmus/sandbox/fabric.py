"""What runs real pods and carries their connections: the network, and a machine and a proxy per cluster.

The supervisor makes one for the whole sandbox, calls `add` for each cluster while it comes up, runs what that
returns, and asks `find` for those who want to know a loopback port.
"""

from __future__ import annotations

import asyncio
from functools import partial

from isthmus.clock import Clock
from isthmus.errors import WorldError
from isthmus.kube.client import Client
from isthmus.sandbox.machine import Machine
from isthmus.sandbox.network import Network, NoRoute
from isthmus.sandbox.proxy import Proxy
from isthmus.sandbox.settings import Folder


class Fabric:
    """See the module. `machines` and `proxies` (URLs) are the clusters', in their order."""

    def __init__(self, folder: Folder, clock: Clock) -> None:
        self.machines: list[Machine] = []
        self.proxies: tuple[str, ...] = ()
        self._folder = folder
        self._clock = clock
        self._network = Network()

    def add(self, client: Client, *, port: int) -> tuple[Machine, Proxy]:
        """The next cluster's machine and its proxy at `port`, which the caller runs."""
        index = len(self.machines)
        proxy = Proxy(partial(self._lead, index), port=port)
        machine = Machine(
            client,
            index=index,
            network=self._network,
            folder=self._folder,
            proxy=proxy.url,
            clock=self._clock,
        )
        self.machines.append(machine)
        self.proxies = (*self.proxies, proxy.url)
        return machine, proxy

    async def find(self, index: int, host: str, port: int) -> int:
        """Where the proxy of a cluster would lead a connection. Raises WorldError where that is nowhere."""
        try:
            return await self._lead(index, host, port)
        except NoRoute as error:
            raise WorldError(str(error)) from error

    def close(self) -> None:
        """Give all ports back."""
        self._network.close_all()

    async def _lead(self, index: int, host: str, port: int) -> int:
        if not self._network.is_pod(host):
            await asyncio.gather(*(each.know_services() for each in self.machines))
        return self._network.find(host, port, cluster=index)
