from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from isthmus.api.meta import Frozen, Object, Resource
from isthmus.kube.client import Client
from isthmus.kube.config import ClusterConfig
from tests.support.clock import InstantClock
from tests.support.rawhttp import Handler, RawServer


class Spec(Frozen, frozen=True, kw_only=True):
    replicas: int = 1


class Thing(Object, frozen=True, kw_only=True):
    spec: Spec = Spec()


THINGS = Resource(group="example.com", version="v1", plural="things", kind="Thing", type=Thing)
PATH = "/apis/example.com/v1/namespaces/n/things"

Serve = Callable[..., AbstractAsyncContextManager[tuple[Client, RawServer, InstantClock]]]


def stored(name: str = "a", version: str = "7", **extra: Any) -> dict[str, Any]:
    """An object as the server gives it back."""
    meta = {"name": name, "namespace": "n", "uid": "u", "resourceVersion": version}
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta} | extra


@pytest.fixture
def serve() -> Serve:
    """A client of a scripted server, on a clock whose sleeps are over at once."""

    @asynccontextmanager
    async def start(
        handler: Handler, *, config: dict[str, Any] | None = None, **client: Any
    ) -> AsyncIterator[tuple[Client, RawServer, InstantClock]]:
        clock = InstantClock()
        async with RawServer(handler) as server:
            settings = ClusterConfig(server=server.url, **(config or {}))
            async with Client(settings, clock=clock, **client) as opened:
                yield opened, server, clock

    return start
