"""What the API server says, held in memory: every watch event in, a lookup or a Change out.

kube/watch.py feeds it (it is a Sink); stores and controllers subscribe to its changes and read it. It keeps:
an object that was replaced under its name is a delete and then an add; what a list no longer has is deleted;
an older event never overwrites a newer object; indexes are right before a subscriber is called. Until every
source has been listed once it is not complete, and nobody may conclude anything from what it lacks.
It does no I/O, never waits (except wait_complete) and copies no object. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, ValuesView
from typing import Any, Generic, TypeVar

import msgspec

from isthmus import logs
from isthmus.api.meta import Key, Object, Resource
from isthmus.runtime.index import Index
from isthmus.runtime.metrics import Metrics

T = TypeVar("T", bound=Object)

log = logs.get(__name__)


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One object before and after. `old` is None for an add, `new` for a delete; never both."""

    old: T | None
    new: T | None

    @property
    def object(self) -> T:
        """The newer of the two."""
        return self.new if self.new is not None else self.old  # type: ignore[return-value] # never both None

    @property
    def key(self) -> Key:
        """(namespace, name) of the object."""
        return self.object.key


def parse_version(text: str) -> int:
    """A resourceVersion as the integer it is (KEP-5504); 0 where a server of another kind made it."""
    try:
        return int(text)
    except ValueError:
        return 0


class Cache(Generic[T]):
    """All objects of one resource. `sources` names the watches that feed it: one per namespace watched, or
    "" for all namespaces; their objects must not overlap, except for the moment in which one moves over.

    `name` tells two caches of the same resource apart in metrics and checks; it is the resource's by default.
    """

    def __init__(
        self, resource: Resource[T], *, sources: Sequence[str] = ("",), metrics: Metrics, name: str = ""
    ) -> None:
        self.resource = resource
        self.name = name or resource.name
        self._objects: dict[Key, T] = {}
        self._versions: dict[str, int] = dict.fromkeys(sources, 0)
        self._missing: dict[str, None] = dict.fromkeys(sources)
        self._absent: set[str] = set()
        self._owner: dict[Key, str] | None = {} if len(sources) > 1 else None
        self._indexes: dict[str, Index[T]] = {}
        self._subscribers: list[Callable[[Change[T]], None]] = []
        self._complete = asyncio.Event()
        metrics.read_gauge(
            "isthmus_cache_objects",
            "Objects held in the cache.",
            lambda: float(len(self._objects)),
            resource=self.name,
        )
        self._errors = metrics.counter(
            "isthmus_cache_subscriber_errors_total",
            "Exceptions thrown by what listens to the cache, an index function among them.",
            ["resource"],
        ).labels(self.name)

    # Reading

    def get(self, key: Key) -> T | None:
        """The object of that (namespace, name), or None."""
        return self._objects.get(key)

    def values(self) -> ValuesView[T]:
        """All objects: a live view, not to be kept over an await."""
        return self._objects.values()

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def complete(self) -> bool:
        """Whether every source has been listed at least once, or is known to have no API."""
        return not self._missing

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the watches that feed it."""
        return tuple(self._versions)

    def missing_sources(self) -> tuple[str, ...]:
        """The sources that have not been listed yet."""
        return tuple(self._missing)

    async def wait_complete(self) -> None:
        """Return once the cache is complete."""
        while self._missing:
            await self._complete.wait()

    def resource_version(self, source: str = "") -> int:
        """How far this source is: the highest resourceVersion of its list, events and bookmarks. Goes back
        only where a list did (storage restored from a backup). Raises KeyError for an unknown source."""
        return self._versions[source]

    def seen(self, namespace: str) -> int:
        """resource_version of the source that watches this namespace, for a read-your-writes check; where
        there is no API, nothing is left to be seen."""
        versions = self._versions
        source = namespace if namespace in versions else ""
        return sys.maxsize if source in self._absent else versions.get(source, 0)

    def add_index(self, name: str, fn: Callable[[T], Iterable[Hashable]]) -> None:
        """Keep objects findable by what the pure function `fn` yields for them. Raises ValueError for a name
        that is taken."""
        if name in self._indexes:
            raise ValueError(f"cache {self.name} already has an index {name}")
        index = self._indexes[name] = Index(fn)
        for key, obj in self._objects.items():
            self._index(index, key, None, obj)

    def by_index(self, name: str, value: Hashable) -> Mapping[Key, T]:
        """The objects for which the index function yielded `value`: a live read-only view, empty if none, not
        to be kept over an await. Raises KeyError for an unknown index."""
        return self._indexes[name].of(value)

    def subscribe(self, fn: Callable[[Change[T]], None]) -> None:
        """Call `fn` on the loop with each change from now on, after the cache and its indexes have it.

        It must return fast. What it raises is logged and counted, and stops neither the others nor the watch.
        """
        self._subscribers.append(fn)

    # Being fed (kube.watch.Sink)

    def replace(self, source: str, items: list[T], resource_version: str) -> None:
        """The full content of `source`, as a list returned it. What it lacks is deleted first. Unlike an
        event it is believed whatever its resourceVersion: storage may have been restored from a backup."""
        owner = self._owner
        if self._objects:
            listed = {obj.key for obj in items}
            for key in [key for key in self._objects if key not in listed]:
                if owner is None or owner.get(key) == source:
                    self._put(key, self._objects[key], None)
        for obj in items:
            key = obj.key
            old = self._objects.get(key)
            if old is not None and old.metadata.uid != obj.metadata.uid:
                self._put(key, old, None)
                old = None
            if owner is not None:
                owner[key] = source
            if old is None or old.metadata.resource_version != obj.metadata.resource_version:
                self._put(key, old, obj)
        self._versions[source] = parse_version(resource_version)
        self._absent.discard(source)
        self._found(source)

    def upsert(self, source: str, obj: T) -> None:
        """One object was added or modified. Ignored where the source has already seen a later event, or where
        what is held of the same UID is not older. Raises KeyError for an unknown source."""
        meta = obj.metadata
        version = parse_version(meta.resource_version)
        if self._is_late(source, version):
            return
        key = (meta.namespace, meta.name)
        old = self._objects.get(key)
        if old is not None:
            if old.metadata.uid != meta.uid:
                self._put(key, old, None)
                old = None
            elif version and version <= parse_version(old.metadata.resource_version):
                return
        if self._owner is not None:
            self._owner[key] = source
        self._put(key, old, obj)

    def remove(self, source: str, obj: T) -> None:
        """One object was deleted, or no longer matches the selector. Ignored where the source has already
        seen a later event, where another UID or a newer state is held, and where another source has taken the
        object over. Raises KeyError for an unknown source."""
        version = parse_version(obj.metadata.resource_version)
        if self._is_late(source, version):
            return
        key = obj.key
        old = self._objects.get(key)
        if old is None or old.metadata.uid != obj.metadata.uid:
            return
        if version and version < parse_version(old.metadata.resource_version):
            return
        if self._owner is None or self._owner.get(key) == source:
            self._put(key, old, None)

    def progress(self, source: str, resource_version: str) -> None:
        """The source has seen everything up to `resource_version` (a bookmark)."""
        self._is_late(source, parse_version(resource_version))

    # APIs that may not be there

    @property
    def absent(self) -> bool:
        """Whether the API is known not to be served, so that there are none rather than none known."""
        return len(self._absent) == len(self._versions)

    def mark_absent(self, source: str = "") -> None:
        """The API server says that it does not serve this resource: its objects are gone, and the source
        counts as listed. Whoever starts a watch afterwards calls mark_unknown first."""
        self.replace(source, [], "0")
        self._absent.add(source)

    def mark_unknown(self, source: str = "") -> None:
        """The source has to be listed (again) before the cache is complete."""
        self._absent.discard(source)
        self._missing[source] = None
        self._complete.clear()

    # Inside

    def _is_late(self, source: str, version: int) -> bool:
        """Whether the source has seen a later event than one of this version, which is noted otherwise."""
        seen = self._versions[source]
        if version > seen:
            self._versions[source] = version
        return 0 < version < seen

    def _found(self, source: str) -> None:
        if source in self._missing:
            del self._missing[source]
            if not self._missing:
                self._complete.set()
                log.debug("cache complete", resource=self.name, objects=len(self._objects))

    def _put(self, key: Key, old: T | None, new: T | None) -> None:
        if new is not None:
            self._objects[key] = new
        else:
            del self._objects[key]
            if self._owner is not None:
                self._owner.pop(key, None)
        for index in self._indexes.values():
            self._index(index, key, old, new)
        change = Change(old, new)
        for subscriber in self._subscribers:
            try:
                subscriber(change)
            except Exception:
                self._failed("a subscriber failed; what it derives from this object may be stale", key)

    def _index(self, index: Index[T], key: Key, old: T | None, new: T | None) -> None:
        try:
            index.change(key, old, new)
        except Exception:
            self._failed("an index function failed; the object cannot be found by it", key)

    def _failed(self, message: str, key: Key) -> None:
        self._errors.inc()
        log.error(message, resource=self.name, key=key, exc_info=True)


AnyCache = Cache[Any]
"""A cache of whatever resource, for those who only ask how complete or how far it is."""
