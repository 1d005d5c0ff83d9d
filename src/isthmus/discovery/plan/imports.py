"""What other clusters' Services look like here: slices and ServiceImports in, endpoints out (DS-12 to DS-16).

sources.py hands over what its caches have. Mode mcs reads the labels of the Multi-Cluster Services API and
believes slices only as far as the ServiceImport goes: a source that it does not list any more is a leftover
(R37). Mode karmada reads the source from the Work that a slice came with, since Karmada keeps no other
label; on a member cluster a slice's Work is of the member itself, which its name gives away. Where an
implementation gives no slices for an import, its addresses stand for the one cluster that exports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from isthmus.api.endpointslices import SERVICE_NAME, EndpointSlice
from isthmus.api.karmada import PREFIX
from isthmus.api.meta import Frozen, Object, Resource
from isthmus.api.pools import endpoint_url

IMPORT_SERVICE: Final = "multicluster.kubernetes.io/service-name"
IMPORT_CLUSTER: Final = "multicluster.kubernetes.io/source-cluster"
MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
KARMADA_MANAGER: Final = "endpointslice-controller.karmada.io"
KARMADA_WORK: Final = "work.karmada.io/namespace"
KARMADA_SPACE: Final = "karmada-es-"
MCS_GROUP: Final = "multicluster.x-k8s.io"
MAX_ENDPOINTS: Final = 256
"""Addresses of one Service of one cluster that are listed."""


class ImportPort(Frozen, frozen=True, kw_only=True):
    """spec.ports[]."""

    name: str = ""
    port: int = 0
    protocol: str = "TCP"


class ImportSpec(Frozen, frozen=True, kw_only=True):
    """spec. Lists that are null are empty."""

    ips: tuple[str, ...] | None = None
    ports: tuple[ImportPort, ...] | None = None


class ImportCluster(Frozen, frozen=True, kw_only=True):
    """status.clusters[]."""

    cluster: str = ""


class ImportStatus(Frozen, frozen=True, kw_only=True):
    """status. `clusters` is None where nobody has said."""

    clusters: tuple[ImportCluster, ...] | None = None


class ServiceImport(Object, frozen=True, kw_only=True):
    """A Service that other clusters export, as this one has it."""

    spec: ImportSpec = ImportSpec()
    status: ImportStatus = ImportStatus()


SERVICE_IMPORTS: Final = tuple(
    Resource(
        group=MCS_GROUP, version=version, plural="serviceimports", kind="ServiceImport", type=ServiceImport
    )
    for version in ("v1beta1", "v1alpha1")
)


class Source(NamedTuple):
    """A Service of one cluster, as its own cluster names it."""

    cluster: str
    namespace: str
    service: str


class Endpoints(msgspec.Struct, frozen=True, gc=False):
    """Where a source can be reached: (address, port) pairs for relays and for frontends, sorted. `total`
    counts all endpoints, `ready` those that take requests."""

    grpc: tuple[tuple[str, int], ...] = ()
    http: tuple[tuple[str, int], ...] = ()
    total: int = 0
    ready: int = 0
    bare: bool = False
    """It is imported, but nothing says where its endpoints are."""
    left_over: bool = False
    """There are slices, but its ServiceImport is gone or does not list the cluster: not imported any more."""

    def urls(self, port: str) -> tuple[str, ...]:
        """The URLs of port `grpc` or `http`."""
        pairs = self.grpc if port == "grpc" else self.http
        return tuple(endpoint_url("http", address, number) for address, number in pairs)


LEFT_OVER: Final = Endpoints(left_over=True)


def of_mcs(
    slices: Iterable[EndpointSlice], imports: Mapping[tuple[str, str], ServiceImport] | None
) -> dict[Source, Endpoints]:
    """The endpoints of every source. `imports` by (namespace, name); None where the API is not served."""
    found: dict[Source, list[EndpointSlice]] = {}
    for each in slices:
        labels = each.metadata.labels
        source = Source(
            labels.get(IMPORT_CLUSTER, ""), each.metadata.namespace, labels.get(IMPORT_SERVICE, "")
        )
        if source.cluster and source.service:
            found.setdefault(source, []).append(each)
    whole = {
        source: _merge(its) if _is_listed(source, imports) else LEFT_OVER for source, its in found.items()
    }
    for (namespace, name), told in (imports or {}).items():
        clusters = [cluster.cluster for cluster in told.status.clusters or ()]
        for cluster in clusters:
            source = Source(cluster, namespace, name)
            if cluster and source not in whole:
                whole[source] = _of_import(told) if len(clusters) == 1 else Endpoints(bare=True)
    return whole


def of_karmada(slices: Iterable[EndpointSlice]) -> dict[Source, Endpoints]:
    """The endpoints of every source, from the slices that Karmada has collected."""
    found: dict[Source, list[EndpointSlice]] = {}
    for each in slices:
        source = _karmada_source(each)
        if source is not None:
            found.setdefault(source, []).append(each)
    return {source: _merge(its) for source, its in found.items()}


def _karmada_source(found: EndpointSlice) -> Source | None:
    """Whose slice it is; None for one that Karmada has not collected on this control plane."""
    labels, work = found.metadata.labels, found.metadata.annotations.get(KARMADA_WORK, "")
    cluster = work.removeprefix(KARMADA_SPACE)
    service = labels.get(SERVICE_NAME, "")
    if labels.get(MANAGED_BY) != KARMADA_MANAGER or cluster == work or not service.startswith(PREFIX):
        return None
    if not found.metadata.name.startswith(f"imported-{cluster}-"):
        return None
    return Source(cluster, found.metadata.namespace, service.removeprefix(PREFIX))


def _is_listed(source: Source, imports: Mapping[tuple[str, str], ServiceImport] | None) -> bool:
    if imports is None:
        return True
    found = imports.get((source.namespace, source.service))
    if found is None:
        return False
    clusters = found.status.clusters
    return clusters is None or any(each.cluster == source.cluster for each in clusters)


def _merge(slices: Iterable[EndpointSlice]) -> Endpoints:
    grpc: set[tuple[str, int]] = set()
    http: set[tuple[str, int]] = set()
    total = count = 0
    for each in slices:
        endpoints = each.all
        ready = [endpoint.addresses[0] for endpoint in endpoints if endpoint.ready and endpoint.addresses]
        total, count = total + len(endpoints), count + len(ready)
        for name, pairs in (("grpc", grpc), ("http", http)):
            port = each.port(name) if ready else None
            if port is not None:
                pairs.update([(address, port) for address in ready])
    return Endpoints(tuple(sorted(grpc)[:MAX_ENDPOINTS]), tuple(sorted(http)[:MAX_ENDPOINTS]), total, count)


def _of_import(found: ServiceImport) -> Endpoints:
    ips, ports = found.spec.ips or (), [each for each in found.spec.ports or () if each.protocol == "TCP"]
    if not ips:
        return Endpoints(bare=True)

    def pairs(name: str) -> tuple[tuple[str, int], ...]:
        named = [each.port for each in ports if each.name == name]
        port = named[0] if named else ports[0].port if len(ports) == 1 else 0
        return tuple((address, port) for address in ips[:1]) if port else ()

    return Endpoints(pairs("grpc"), pairs("http"), len(ips), len(ips))
