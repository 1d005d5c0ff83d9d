"""What a discovery service says, taken into the Directory: lists, and the events of a watch (PW-7, PW-9).

pools.py asks and hands over what came. Until a watch's first `synced` its events are one set: all there is,
or, with `resumed`, the changes since `version`; only then they count. After it each event counts at once.
`version` is where to resume: it is empty while something was taken in that no `synced` has confirmed, so that
a watch which was cut in between begins with a list. Pure; `now` is monotonic.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

import msgspec

from isthmus.api import pools
from isthmus.api.pools import InvalidField, Pool, PoolKey, PoolList
from isthmus.router.plan.directory import Directory
from isthmus.router.plan.eventstream import Event

MAX_POOLS: Final = 20_000
CHANGES: Final = frozenset({"added", "changed"})
REMOVED: Final = "removed"
_VERSION: Final = re.compile(r"[!#-~]{1,128}")
SYNCED: Final = "synced"

_T = TypeVar("_T")


class _Synced(msgspec.Struct, frozen=True):
    version: str
    complete: bool
    resumed: bool | None = None


class _Removed(msgspec.Struct, frozen=True):
    cluster_id: str
    namespace: str
    name: str


_synced: Final = msgspec.json.Decoder(_Synced)
_removed: Final = msgspec.json.Decoder(_Removed)


class Follower:
    """See the module. One source is followed into one directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._told: dict[str, Pool] = {}
        self._set: dict[str, Pool | None] | None = None
        self._from = ""
        self.version = ""

    def listed(self, found: PoolList, now: float) -> None:
        """A whole list has come. Raises InvalidField where it is too long to be kept."""
        told = {pool.pool_id: pool for pool in found.pools}
        _check_count(told)
        self._told = told
        self._directory.replace(told.values(), complete=found.complete, now=now)
        self.version = _usable(found.version)

    def began(self) -> str:
        """A watch begins; the version from which it is to resume, empty for none."""
        self._set = {}
        self._from = self.version
        return self._from

    def take(self, event: Event, now: float) -> None:
        """One event of the watch. Raises InvalidField where it cannot be used: then the watch must end. Names
        that are not known are passed over."""
        if event.name == SYNCED:
            self._sync(_decoded(_synced, event.data), now)
        elif event.name in CHANGES:
            pool = pools.read_pool(event.data)
            self._change(pool.pool_id, pool)
        elif event.name == REMOVED:
            gone = _decoded(_removed, event.data)
            self._change(PoolKey(gone.cluster_id, gone.namespace, gone.name).pool_id, None)

    def _change(self, pool_id: str, pool: Pool | None) -> None:
        if self._set is not None:
            self._set[pool_id] = pool
            _check_count(self._set)
            return
        self.version = ""
        if pool is None:
            self._told.pop(pool_id, None)
            self._directory.remove(pool_id)
        else:
            self._told[pool_id] = pool
            _check_count(self._told)
            self._directory.put(pool)

    def _sync(self, synced: _Synced, now: float) -> None:
        changed, self._set = self._set, None
        if changed is not None:
            if self._from and synced.resumed is None:
                self.version = ""
                raise InvalidField("resumed", "is missing, so that a whole set and changes look alike")
            before = self._told if self._from and synced.resumed else {}
            after = before | changed
            self._told = {pool_id: pool for pool_id, pool in after.items() if pool is not None}
            for pool_id, pool in changed.items():
                if pool is None:
                    self._directory.remove(pool_id)
        if changed is not None or synced.complete != self._directory.complete:
            self._directory.replace(self._told.values(), complete=synced.complete, now=now)
        self.version = _usable(synced.version)


def _usable(version: str) -> str:
    """The version, where it can be put into a header; else none, so that there is always a whole list."""
    return version if _VERSION.fullmatch(version) else ""


def _check_count(found: dict[str, Pool] | dict[str, Pool | None]) -> None:
    if len(found) > MAX_POOLS:
        raise InvalidField("pools", f"must be at most {MAX_POOLS}")


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InvalidField("", f"an event cannot be read: {problem}") from None
