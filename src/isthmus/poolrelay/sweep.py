"""Withdraws what an earlier run exported, once, where exporting has been switched off since (PR-110).

app/poolrelay.py runs it for each namespace that has relays, as the workers of an operator start whose
configuration names no implementation. Only exports are deleted whose controller is a relay that exists, each
with the UID and resourceVersion that were read; a user's export, and that of a relay that is gone, are left
alone. Whatever goes wrong is a line in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from isthmus import logs
from isthmus.api.poolrelay import (
    EXPORT_VERSIONS,
    POOL_RELAYS,
    DynamoPoolRelay,
    ServiceExport,
    service_exports,
)
from isthmus.errors import IsthmusError
from isthmus.kube.client import Client
from isthmus.kube.errors import ApiError, WriteRefused

log = logs.get(__name__)

PAGE: Final = 500


def leftovers(exports: Iterable[ServiceExport], relays: Iterable[DynamoPoolRelay]) -> list[ServiceExport]:
    """The exports that an existing relay controls and that are not on their way out."""
    known = {(relay.metadata.namespace, relay.metadata.uid) for relay in relays}
    found = []
    for export in exports:
        owner = export.metadata.controller()
        if owner is None or owner.kind != POOL_RELAYS.kind or export.metadata.terminating:
            continue
        if (export.metadata.namespace, owner.uid) in known:
            found.append(export)
    return found


async def sweep(client: Client, relays: Iterable[DynamoPoolRelay], namespace: str) -> int:
    """Delete the leftovers in one namespace; return how many went. Raises no IsthmusError but WriteRefused,
    where this process may not write any more."""
    try:
        return await _sweep(client, list(relays), namespace)
    except WriteRefused:
        raise
    except IsthmusError as error:
        log.warning("exports of earlier runs were not cleaned up", namespace=namespace, error=str(error))
        return 0


async def _sweep(client: Client, relays: Sequence[DynamoPoolRelay], namespace: str) -> int:
    version = ""
    for candidate in EXPORT_VERSIONS:
        if await client.served(service_exports(candidate)):
            version = candidate
            break
    if not version:
        return 0
    resource, gone = service_exports(version), 0
    found: list[ServiceExport] = []
    async for page in client.list_all(resource, namespace, limit=PAGE):
        found += leftovers(page.items, relays)
    for export in found:
        meta = export.metadata
        try:
            await client.delete(
                resource, namespace, meta.name, uid=meta.uid, resource_version=meta.resource_version
            )
        except ApiError as error:
            log.warning("an export of an earlier run stays", export=export.key, error=str(error))
        else:
            gone += 1
    if gone:
        log.info(
            "withdrew exports of earlier runs, since exporting is off", namespace=namespace, exports=gone
        )
    return gone
