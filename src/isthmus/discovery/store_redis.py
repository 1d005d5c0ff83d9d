"""Registrations in Redis or Valkey, shared by any number of replicas, and there after a restart (DS-2).

The scripts of redis_scripts.py decide, on the server's clock. Each replica keeps a copy, read again every
`period_s`: the ends of leases each time, as seconds from now on its own monotonic clock, the registrations
only when the counter of changes has moved. What this replica has had accepted itself is in its copy at once.
While the server cannot be read the copy stays, and its leases stand still: nobody could have renewed them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from isthmus import logs
from isthmus.api.pools import InvalidField, PoolKey, Registration, read_registration
from isthmus.clock import Clock
from isthmus.discovery import redis_scripts as scripts
from isthmus.discovery.plan.leases import ACCEPTED, Held, Verdict
from isthmus.discovery.store import StoreUnavailable
from isthmus.errors import UserError

log = logs.get(__name__)

PERIOD_S: Final = 0.5
ANSWER_S: Final = 2.0
STALE_S: Final = 5.0
"""How long the copy may go unread before this replica says that it cannot be relied on."""
MAX_CONNECTIONS: Final = 16


class _Kept(msgspec.Struct):
    body: str


class RedisStore:
    """See the module. `url` is `redis://`, `rediss://` or `unix://`; `prefix` begins every key."""

    def __init__(
        self, url: str, prefix: str, lease_s: float, clock: Clock, *, period_s: float = PERIOD_S
    ) -> None:
        self._redis, self._errors = _connect(url)
        self._keys = [f"{prefix}{{pools}}:{name}" for name in scripts.KEYS]
        self._lease_s = lease_s
        self._clock = clock
        self._period_s = period_s
        self._count = b""
        self._read_s: float | None = None
        self._problem = "the store has not been read yet"
        self._age_s = 0.0
        self._raw: dict[bytes, tuple[bytes, Registration | None]] = {}
        self._held: dict[PoolKey, Held] = {}
        self._recent: dict[PoolKey, tuple[float, Held | None]] = {}
        self.changed: Callable[[], None] = lambda: None

    async def put(self, registration: Registration) -> Verdict:
        """See Store.put."""
        run, key = registration.relay, registration.key
        body = msgspec.json.encode(registration).decode()
        verdict, moved = await self._decide(
            scripts.PUT, _name(key), run.incarnation, f"{run.revision:019d}", body
        )
        if verdict in ACCEPTED:
            self._learn(key, Held(registration, self._clock.monotonic() + self._lease_s))
        if moved:
            self.changed()
        return verdict

    async def remove(self, key: PoolKey, incarnation: str) -> Verdict:
        """See Store.remove."""
        verdict, moved = await self._decide(scripts.REMOVE, _name(key), incarnation)
        if moved:
            self._learn(key, None)
            self.changed()
        return verdict

    def live(self) -> Sequence[Held]:
        """See Store.live."""
        if self._read_s is None:
            return ()
        now = self._clock.monotonic()
        still_s = max(0.0, now - self._read_s - STALE_S)
        return [
            Held(each.registration, each.expires_s + still_s)
            for each in self._held.values()
            if each.expires_s + still_s > now
        ]

    def problem(self) -> str | None:
        """See Store.problem."""
        if self._read_s is None or self._clock.monotonic() - self._read_s > STALE_S:
            return self._problem or "the store has not been read for a while"
        return None

    def complete(self) -> bool:
        """See Store.complete: for one lease there has been a replica, and a server, all the time."""
        return self._read_s is not None and self._age_s >= self._lease_s

    async def run(self) -> None:
        """Read, until cancelled."""
        try:
            while True:
                try:
                    await self.read()
                except StoreUnavailable as problem:
                    if str(problem) != self._problem:
                        log.warning("store not read", error=str(problem))
                    self._problem = str(problem)
                await self._clock.sleep(self._period_s)
        finally:
            await self._redis.aclose()

    async def read(self) -> None:
        """Bring the copy up to date. Raises StoreUnavailable."""
        began_s = self._clock.monotonic()
        answer = await self._ask(scripts.READ, self._count)
        now_s = self._clock.monotonic()
        try:
            now_ms, age_ms, count, ends, everything = answer
            pairs = zip(ends[::2], ends[1::2], strict=True)
            left_s = {name: (float(end) - int(now_ms)) / 1000 for name, end in pairs}
            age_s = int(age_ms) / 1000
        except (ValueError, TypeError) as problem:
            raise StoreUnavailable("the store's answer makes no sense") from problem
        moved = count != self._count
        if moved:
            self._count, self._raw = count, _registrations(everything, self._raw)
        self._held = {}
        for name, seconds in left_s.items():
            registration = self._raw.get(name, (b"", None))[1]
            if registration is not None:
                self._held[registration.key] = Held(registration, now_s + seconds)
        self._relearn(began_s)
        self._read_s, self._problem, self._age_s = now_s, "", age_s
        if moved:
            self.changed()

    def _learn(self, key: PoolKey, held: Held | None) -> None:
        """Take into the copy what the server has just accepted."""
        self._recent[key] = (self._clock.monotonic(), held)
        self._apply(key, held)

    def _relearn(self, began_s: float) -> None:
        """Of what was learnt, keep what a look that began then may have missed."""
        self._recent = {key: entry for key, entry in self._recent.items() if entry[0] >= began_s}
        for key, (_, held) in self._recent.items():
            self._apply(key, held)

    def _apply(self, key: PoolKey, held: Held | None) -> None:
        if held is None:
            self._held.pop(key, None)
        else:
            self._held[key] = held

    async def _decide(self, script: str, *arguments: str) -> tuple[Verdict, bool]:
        verdict, moved = await self._ask(script, *arguments)
        return Verdict(verdict.decode()), bool(moved)

    async def _ask(self, script: str, *arguments: str | bytes) -> Any:
        lease_ms = round(1000 * self._lease_s)
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                return await self._redis.eval(script, len(self._keys), *self._keys, lease_ms, *arguments)
        except self._errors as problem:
            text = str(problem)[:200] or type(problem).__name__
            raise StoreUnavailable(f"the store does not answer: {text}") from problem


def _connect(url: str) -> tuple[Any, tuple[type[Exception], ...]]:
    """A client that has not connected yet, and what it raises. Raises UserError."""
    try:
        from redis import asyncio as redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
        from redis.exceptions import RedisError
    except ImportError:
        raise UserError(
            "--registration-storage redis needs the package redis", hint="pip install 'isthmus[redis]'"
        ) from None
    try:
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=ANSWER_S,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError as problem:
        raise UserError(f"--redis-url: {problem}") from None
    return redis.Redis.from_pool(pool), (RedisError, OSError, TimeoutError)


def _registrations(
    everything: Sequence[bytes], known: dict[bytes, tuple[bytes, Registration | None]]
) -> dict[bytes, tuple[bytes, Registration | None]]:
    """By the names of their pools, as they were written and as they are read: None for what somebody else put
    there. What is `known` in the same words is not read again."""
    found = {}
    for name, raw in zip(everything[::2], everything[1::2], strict=True):
        entry = known.get(name)
        found[name] = entry if entry is not None and entry[0] == raw else (raw, _read(name, raw))
    return found


def _read(name: bytes, raw: bytes) -> Registration | None:
    try:
        registration = read_registration(msgspec.json.decode(raw, type=_Kept).body.encode())
    except (msgspec.DecodeError, InvalidField, UnicodeError):
        registration = None
    if registration is None or _name(registration.key).encode() != name:
        log.warning("foreign data in the store passed over", size_bytes=len(raw))
        return None
    return registration


def _name(key: PoolKey) -> str:
    return "\n".join((key.cluster_id, key.namespace, key.name))
