"""A namespace of its own for a test, on a real API server, and a client of it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from isthmus.api.meta import Object, Raw, Resource
from isthmus.kube import config, errors
from isthmus.kube.client import Client


class ConfigMap(Object, frozen=True, kw_only=True):
    """As much of a ConfigMap as tests look at."""

    data: dict[str, str] = {}


CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", type=ConfigMap)
NAMESPACES = Resource(
    group="", version="v1", plural="namespaces", kind="Namespace", type=Object, namespaced=False
)


def config_map(name: str, **data: str) -> Raw:
    """The body of a ConfigMap with the label test=yes."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"test": "yes"}},
        "data": data,
    }


async def load(kubeconfig: Path) -> config.ClusterConfig:
    """config.load off the loop: it reads files, and blocking calls on the loop fail a test."""
    return await asyncio.to_thread(config.load, kubeconfig, environ={})


@asynccontextmanager
async def own_namespace(kubeconfig: Path) -> AsyncIterator[tuple[Client, str]]:
    """A client as the kubeconfig's user, and the name of a new namespace, deleted afterwards."""
    async with Client(await load(kubeconfig)) as client:
        name = f"test-{secrets.token_hex(4)}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await client.create(NAMESPACES, "", body)
        try:
            yield client, name
        finally:
            await client.delete_collection(CONFIG_MAPS, name, label_selector="test=yes")
            with contextlib.suppress(errors.Conflict):  # its finalizer is the controller manager's
                await client.delete(NAMESPACES, "", name)
