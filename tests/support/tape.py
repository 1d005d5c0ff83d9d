"""What happens to some kinds of objects in a namespace, in the order in which the API server did it.

A `Tape` watches; resourceVersions order what its watches saw across kinds, so that a test can say what was
true of the pods at the very moment at which a status was written.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import msgspec

from isthmus.api.meta import Raw, Resource
from isthmus.kube.client import Client
from isthmus.kube.errors import Unreachable
from tests.support.eventually import eventually
from tests.support.world import World, groups_of, is_ready


class Frame(NamedTuple):
    """One event of a watch: ADDED, MODIFIED or DELETED (LISTED is what was there at the beginning), and the
    object as it was then."""

    version: int
    kind: str
    what: str
    object: Raw


class Tape:
    """See the module. An async context manager; watching has begun when it is entered."""

    def __init__(self, client: Client, world: World, *resources: Resource[Any]) -> None:
        self._client = client
        self._world = world
        self._resources = resources
        self._frames: list[Frame] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for resource in self._resources:
            answer = self._world.api.call("GET", resource.path(self._world.namespace))
            version = answer.body["metadata"]["resourceVersion"]
            for item in answer.body["items"]:
                number = int(item["metadata"]["resourceVersion"])
                self._frames.append(Frame(number, resource.kind, "LISTED", item))
            self._tasks.append(asyncio.get_running_loop().create_task(self._follow(resource, version)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def frames(self) -> list[Frame]:
        """All so far, oldest first, once what is there now has been seen."""

        async def caught_up() -> None:
            seen = {(f.object["metadata"]["uid"], f.version) for f in self._frames}
            for resource in self._resources:
                for name, obj in self._world.find(resource).items():
                    metadata = obj["metadata"]
                    assert (metadata["uid"], int(metadata["resourceVersion"])) in seen, name

        await eventually(caught_up)
        return sorted(self._frames, key=lambda frame: frame.version)

    async def _follow(self, resource: Resource[Any], version: str) -> None:
        with contextlib.suppress(Unreachable):
            async with self._client.watch(
                resource, self._world.namespace, resource_version=version, timeout_s=600, bookmarks=False
            ) as stream:
                async for line in stream:
                    event = msgspec.json.decode(line)
                    found = event["object"]
                    number = int(found["metadata"]["resourceVersion"])
                    self._frames.append(Frame(number, resource.kind, event["type"], found))


def replay(frames: list[Frame]) -> Iterator[tuple[Frame, dict[str, Raw]]]:
    """Each event with all pods that there are just after it, by name."""
    pods: dict[str, Raw] = {}
    for frame in sorted(frames, key=lambda frame: (frame.what != "LISTED", frame.version)):
        if frame.kind == "Pod":
            name = frame.object["metadata"]["name"]
            if frame.what == "DELETED":
                pods.pop(name, None)
            else:
                pods[name] = frame.object
        if frame.what != "LISTED":
            yield frame, pods


def uids_of(frames: list[Frame]) -> dict[str, set[str]]:
    """All the UIDs that each pod's name has had."""
    found: dict[str, set[str]] = {}
    for frame in frames:
        if frame.kind == "Pod":
            metadata = frame.object["metadata"]
            found.setdefault(metadata["name"], set()).add(metadata["uid"])
    return found


def whole_groups(pods: dict[str, Raw], size: int) -> set[str]:
    """The groups of which `size` pods serve."""
    return {
        group for group, members in groups_of(pods.values()).items() if sum(map(is_ready, members)) >= size
    }
