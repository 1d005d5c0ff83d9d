"""A stand-in for the API server's client in tests of the pool relays' controller: its protocol, in short.

It notes each request, answers with made-up metadata, and raises what a test puts into `refuse`. It stores
nothing: what a cache shows next is the test's to say.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from isthmus.api.meta import Object, Raw, Resource
from isthmus.kube.client import PatchKind, Written
from isthmus.kube.errors import NotFound


class Call(NamedTuple):
    """One request: the verb, the kind and version, the name, and what else it said."""

    verb: str
    kind: str
    name: str
    version: str = ""
    said: Any = None


class FakeClient:
    """See the module. `refuse`: (verb, name or kind) to the error that such requests raise; `there`: what
    `get` finds by kind."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.refuse: dict[tuple[str, str], Exception] = {}
        self.there: dict[str, Object] = {}
        self.unchanged: set[str] = set()
        self._versions = itertools.count(1000)

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        """Verb, kind and name of what was written, the status' too."""
        return [(call.verb, call.kind, call.name) for call in self.calls if call.verb != "get"]

    async def get(self, resource: Resource[Any], namespace: str, name: str) -> Any:
        """Finds what is `there`."""
        self._call("get", resource, name)
        if resource.kind not in self.there:
            raise NotFound(404)
        return self.there[resource.kind]

    async def create(self, resource: Resource[Any], namespace: str, body: Raw) -> Written:
        """Accepted, unless refused."""
        return self._call("create", resource, body["metadata"]["name"], body)

    async def apply(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        body: Raw,
        *,
        field_manager: str,
        force: bool,
    ) -> Written:
        """Accepted, unless refused; the same version where nothing is to change."""
        written = self._call("apply", resource, name, (body, field_manager, force))
        if name in self.unchanged:
            return Written(name, namespace, body["metadata"]["uid"], body["metadata"]["resourceVersion"])
        return written

    async def patch(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        body: Any,
        *,
        kind: PatchKind,
        subresource: str = "",
    ) -> Written:
        """Accepted, unless refused."""
        return self._call(f"patch{subresource and '/'}{subresource}", resource, name, body)

    async def delete(
        self, resource: Resource[Any], namespace: str, name: str, *, uid: str, resource_version: str
    ) -> None:
        """Accepted, unless refused."""
        self._call("delete", resource, name, (uid, resource_version))

    def _call(self, verb: str, resource: Resource[Any], name: str, said: Any = None) -> Written:
        self.calls.append(Call(verb, resource.kind, name, resource.version, said))
        error = self.refuse.get((verb, name)) or self.refuse.get((verb, resource.kind))
        if error is not None:
            raise error
        return Written(name, "serving", f"{name}-new", str(next(self._versions)))
