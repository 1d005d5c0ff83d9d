"""Registrations in Redis or Valkey, shared by any number of replicas, and there after a restart (DS-2).

The rules of plan/leases.py run as one script in the server, so two replicas never disagree; leases are
counted on the server's clock alone, so no two machines' clocks are compared. Each replica keeps a copy, read
again every `period_s`: the ends of leases each time, the registrations only when the counter of changes has
moved. Keys: a hash of registrations, a sorted set of the ends of leases, a hash of replaced incarnations,
the counter, and the time at which the first replica came, from which completeness counts (DS-3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from isthmus import logs
from isthmus.api.pools import InvalidField, PoolKey, Registration, read_registration
from isthmus.clock import Clock
from isthmus.discovery.plan.leases import KEPT_INCARNATIONS, MAX_POOLS, Held, Verdict
from isthmus.discovery.store import StoreUnavailable
from isthmus.errors import UserError

log = logs.get(__name__)

PERIOD_S: Final = 0.5
ANSWER_S: Final = 2.0
STALE_S: Final = 5.0
"""How long the copy may go unread before this replica says that it cannot be relied on."""
WEEK_MS: Final = 7 * 86_400_000

_PUT: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local key, body, inc, rev, lease = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
redis.call('SET', KEYS[5], now, 'NX')
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - tonumber(ARGV[8]), 'LIMIT', 0, 100)
for _, gone in ipairs(old) do
  redis.call('ZREM', KEYS[2], gone); redis.call('HDEL', KEYS[1], gone); redis.call('HDEL', KEYS[3], gone)
end
local ends = tonumber(redis.call('ZSCORE', KEYS[2], key) or '0')
local live = ends > now
local raw = redis.call('HGET', KEYS[1], key)
local same, renewed = false, false
if raw then
  local had = cjson.decode(raw)
  if had.inc == inc then
    if rev < had.rev then return 'stale_revision' end
    same = had.body == body
    renewed = live
  else
    local replaced = cjson.decode(redis.call('HGET', KEYS[3], key) or '[]')
    if live then
      for _, one in ipairs(replaced) do if one == inc then return 'stale_incarnation' end end
    end
    table.insert(replaced, had.inc)
    while #replaced > tonumber(ARGV[6]) do table.remove(replaced, 1) end
    redis.call('HSET', KEYS[3], key, cjson.encode(replaced))
  end
elseif redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[7]) then
  return 'full'
end
redis.call('ZADD', KEYS[2], now + lease, key)
if not same then redis.call('HSET', KEYS[1], key, cjson.encode({inc = inc, rev = rev, body = body})) end
if not (same and live) then redis.call('INCR', KEYS[4]) end
return renewed and 'renewed' or 'new'
"""
_REMOVE: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local key, inc = ARGV[1], ARGV[2]
local raw = redis.call('HGET', KEYS[1], key)
if not raw or tonumber(redis.call('ZSCORE', KEYS[2], key) or '0') <= now then return 'unknown' end
local had = cjson.decode(raw)
if inc ~= '' and had.inc ~= inc then return 'other_incarnation' end
local replaced = cjson.decode(redis.call('HGET', KEYS[3], key) or '[]')
table.insert(replaced, had.inc)
while #replaced > tonumber(ARGV[3]) do table.remove(replaced, 1) end
redis.call('HSET', KEYS[3], key, cjson.encode(replaced))
redis.call('HDEL', KEYS[1], key); redis.call('ZREM', KEYS[2], key); redis.call('INCR', KEYS[4])
return 'removed'
"""
_READ: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('SET', KEYS[5], now, 'NX')
local ends = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'WITHSCORES')
local count = redis.call('GET', KEYS[4]) or '0'
local all = {}
if count ~= ARGV[1] then all = redis.call('HGETALL', KEYS[1]) end
return {now, redis.call('GET', KEYS[5]), count, ends, all}
"""


class _Kept(msgspec.Struct):
    body: str


class RedisStore:
    """See the module. `url` is `redis://`, `rediss://` or `unix://`; `prefix` begins every key."""

    def __init__(
        self, url: str, prefix: str, lease_s: float, clock: Clock, *, period_s: float = PERIOD_S
    ) -> None:
        try:
            from redis import asyncio as redis
            from redis.exceptions import RedisError
        except ImportError:
            raise UserError(
                "--registration-storage redis needs the package redis", hint="pip install 'isthmus[redis]'"
            ) from None
        try:
            self._redis: Any = redis.from_url(url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S)
        except ValueError as problem:
            raise UserError(f"--redis-url: {problem}") from None
        self._errors: tuple[type[Exception], ...] = (RedisError, OSError, TimeoutError)
        names = ("registrations", "leases", "replaced", "changes", "born")
        self._keys = [f"{prefix}{{pools}}:{name}" for name in names]
        self._lease_ms = round(1000 * lease_s)
        self._clock = clock
        self._period_s = period_s
        self._count = b""
        self._read_s: float | None = None
        self._problem = "the store has not been read yet"
        self._age_ms = 0
        self._registered: dict[PoolKey, Registration] = {}
        self._ends: dict[PoolKey, float] = {}
        self.changed: Callable[[], None] = lambda: None

    async def put(self, registration: Registration) -> Verdict:
        """See Store.put."""
        run, body = registration.relay, msgspec.json.encode(registration).decode()
        arguments = [
            _name(registration.key), body, run.incarnation, run.revision,
            self._lease_ms, KEPT_INCARNATIONS, MAX_POOLS, WEEK_MS,
        ]  # fmt: skip
        return await self._decide(_PUT, arguments)

    async def remove(self, key: PoolKey, incarnation: str) -> Verdict:
        """See Store.remove."""
        return await self._decide(_REMOVE, [_name(key), incarnation, KEPT_INCARNATIONS])

    def live(self) -> Sequence[Held]:
        """See Store.live."""
        now = self._clock.monotonic()
        return tuple(
            Held(self._registered[key], end)
            for key, end in self._ends.items()
            if end > now and key in self._registered
        )

    def problem(self) -> str | None:
        """See Store.problem."""
        if self._read_s is None or self._clock.monotonic() - self._read_s > STALE_S:
            return self._problem or "the store has not been read for a while"
        return None

    def complete(self) -> bool:
        """See Store.complete: one lease after the first replica came to this server's data."""
        return self._read_s is not None and self._age_ms >= self._lease_ms

    async def run(self) -> None:
        """Read, until cancelled. While the server is away the copy stays, until its leases end."""
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
        now_ms, born_ms, count, ends, everything = await self._ask(_READ, [self._count])
        now = self._clock.monotonic()
        if everything or count != self._count:
            self._registered = dict(_registrations(everything))
        pairs = zip(ends[::2], ends[1::2], strict=True)
        before = {key for key in self._ends if key in self._registered}
        self._ends = {_key(name): now + (float(end) - int(now_ms)) / 1000 for name, end in pairs}
        self._age_ms = int(now_ms) - int(born_ms)
        self._read_s, self._problem = now, ""
        if count != self._count or before != {key for key in self._ends if key in self._registered}:
            self._count = count
            self.changed()

    async def _decide(self, script: str, arguments: list[Any]) -> Verdict:
        verdict = Verdict((await self._ask(script, arguments)).decode())
        if verdict in (Verdict.NEW, Verdict.RENEWED, Verdict.REMOVED) and verdict is not Verdict.RENEWED:
            await self.read()  # so that who has just registered finds itself in the list
        return verdict

    async def _ask(self, script: str, arguments: list[Any]) -> Any:
        try:
            async with asyncio.timeout(2 * ANSWER_S):
                return await self._redis.eval(script, len(self._keys), *self._keys, *arguments)
        except self._errors as problem:
            text = str(problem)[:200] or type(problem).__name__
            raise StoreUnavailable(f"the store does not answer: {text}") from problem


def _registrations(everything: Sequence[bytes]) -> list[tuple[PoolKey, Registration]]:
    """Those that can be read; what somebody else put there is passed over."""
    found = []
    for raw in everything[1::2]:
        try:
            registration = read_registration(msgspec.json.decode(raw, type=_Kept).body.encode())
        except (msgspec.DecodeError, InvalidField, UnicodeError):
            log.warning("foreign data in the store passed over")
            continue
        found.append((registration.key, registration))
    return found


def _name(key: PoolKey) -> str:
    return "\n".join((key.cluster_id, key.namespace, key.name))


def _key(name: bytes) -> PoolKey:
    parts = name.decode("utf-8", "replace").split("\n")
    return PoolKey(*parts) if len(parts) == 3 else PoolKey(name.decode("utf-8", "replace"), "", "")
