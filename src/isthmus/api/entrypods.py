"""Entry pods of a ModelServing, cut down to what its relay reads: where they are, which ports, whether ready.

A role has Services only where it has workers, and those publish addresses that are not ready; so a relay goes
by the entry pods themselves. kube/ decodes into these types; they are never written. Pure.
"""

from __future__ import annotations

from typing import Final

import msgspec

from isthmus.api import labels
from isthmus.api.meta import Frozen, Object, Resource
from isthmus.api.pods import PodCondition, ServingMeta


class ContainerPort(Frozen, frozen=True, kw_only=True):
    """spec.containers[].ports[]."""

    container_port: int = 0
    name: str = ""
    protocol: str = "TCP"


class EntryContainer(Frozen, frozen=True, kw_only=True):
    """spec.containers[]."""

    ports: tuple[ContainerPort, ...] = ()


class EntrySpec(Frozen, frozen=True, kw_only=True):
    """spec."""

    containers: tuple[EntryContainer, ...] = ()


class EntryStatus(Frozen, frozen=True, kw_only=True):
    """status. `pod_ip` is empty until there is one."""

    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: tuple[PodCondition, ...] = ()


class EntryPod(Object, frozen=True, kw_only=True):
    """The entry pod of a role replica."""

    metadata: ServingMeta
    spec: EntrySpec = EntrySpec()
    status: EntryStatus = EntryStatus()

    @property
    def role(self) -> str:
        """Of which role."""
        return self.metadata.labels.role

    @property
    def ready(self) -> bool:
        """Whether it takes new requests."""
        return not self.metadata.terminating and any(
            each.type == "Ready" and each.status == "True" for each in self.status.conditions
        )

    def port(self, name: str) -> int | None:
        """The number of the TCP port of that name, else of the first that is declared; None where none is."""
        ports = [each for container in self.spec.containers for each in container.ports]
        tcp = [each for each in ports if each.protocol == "TCP" and each.container_port]
        named = [each.container_port for each in tcp if each.name == name]
        return named[0] if named else (tcp[0].container_port if tcp else None)


ENTRY_PODS: Final = Resource(group="", version="v1", plural="pods", kind="Pod", type=EntryPod)


def entries_of(serving: str) -> str:
    """The label selector of a ModelServing's entry pods."""
    return f"{labels.NAME}={serving},{labels.ENTRY}=true"
