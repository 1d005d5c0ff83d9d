"""Services and endpoint slices of one cluster, as kube-proxy would know them: who answers for a cluster IP.

machine.py runs one from when it is first needed; network.py asks. Both kinds are watched, so that what was
known last holds while the API server is away. Ready endpoints of all slices of a Service take turns. A
Service that an MCS implementation derived from an import has its endpoints in slices as any other, or, where
the implementation writes none, in the exporting cluster alone (`import_of`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

import msgspec

from isthmus.api.meta import Frozen, Key, Object, Resource
from isthmus.clock import Clock
from isthmus.kube.client import Client
from isthmus.kube.watch import Reflector
from isthmus.sandbox.network import NoRoute, Target

SERVICE_NAME: Final = "kubernetes.io/service-name"
IMPORT: Final = "ServiceImport"

T = TypeVar("T", bound=Object)


class ServicePort(Frozen, frozen=True, kw_only=True):
    """spec.ports[] of a Service."""

    port: int
    name: str = ""


class ServiceSpec(Frozen, frozen=True, kw_only=True):
    """spec of a Service."""

    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    cluster_ips: tuple[str, ...] = msgspec.field(default=(), name="clusterIPs")
    ports: tuple[ServicePort, ...] = ()


class Service(Object, frozen=True, kw_only=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()


class SlicePort(Frozen, frozen=True, kw_only=True):
    """ports[] of a slice."""

    name: str | None = None
    port: int | None = None


class Conditions(Frozen, frozen=True, kw_only=True):
    """endpoints[].conditions. Absent means ready."""

    ready: bool | None = None


class Endpoint(Frozen, frozen=True, kw_only=True):
    """endpoints[]."""

    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()


class Slice(Object, frozen=True, kw_only=True):
    """An EndpointSlice."""

    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[SlicePort, ...] | None = None

    @property
    def service(self) -> Key:
        """Whose it is; the name is empty where it says nothing."""
        return self.metadata.namespace, self.metadata.labels.get(SERVICE_NAME, "")


SERVICES: Final = Resource(group="", version="v1", plural="services", kind="Service", type=Service)
SLICES: Final = Resource(
    group="discovery.k8s.io", version="v1", plural="endpointslices", kind="EndpointSlice", type=Slice
)


def ready_targets(service: Service, slices: Iterable[Slice], port: int) -> list[Target]:
    """The ready endpoints behind `port` of a Service. Raises NoRoute where it has no such port or none is
    ready."""
    of_service = f"{service.metadata.namespace}/{service.metadata.name}"
    found = next((each for each in service.spec.ports if each.port == port), None)
    if found is None:
        raise NoRoute(f"the Service {of_service} has no port {port}")
    targets = [
        Target(address, each.port)
        for one in slices
        for each in one.ports or ()
        if (each.name or "") == found.name and each.port is not None
        for endpoint in one.endpoints or ()
        if endpoint.conditions.ready is not False
        for address in endpoint.addresses[:1]
    ]
    if not targets:
        raise NoRoute(f"the Service {of_service} has no ready endpoint")
    return targets


class Services:
    """See the module."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._services = _Held[Service]()
        self._slices = _Held[Slice]()
        self._turn = itertools.count()
        self._reflectors = (
            Reflector(client, SERVICES, sink=self._services, clock=clock),
            Reflector(client, SLICES, sink=self._slices, clock=clock),
        )

    async def run(self) -> None:
        """Keep up until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._reflectors:
                group.create_task(each.run())

    async def wait_synced(self) -> None:
        """Return once all have been seen."""
        for each in self._reflectors:
            await each.synced.wait()

    def endpoint_of(self, address: str, port: int) -> Target | None:
        """See network.ServiceView."""
        for service in self._services.objects.values():
            if address in (service.spec.cluster_ip, *service.spec.cluster_ips):
                return self._choose(service, port)
        return None

    def import_of(self, address: str) -> Key | None:
        """See network.ServiceView."""
        for service in self._services.objects.values():
            if address in (service.spec.cluster_ip, *service.spec.cluster_ips):
                owner = next((o for o in service.metadata.owner_references if o.kind == IMPORT), None)
                if owner is None or any(
                    each.service == service.key for each in self._slices.objects.values()
                ):
                    return None
                return service.metadata.namespace, owner.name
        return None

    def endpoint_named(self, namespace: str, name: str, port: int) -> Target | None:
        """See network.ServiceView."""
        service = self._services.objects.get((namespace, name))
        return None if service is None else self._choose(service, port)

    def _choose(self, service: Service, port: int) -> Target:
        slices = (each for each in self._slices.objects.values() if each.service == service.key)
        targets = ready_targets(service, slices, port)
        return targets[next(self._turn) % len(targets)]


class _Held(Generic[T]):
    """A sink that only remembers."""

    def __init__(self) -> None:
        self.objects: dict[Key, T] = {}

    def replace(self, source: str, items: list[T], resource_version: str) -> None:
        self.objects = {item.key: item for item in items}

    def upsert(self, source: str, obj: T) -> None:
        self.objects[obj.key] = obj

    def remove(self, source: str, obj: T) -> None:
        self.objects.pop(obj.key, None)

    def progress(self, source: str, resource_version: str) -> None:
        pass
