"""An address or a name of the sandbox leads to the loopback port of a process."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from isthmus.sandbox.network import Network, NoRoute, Target

POD = "198.18.1.7"


class View:
    """One Service `web` in namespace `n` with port 80."""

    def endpoint_of(self, address: str, port: int) -> Target | None:
        return self._target(port) if address == "10.100.0.9" else None

    def endpoint_named(self, namespace: str, name: str, port: int) -> Target | None:
        return self._target(port) if (namespace, name) == ("n", "web") else None

    def import_of(self, address: str) -> tuple[str, str] | None:
        return None

    def _target(self, port: int) -> Target:
        if port != 80:
            raise NoRoute("no such port")
        return Target(POD, 8000)


class Importer:
    """A cluster that has imported `n/web`, and `n/gone`, without endpoints."""

    def endpoint_of(self, address: str, port: int) -> Target | None:
        return None

    def endpoint_named(self, namespace: str, name: str, port: int) -> Target | None:
        raise NoRoute("no ready endpoint")

    def import_of(self, address: str) -> tuple[str, str] | None:
        return {"10.101.0.9": ("n", "web"), "10.101.0.10": ("n", "gone")}.get(address)


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    made.services[0] = View()
    yield made
    made.close_all()


def test_pod_must_have_its_ports_for_as_long_as_it_is_there(network: Network) -> None:
    first = network.open(POD, [8000, 9000])
    assert network.open(POD, [8000, 9000]) == first
    assert network.find(POD, 9000, cluster=3) == first[9000]
    network.close(POD)
    with pytest.raises(NoRoute, match=POD):
        network.find(POD, 9000, cluster=0)
    with socket.socket() as other:
        other.bind(("127.0.0.1", first[8000]))


def test_port_that_is_not_declared_must_be_named(network: Network) -> None:
    network.open(POD, [8000])
    with pytest.raises(NoRoute, match="port 1"):
        network.find(POD, 1, cluster=0)


@pytest.mark.parametrize(
    ("host", "cluster"),
    [
        ("10.100.0.9", 0),
        ("10.100.0.9", 1),
        ("web.n", 0),
        ("WEB.n.svc", 0),
        ("web.n.svc.cluster.local", 0),
        ("web.n.svc.cluster.local.", 0),
    ],
)
def test_service_must_lead_to_its_pod(network: Network, host: str, cluster: int) -> None:
    real = network.open(POD, [8000])[8000]
    assert network.find(host, 80, cluster=cluster) == real


def test_import_without_endpoints_must_lead_to_the_cluster_that_has_the_service(network: Network) -> None:
    network.services = {1: Importer(), 0: View()}
    real = network.open(POD, [8000])[8000]
    assert network.find("10.101.0.9", 80, cluster=1) == real
    with pytest.raises(NoRoute, match="n/gone"):
        network.find("10.101.0.10", 80, cluster=1)


@pytest.mark.parametrize(
    ("host", "cluster"),
    [
        ("web", 0),
        ("web.other", 0),
        ("web.n.pod", 0),
        ("web.n", 1),
        ("10.100.0.10", 0),
        ("127.0.0.1", 0),
        ("fd00::1", 0),
    ],
)
def test_everything_else_must_lead_nowhere(network: Network, host: str, cluster: int) -> None:
    network.open(POD, [8000])
    with pytest.raises(NoRoute):
        network.find(host, 80, cluster=cluster)
