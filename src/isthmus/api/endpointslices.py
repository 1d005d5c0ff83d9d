"""EndpointSlices, cut down to what relays and discovery services read: addresses, ports, readiness.

kube/ decodes into these types; they are never written. A slice's labels are those of its Service, and
`kubernetes.io/service-name`. Absent conditions mean what the API says they mean, lists that are null are
empty. Pure.
"""

from __future__ import annotations

from typing import Final

from isthmus.api.decode import settle
from isthmus.api.meta import Frozen, Object, Resource

SERVICE_NAME: Final = "kubernetes.io/service-name"


class Conditions(Frozen, frozen=True, kw_only=True):
    """endpoints[].conditions, each None where absent."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class TargetRef(Frozen, frozen=True, kw_only=True):
    """endpoints[].targetRef: mostly a pod."""

    kind: str = ""
    name: str = ""


class Endpoint(Frozen, frozen=True, kw_only=True):
    """endpoints[]. `zone` is that of the node; empty where it has none."""

    addresses: tuple[str, ...] = ()
    conditions: Conditions = Conditions()
    zone: str = ""
    target_ref: TargetRef | None = None

    @property
    def terminating(self) -> bool:
        """Whether it is on its way out."""
        return self.conditions.terminating is True

    @property
    def ready(self) -> bool:
        """Whether it takes new requests: ready, which absent means too, and not on its way out."""
        return self.conditions.ready is not False and not self.terminating


class EndpointPort(Frozen, frozen=True, kw_only=True):
    """ports[]. Without a number it is all ports, which nobody can call."""

    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class EndpointSlice(Object, frozen=True, kw_only=True):
    """Some of the endpoints of one Service, all of one address type and with the same ports."""

    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None

    def __post_init__(self) -> None:
        for field in ("endpoints", "ports"):
            if getattr(self, field) is None:
                settle(self, field, ())

    @property
    def all(self) -> tuple[Endpoint, ...]:
        """Its endpoints."""
        return self.endpoints or ()

    @property
    def service(self) -> str:
        """The name of its Service; empty where it has none."""
        return self.metadata.labels.get(SERVICE_NAME, "")

    def port(self, name: str) -> int | None:
        """The number of the TCP port of that name, or of the only one there is; None where that is not
        clear (DS-15)."""
        tcp = [each for each in self.ports or () if each.port and (each.protocol or "TCP") == "TCP"]
        named = [each.port for each in tcp if each.name == name]
        if named:
            return named[0]
        return tcp[0].port if len(tcp) == 1 else None


ENDPOINT_SLICES: Final = Resource(
    group="discovery.k8s.io",
    version="v1",
    plural="endpointslices",
    kind="EndpointSlice",
    type=EndpointSlice,
)
