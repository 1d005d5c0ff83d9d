"""Read your writes: a reconcile must not decide on a cache that has not yet seen what the last one wrote.

A controller notes each write with the key that it reconciles, and asks `satisfied` before it plans for that
key again. A create or patch has been seen once its resource's cache has reached the resourceVersion that the
answer carried (they are comparable integers, KEP-5504); a delete, once the cache no longer holds that UID
alive. A write that is not seen by its deadline counts as seen, so a lost event delays a key and never blocks
it. No I/O, nothing waits; memory is bounded by the keys with unseen writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from isthmus import logs
from isthmus.api.meta import Key
from isthmus.clock import Clock
from isthmus.runtime.cache import AnyCache, parse_version
from isthmus.runtime.metrics import Metrics

log = logs.get(__name__)

DEADLINE_S: Final = 60.0


class Seen(Protocol):
    """What is asked of a cache: how far is the watch that covers this namespace?"""

    def seen(self, namespace: str) -> int:
        """The highest resourceVersion that it has seen."""


class _Pending:
    __slots__ = ("deadline", "deletes", "writes")

    def __init__(self) -> None:
        self.deadline = 0.0
        self.writes: dict[tuple[str, str], int] = {}  # (resource, namespace) -> resourceVersion
        self.deletes: dict[tuple[int, Key], tuple[AnyCache, str]] = {}  # (which cache, object) -> cache, UID


class Expectations:
    """See the module. A key's deadline is `deadline_s` seconds after its last write. `controller` tells whose
    keys these are in the metrics: each controller has expectations of its own, since keys of two may be
    equal."""

    def __init__(
        self, clock: Clock, metrics: Metrics, *, deadline_s: float = DEADLINE_S, controller: str = ""
    ) -> None:
        self._clock = clock
        self._deadline_s = deadline_s
        self._pending: dict[Key, _Pending] = {}
        self._expired = metrics.counter(
            "isthmus_expectations_expired_total", "Writes that no watch showed in time."
        )
        metrics.read_gauge(
            "isthmus_expectations_pending",
            "Keys with writes not seen yet.",
            lambda: float(len(self._pending)),
            controller=controller,
        )

    def __len__(self) -> int:
        """Keys with writes that may not have been seen."""
        return len(self._pending)

    def wrote(
        self, key: Key, resource_name: str, resource_version: str | int, *, namespace: str | None = None
    ) -> None:
        """While reconciling `key`, an object was created or patched; the answer had this resourceVersion.

        `namespace` is the object's, `key`'s own by default.
        """
        version = resource_version if isinstance(resource_version, int) else parse_version(resource_version)
        place = (resource_name, key[0] if namespace is None else namespace)
        pending = self._note(key)
        pending.writes[place] = max(version, pending.writes.get(place, 0))

    def deleted(self, key: Key, cache: AnyCache, obj_key: Key, uid: str) -> None:
        """While reconciling `key`, the object `obj_key` with this UID was asked to be deleted."""
        self._note(key).deletes[id(cache), obj_key] = (cache, uid)

    def satisfied(self, key: Key, caches: Mapping[str, Seen]) -> bool:
        """Whether the caches (by resource name) show every write for `key`, or its deadline has passed."""
        pending = self._pending.get(key)
        if pending is None:
            return True
        writes, deletes = pending.writes, pending.deletes
        for place in [
            place for place, version in writes.items() if caches[place[0]].seen(place[1]) >= version
        ]:
            del writes[place]
        for what in [what for what, (cache, uid) in deletes.items() if _is_gone(cache, what[1], uid)]:
            del deletes[what]
        if writes or deletes:
            if self._clock.monotonic() < pending.deadline:
                return False
            unseen = len(writes) + len(deletes)
            self._expired.inc(unseen)
            log.warning("no watch showed our own writes in time; going on", key=key, unseen=unseen)
        del self._pending[key]
        return True

    def remaining_s(self, key: Key) -> float:
        """Seconds until `key` counts as satisfied in any case; 0 if it does. Reconcile returns
        Again(this)."""
        pending = self._pending.get(key)
        return max(0.0, pending.deadline - self._clock.monotonic()) if pending is not None else 0.0

    def forget(self, key: Key) -> None:
        """The object of `key` is gone: so is what was expected for it."""
        self._pending.pop(key, None)

    def _note(self, key: Key) -> _Pending:
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending()
        pending.deadline = self._clock.monotonic() + self._deadline_s
        return pending


def _is_gone(cache: AnyCache, obj_key: Key, uid: str) -> bool:
    obj = cache.get(obj_key)
    return obj is None or obj.metadata.uid != uid or obj.metadata.terminating
