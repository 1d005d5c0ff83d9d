"""Object metadata as far as Isthmus reads it: decoded, trimmed, frozen.

kube/client.py decodes into these; caches hold them; planners compare them. They are never written back: what
is written is built from scratch (server-side apply or a patch of the fields that Isthmus owns).
managedFields, finalizers and the rest are dropped by the decoder, which is what keeps 20,000 pods small.
"""

from __future__ import annotations

from sys import intern
from typing import Any, Generic, TypeVar

import msgspec


class Frozen(msgspec.Struct, frozen=True, rename="camel", gc=False, kw_only=True):
    """Base of every decoded object: camelCase on the wire, immutable, unknown fields ignored.

    Subclasses repeat `frozen=True, kw_only=True`, which type checkers want. `gc=False`: trees of these hold
    no cycles, and the garbage collector need not walk 20,000 of them.
    """


class OwnerReference(Frozen, frozen=True, kw_only=True):
    """metadata.ownerReferences[]."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


def shared_owner(owner: OwnerReference) -> OwnerReference:
    """The same reference, its texts shared with those of everything else that has this owner."""
    return OwnerReference(
        api_version=intern(owner.api_version),
        kind=intern(owner.kind),
        name=intern(owner.name),
        uid=intern(owner.uid),
        controller=owner.controller,
        block_owner_deletion=owner.block_owner_deletion,
    )


class ObjectMeta(Frozen, frozen=True, kw_only=True):
    """metadata. Times stay RFC 3339 text: they are compared and shown more often than computed with."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def terminating(self) -> bool:
        """Whether deletion was asked for."""
        return self.deletion_timestamp is not None

    def controller(self) -> OwnerReference | None:
        """The one owner reference with controller=true, if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Object(Frozen, frozen=True, kw_only=True):
    """The least that every cached object has. Kinds subclass it and add the fields that are read."""

    metadata: ObjectMeta

    @property
    def key(self) -> Key:
        """(namespace, name); the namespace is empty for cluster-scoped objects."""
        return (self.metadata.namespace, self.metadata.name)


Key = tuple[str, str]
"""(namespace, name) of an object; the namespace is empty for cluster-scoped ones."""

T = TypeVar("T", bound=Object)


class Resource(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One API resource: where it lives and what it is decoded into.

    `type` is the Object subclass that lists, watches and gets of it are decoded into; two features may have
    two Resources for pods, each reading its own fields.
    """

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`group/version`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """`plural.group`, or `plural` for the core group: the name people know from kubectl."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, the object or its subresource.

        An empty namespace of a namespaced resource means all namespaces. Raises ValueError for a namespace on
        a cluster-scoped resource.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.name} is cluster-scoped; got namespace {namespace!r}")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


Raw = dict[str, Any]
"""Untyped JSON, always in variables named raw_ or built to be sent."""
