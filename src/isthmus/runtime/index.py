"""One index over a cache: from a value that a function finds in an object to the objects that have it.

runtime/cache.py owns its indexes and tells them of every change before any subscriber hears of it. The
function must be pure: it is asked again about the old object, instead of remembering what it said, which
keeps 20,000 pods at one dictionary slot each. No I/O, no logging; the cache does both.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from isthmus.api.meta import Key, Object

T = TypeVar("T", bound=Object)

NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class Index(Generic[T]):
    """Buckets of objects by value; an object may be in several or none. Empty buckets vanish."""

    __slots__ = ("_buckets", "_fn")

    def __init__(self, fn: Callable[[T], Iterable[Hashable]]) -> None:
        self._fn = fn
        self._buckets: dict[Hashable, dict[Key, T]] = {}

    def __len__(self) -> int:
        """How many values have at least one object."""
        return len(self._buckets)

    def of(self, value: Hashable) -> Mapping[Key, T]:
        """The objects with that value: a read-only live view. Do not keep it over an await: the bucket of a
        value that no object has for a while is another one afterwards."""
        bucket = self._buckets.get(value)
        return NOTHING if bucket is None else MappingProxyType(bucket)

    def change(self, key: Key, old: T | None, new: T | None) -> None:
        """Move `key` from where `old` was to where `new` belongs. Raises what the function raises for `new`;
        the object is then in no bucket."""
        before = tuple(self._fn(old)) if old is not None else ()
        try:
            after = tuple(self._fn(new)) if new is not None else ()
        except BaseException:
            self._leave(key, before)
            raise
        if before != after:
            self._leave(key, before)
        buckets = self._buckets
        for value in after:
            bucket = buckets.get(value)
            if bucket is None:
                buckets[value] = {key: new}  # type: ignore[dict-item] # `after` is empty without a new object
            else:
                bucket[key] = new  # type: ignore[assignment] # as above

    def _leave(self, key: Key, values: tuple[Hashable, ...]) -> None:
        for value in values:
            bucket = self._buckets.get(value)
            if bucket is not None:
                bucket.pop(key, None)
                if not bucket:
                    del self._buckets[value]
