"""Registrations, slices and imports for tests of the discovery service, as relays and imports make them."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.api.endpointslices import SERVICE_NAME, Conditions, Endpoint, EndpointPort, EndpointSlice
from isthmus.api.meta import ObjectMeta
from isthmus.api.pools import Frontend, Model, Registration, RelayRun
from isthmus.discovery.plan import imports
from isthmus.discovery.plan.imports import (
    ImportCluster,
    ImportPort,
    ImportSpec,
    ImportStatus,
    ServiceImport,
)


def registration(
    cluster: str = "east",
    name: str = "chat",
    *,
    run: str = "a",
    revision: int = 1,
    namespace: str = "serving",
) -> Registration:
    """A relay's."""
    return Registration(
        cluster_id=cluster,
        namespace=namespace,
        name=name,
        relay=RelayRun(url=f"http://{cluster}.example:5561", incarnation=run, revision=revision),
        models=(Model(id="example/tiny"),),
        frontends=(Frontend(url=f"http://{cluster}.example:8000"),),
    )


def mcs_slice(
    cluster: str,
    service: str,
    addresses: Sequence[str] = ("10.1.0.7",),
    *,
    ready: bool | None = True,
    terminating: bool = False,
    port: tuple[str, int] | None = None,
    namespace: str = "serving",
) -> EndpointSlice:
    """One that an implementation of the Multi-Cluster Services API mirrors."""
    return _slice(
        f"{service}-{cluster}",
        {imports.IMPORT_SERVICE: service, imports.IMPORT_CLUSTER: cluster},
        {},
        (addresses, ready, terminating, port or _port(service), namespace),
    )


def karmada_slice(
    cluster: str,
    service: str,
    addresses: Sequence[str] = ("10.1.0.7",),
    *,
    work: bool = True,
    namespace: str = "serving",
) -> EndpointSlice:
    """One that Karmada has collected."""
    return _slice(
        f"imported-{cluster}-{service}",
        {SERVICE_NAME: f"derived-{service}", imports.MANAGED_BY: imports.KARMADA_MANAGER},
        {imports.KARMADA_WORK: f"karmada-es-{cluster}"} if work else {},
        (addresses, True, False, _port(service), namespace),
    )


def service_import(
    service: str,
    clusters: Sequence[str] | None,
    *,
    ips: Sequence[str] = (),
    namespace: str = "serving",
) -> ServiceImport:
    """A ServiceImport; `clusters` None: nobody has said which."""
    name, port = _port(service)
    return ServiceImport(
        metadata=ObjectMeta(name=service, namespace=namespace),
        spec=ImportSpec(ips=tuple(ips), ports=(ImportPort(name=name, port=port),)),
        status=ImportStatus(
            clusters=None if clusters is None else tuple(ImportCluster(cluster=each) for each in clusters)
        ),
    )


def _port(service: str) -> tuple[str, int]:
    return ("grpc", 5561) if service.endswith("-pool-relay") else ("http", 8000)


def _slice(
    name: str,
    labels: dict[str, str],
    annotations: dict[str, str],
    rest: tuple[Sequence[str], bool | None, bool, tuple[str, int], str],
) -> EndpointSlice:
    addresses, ready, terminating, port, namespace = rest
    conditions = Conditions(ready=ready, terminating=terminating)
    return EndpointSlice(
        metadata=ObjectMeta(name=name, namespace=namespace, labels=labels, annotations=annotations),
        address_type="IPv6" if any(":" in address for address in addresses) else "IPv4",
        endpoints=tuple(Endpoint(addresses=(address,), conditions=conditions) for address in addresses),
        ports=(EndpointPort(name=port[0], port=port[1], protocol="TCP"),),
    )
