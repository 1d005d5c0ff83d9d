"""Whether pools can be exported here, asked once at the start: the gate `multiClusterExport` (PR-7 to PR-13).

app/poolrelay.py calls `export_version` before anything is built; its value is the version in which exports
are listed, watched and written from then on. Absent means that the API server said so; every other failure
ends the start, since it says nothing about what is served (PR-11).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from isthmus.api.meta import Resource
from isthmus.api.poolrelay import EXPORT_VERSIONS, service_exports
from isthmus.errors import IsthmusError, UserError
from isthmus.poolrelay.plan.model import Implementation

NAME: Final = "multiClusterExport"
SETTING: Final = "multiCluster.mcsImplementation"


class Discovery(Protocol):
    """Whoever can ask the API server (kube.client.Client)."""

    async def served(self, resource: Resource[Any]) -> bool:
        """Whether it has the resource in that group and version. Raises what went wrong."""


async def export_version(
    client: Discovery, implementation: Implementation, candidates: Sequence[str] = EXPORT_VERSIONS
) -> str:
    """The first of `candidates` in which exports are served; empty, without a question, where no
    implementation is set (PR-4).

    Raises UserError, naming the setting and the API, where none is served and where that cannot be found out.
    """
    if not implementation:
        return ""
    for version in candidates:
        resource = service_exports(version)
        try:
            served = await client.served(resource)
        except IsthmusError as error:
            raise UserError(
                f"{SETTING} is {implementation}, and it cannot be seen whether the cluster serves "
                f"{resource.name} at {resource.api_version}: {error}"
            ) from error
        if served:
            return version
    apis = " or ".join(service_exports(version).api_version for version in candidates)
    raise UserError(
        f"{SETTING} is {implementation}, but the cluster does not serve {service_exports('').name} at {apis}",
        hint=f"install the Multi-Cluster Services API's CRDs, or leave {SETTING} empty",
    )
