"""Which APIs a server has, without asking for any that it has not: an absent group is no 404 in its log.

client.Client has one and answers `served` with it. The list of groups says which versions there are; only
where the version is among them is its list of resources asked for. The former is good for GOOD_S, so that a
start that looks for five kinds asks for it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from isthmus.api.meta import Resource
from isthmus.clock import Clock
from isthmus.kube import errors

GOOD_S: Final = 1.0

T = TypeVar("T")


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct):
    versions: list[_Version]


class _Groups(msgspec.Struct):
    groups: list[_Group]


class _ApiResource(msgspec.Struct):
    name: str


class _ApiResources(msgspec.Struct):
    resources: list[_ApiResource]


_groups: Final = msgspec.json.Decoder(_Groups)
_resources: Final = msgspec.json.Decoder(_ApiResources)


class Discovery:
    """See the module. `get` returns the body at a path."""

    def __init__(self, get: Callable[[str], Awaitable[bytes]], clock: Clock) -> None:
        self._get = get
        self._clock = clock
        self._lock = asyncio.Lock()
        self._versions: frozenset[str] = frozenset()
        self._until = float("-inf")

    async def served(self, resource: Resource[Any]) -> bool:
        """Whether the server has the resource in that group and version. Raises what went wrong, except
        NotFound, which says that it has not."""
        if resource.group and resource.api_version not in await self._known():
            return False
        path = f"{'/apis' if resource.group else '/api'}/{resource.api_version}"
        try:
            body = await self._get(path)
        except errors.NotFound:
            return False
        return any(r.name == resource.plural for r in _decode(_resources, body, path).resources)

    async def _known(self) -> frozenset[str]:
        """Every group/version."""
        async with self._lock:
            if self._clock.monotonic() >= self._until:
                found = _decode(_groups, await self._get("/apis"), "/apis").groups
                self._versions = frozenset(v.group_version for group in found for v in group.versions)
                self._until = self._clock.monotonic() + GOOD_S
            return self._versions


def _decode(decoder: msgspec.json.Decoder[T], body: bytes, path: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise errors.WrongAnswer(f"GET {path}: {error}") from error
