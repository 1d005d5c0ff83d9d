"""From an API server that has just been started to a cluster that one can use.

supervisor.py calls `wait_ready`, `prepare` and, once the controller manager runs, `wait_usable`; later on
`install_crds` at request. Order: CRDs before the controller manager, since its garbage collector looks for
kinds only when it starts and every 30 s after that. Every wait here is bounded by its caller's timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from isthmus.api.meta import Resource
from isthmus.clock import Clock
from isthmus.errors import IsthmusError
from isthmus.kube import errors
from isthmus.kube.client import Client, PatchKind
from isthmus.sandbox import rbac, resources

FIELD_MANAGER: Final = "isthmus-sandbox"
POLL_S: Final = 0.03

Raw = dict[str, Any]


async def wait_ready(client: Client, clock: Clock) -> None:
    """Return once the API server says that it is ready."""
    while True:
        try:
            if await client.get_raw("/readyz") == b"ok":
                return
        except IsthmusError:
            pass
        await clock.sleep(POLL_S)


async def prepare(client: Client, clock: Clock, *, nodes: Sequence[Raw], crds: Sequence[Raw]) -> None:
    """Make the operator's role, the Nodes and the CRDs."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_ensure(client, resources.CLUSTER_ROLES, rbac.operator_role()))
        group.create_task(_ensure(client, resources.CLUSTER_ROLE_BINDINGS, rbac.operator_binding()))
        for raw_node in nodes:
            group.create_task(ensure_node(client, raw_node))
        group.create_task(install_crds(client, clock, crds))


async def wait_usable(client: Client, clock: Clock) -> None:
    """Return once pods can be created: their admission wants the service account `default`, which the
    controller manager makes."""
    while True:
        try:
            await client.get(resources.SERVICE_ACCOUNTS, "default", "default")
        except errors.NotFound:
            await clock.sleep(POLL_S)
        else:
            return


async def install_crds(client: Client, clock: Clock, crds: Sequence[Raw]) -> bool:
    """Create or update CRDs, and return once each is Established and can be listed. Returns whether any is
    new, so that the garbage collector has to be told.

    Raises Invalid for a CRD that the API server refuses.
    """
    created = await asyncio.gather(*(_ensure(client, resources.CRDS, crd) for crd in crds))
    for crd in crds:
        name: str = crd["metadata"]["name"]
        while not (await client.get(resources.CRDS, "", name)).is_true("Established"):
            await clock.sleep(POLL_S)
        for version in crd["spec"]["versions"]:
            if version["served"]:
                await _wait_listed(client, clock, crd["spec"], version["name"])
    return any(created)


async def ensure_node(client: Client, raw_node: Raw) -> None:
    """Create a Node. Admission taints each new one as not ready, which here nobody else would take back."""
    if await _ensure(client, resources.NODES, raw_node):
        name: str = raw_node["metadata"]["name"]
        await client.patch(resources.NODES, "", name, {"spec": {"taints": None}}, kind=PatchKind.MERGE)


async def _ensure(client: Client, resource: Resource[Any], body: Raw) -> bool:
    """Create a cluster-scoped object, or apply it where it is there. Returns whether it is new."""
    try:
        await client.create(resource, "", body)
    except errors.AlreadyExists:
        name: str = body["metadata"]["name"]
        await client.apply(resource, "", name, body, field_manager=FIELD_MANAGER, force=True)
        return False
    return True


async def _wait_listed(client: Client, clock: Clock, spec: Raw, version: str) -> None:
    path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"
    while True:
        try:
            await client.get_raw(path)
        except errors.NotFound:
            await clock.sleep(POLL_S)
        else:
            return
