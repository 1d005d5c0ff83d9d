"""Where a connection to an address of the sandbox goes: pods to loopback ports, Services to their pods.

One for all clusters of a sandbox, as if their networks were one: pod addresses are unique over all of them,
and each cluster's Services have a range of their own. machine.py takes and gives back the ports of pods;
`services` are what services.py sees of each cluster; proxy.py asks `find` for each connection. Ports are held
for as long as the pod is there (ports.py), so that a container comes back at the same one.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from isthmus.sandbox import ports
from isthmus.sandbox.addresses import NETWORK

CLUSTER_SUFFIX: Final = ("svc", "svc.cluster.local")


class NoRoute(Exception):
    """Nobody has the address, or nobody answers there. The text says which."""


class Target(NamedTuple):
    """An endpoint of a Service."""

    address: str
    port: int


class ServiceView(Protocol):
    """What the network asks of a cluster's Services."""

    def endpoint_of(self, address: str, port: int) -> Target | None:
        """A ready endpoint of the Service with that cluster IP; None where there is no such Service. Raises
        NoRoute where it has no ready endpoint or no such port."""

    def endpoint_named(self, namespace: str, name: str, port: int) -> Target | None:
        """The same by name."""

    def import_of(self, address: str) -> tuple[str, str] | None:
        """Namespace and name of the import for which an MCS implementation derived the Service with that
        cluster IP; None for any other address, and where this cluster has endpoints for it."""


class Network:
    """See the module."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[int, socket.socket]] = {}
        self.services: dict[int, ServiceView] = {}

    def open(self, address: str, wanted: Sequence[int]) -> dict[int, int]:
        """Give a pod its ports; the loopback port of each. Asked again, it answers the same."""
        held = self._pods.setdefault(address, {})
        for port in wanted:
            if port not in held:
                held[port] = ports.reserve()
        return {port: ports.port_of(held[port]) for port in wanted}

    def close(self, address: str) -> None:
        """Take the ports of a pod back; unknown addresses are fine."""
        for held in self._pods.pop(address, {}).values():
            held.close()

    def close_all(self) -> None:
        """Take all back."""
        for address in list(self._pods):
            self.close(address)

    @staticmethod
    def is_pod(host: str) -> bool:
        """Whether it is the address of a pod, so that it can be found without knowing any Service."""
        try:
            return ipaddress.ip_address(host) in NETWORK
        except ValueError:
            return False

    def find(self, host: str, port: int, *, cluster: int) -> int:
        """The loopback port for a connection from a pod of `cluster` to a pod's address, a cluster IP of any
        cluster, or `SERVICE.NAMESPACE` with or without `.svc` and `.svc.cluster.local`. Raises NoRoute."""
        if self.is_pod(host):
            return self._pod_port(host, port)
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return self._pod_port(*self._named(host, port, cluster))
        for view in self.services.values():
            imported = view.import_of(host)
            target = (
                view.endpoint_of(host, port) if imported is None else self._imported(*imported, port, view)
            )
            if target is not None:
                return self._pod_port(*target)
        raise NoRoute(f"nobody in the sandbox has the address {host}")

    def _named(self, host: str, port: int, cluster: int) -> Target:
        name, _, rest = host.rstrip(".").lower().partition(".")
        namespace, _, suffix = rest.partition(".")
        view = self.services.get(cluster)
        if not namespace or (suffix and suffix not in CLUSTER_SUFFIX) or view is None:
            raise NoRoute(f"the sandbox knows no name {host}")
        target = view.endpoint_named(namespace, name, port)
        if target is None:
            raise NoRoute(f"cluster {cluster} has no Service {name} in namespace {namespace}")
        return target

    def _imported(self, namespace: str, name: str, port: int, importer: ServiceView) -> Target:
        """An endpoint in another cluster that has the Service: what the network of an implementation does
        that writes no endpoint slices for its imports."""
        for view in self.services.values():
            if view is not importer and (target := view.endpoint_named(namespace, name, port)) is not None:
                return target
        raise NoRoute(f"no cluster has the Service {namespace}/{name} that is imported")

    def _pod_port(self, address: str, port: int) -> int:
        held = self._pods.get(address)
        if held is None:
            raise NoRoute(f"no process has the address {address}")
        if port not in held:
            raise NoRoute(f"the pod at {address} declares no port {port}")
        return ports.port_of(held[port])
