"""Imports as Cilium and Karmada write them to an API server, for tests of the discovery service.

Labels, names and annotations are those that were seen of Cilium 1.18 and Karmada 1.16. `Imported` is the
namespace of a router cluster, or of Karmada's control plane, in which a test plays the implementation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.api.endpointslices import ENDPOINT_SLICES
from isthmus.api.meta import Raw, Resource
from isthmus.discovery.plan.imports import SERVICE_IMPORTS, ServiceImport
from tests.support.rawapi import RawApi

RELAY, FRONTEND = "chat-pool-relay", "chat-frontend"
PORTS = {RELAY: ("grpc", 5561), FRONTEND: ("http", 8000)}
READY: Raw = {"ready": True, "serving": True, "terminating": False}


class Imported:
    """See the module."""

    def __init__(
        self,
        api: RawApi,
        namespace: str,
        *,
        resource: Resource[ServiceImport] = SERVICE_IMPORTS[0],
    ) -> None:
        self.api = api
        self.namespace = namespace
        self.resource = resource

    def pool(self, cluster: str, address: str) -> None:
        """Both Services of a pool, exported by this cluster too."""
        for service in (RELAY, FRONTEND):
            self.slice(cluster, service, [address])
            self.lists(service, cluster)

    def slice(
        self,
        cluster: str,
        service: str,
        addresses: Sequence[str],
        *,
        port: int = 0,
        conditions: Raw = READY,
        v6: bool = False,
    ) -> None:
        """Write the slice that Cilium's mesh controller writes for a Service of another cluster."""
        labels = {
            "multicluster.kubernetes.io/service-name": service,
            "multicluster.kubernetes.io/source-cluster": cluster,
            "kubernetes.io/service-name": "derived-iccqeab16c",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-mesh-controller.cilium.io",
        }
        name, number = PORTS[service]
        self._put(
            ENDPOINT_SLICES,
            {
                "metadata": {"name": f"derived-{service}-{cluster}", "labels": labels},
                "addressType": "IPv6" if v6 else "IPv4",
                "endpoints": [{"addresses": [each], "conditions": conditions} for each in addresses],
                "ports": [{"name": name, "port": port or number, "protocol": "TCP"}],
            },
        )

    def karmada_slice(self, cluster: str, service: str, addresses: Sequence[str], *, work: str = "") -> None:
        """Write the slice that Karmada collects to its control plane."""
        name, number = PORTS[service]
        self._put(
            ENDPOINT_SLICES,
            {
                "metadata": {
                    "name": f"imported-{cluster}-{service}-tfn4z",
                    "labels": {
                        "kubernetes.io/service-name": f"derived-{service}",
                        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.karmada.io",
                        "work.karmada.io/permanent-id": "5bc64bbf-b3fe-44dd-aec9-1c26447128d0",
                    },
                    "annotations": {
                        "work.karmada.io/name": f"{service}-tfn4z-75ff96f9",
                        "work.karmada.io/namespace": work or f"karmada-es-{cluster}",
                    },
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [each], "conditions": READY} for each in addresses],
                "ports": [{"name": name, "port": number, "protocol": "TCP"}],
            },
        )

    def lists(self, service: str, *clusters: str, keep: bool = True, ips: Sequence[str] = ()) -> None:
        """Have the ServiceImport say that these clusters export it; with `keep`, those of before too."""
        name, number = PORTS[service]
        path = self.resource.path(self.namespace, service)
        found = self.api.call("GET", path)
        before = found.body.get("status", {}).get("clusters") or [] if found.code == 200 else []
        told = {each["cluster"] for each in before if keep} | set(clusters)
        ports = [{"name": name, "port": number, "protocol": "TCP"}]
        self._put(
            self.resource,
            {
                "metadata": {"name": service},
                "spec": {"type": "ClusterSetIP", "ports": ports, "ips": list(ips)},
            },
        )
        status: Raw = {"status": {"clusters": [{"cluster": each} for each in sorted(told)]}}
        answer = self.api.patch(self.resource, self.namespace, service, status, subresource="status")
        assert answer.code == 200, answer.body

    def no_slice(self, cluster: str, service: str) -> None:
        """Its slice goes."""
        self.api.delete(ENDPOINT_SLICES, self.namespace, f"derived-{service}-{cluster}")

    def no_import(self, service: str) -> None:
        """The ServiceImport goes."""
        self.api.delete(self.resource, self.namespace, service)

    def _put(self, resource: Resource[Any], manifest: Raw) -> None:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **manifest}
        body["metadata"]["namespace"] = self.namespace
        path = resource.path(self.namespace, body["metadata"]["name"])
        answer = self.api.call(
            "PATCH",
            path,
            body,
            content_type="application/apply-patch+yaml",
            fieldManager="implementation",
            force="true",
        )
        assert answer.code in (200, 201), answer.body
