"""The rules of plan/leases.py as scripts that run inside Redis, one at a time, for all replicas alike.

store_redis.py runs them. Time is the server's alone. What other programs have put under the keys is passed
over, or overwritten where it is in the way; a key of another type is an error that the server names.

Leases do not run on while nobody could renew them: each script notes the time, and where more than a third of
a lease has passed since the last note (the server or all replicas were away) or the server's clock was set
back, the ends of the leases that held then are moved by as much, and completeness counts from now (DS-3).
After more than FORGET_LEASES the registrations of then are not believed any more.
"""

from __future__ import annotations

from typing import Final

from isthmus.discovery.plan.leases import FORGET_LEASES, KEPT_INCARNATIONS, MAX_POOLS

KEYS: Final = ("registrations", "leases", "replaced", "changes", "born", "seen")
"""A hash of registrations, a sorted set of the ends of leases, a hash of replaced incarnations, the number of
changes, when completeness began to count, and when a script last ran."""
WEEK_MS: Final = 7 * 86_400_000

_BEGIN: Final = f"""
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local lease = tonumber(ARGV[1])
local born, seen = tonumber(redis.call('GET', KEYS[5]) or ''), tonumber(redis.call('GET', KEYS[6]) or '')
local gap = seen and now - seen
if not born or not gap or math.abs(gap) > lease / 3 then
  if gap and gap < {FORGET_LEASES} * lease then
    local held = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. seen, '+inf', 'WITHSCORES')
    for i = 1, #held, 2 do redis.call('ZADD', KEYS[2], tonumber(held[i + 1]) + gap, held[i]) end
  end
  born = now
  redis.call('SET', KEYS[5], born, 'PX', {WEEK_MS})
end
redis.call('SET', KEYS[6], now, 'PX', {WEEK_MS})
local function decoded(raw)
  local good, value = pcall(cjson.decode, raw or '')
  return good and type(value) == 'table' and value or nil
end
local function registered(key)
  local had = decoded(redis.call('HGET', KEYS[1], key))
  local good = had and type(had.inc) == 'string' and type(had.rev) == 'string' and type(had.body) == 'string'
  return good and had or nil
end
local function forget(key, incarnation)
  local replaced = decoded(redis.call('HGET', KEYS[3], key)) or {{}}
  table.insert(replaced, incarnation)
  while #replaced > {KEPT_INCARNATIONS} do table.remove(replaced, 1) end
  redis.call('HSET', KEYS[3], key, cjson.encode(replaced))
end
local function changed()
  if not tonumber(redis.call('GET', KEYS[4]) or '0') then redis.call('DEL', KEYS[4]) end
  redis.call('INCR', KEYS[4])
end
"""
PUT: Final = (
    _BEGIN
    + f"""
local key, inc, rev, body = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local function purge(before)
  local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', before, 'LIMIT', 0, 1000)
  for _, gone in ipairs(old) do
    redis.call('ZREM', KEYS[2], gone); redis.call('HDEL', KEYS[1], gone); redis.call('HDEL', KEYS[3], gone)
  end
end
purge(now - {WEEK_MS})
local live = tonumber(redis.call('ZSCORE', KEYS[2], key) or '0') > now
local had = registered(key)
if not had and redis.call('HLEN', KEYS[1]) >= {MAX_POOLS} then
  purge(now - {FORGET_LEASES} * lease)
  if redis.call('HLEN', KEYS[1]) >= {MAX_POOLS} then return {{'full', 0}} end
end
if had and had.inc == inc then
  if rev < had.rev then return {{'stale_revision', 0}} end
elseif live then
  for _, one in ipairs(decoded(redis.call('HGET', KEYS[3], key)) or {{}}) do
    if one == inc then return {{'stale_incarnation', 0}} end
  end
end
if had and had.inc ~= inc then forget(key, had.inc) end
redis.call('ZADD', KEYS[2], now + lease, key)
local same = had and had.body == body
if not same then redis.call('HSET', KEYS[1], key, cjson.encode({{inc = inc, rev = rev, body = body}})) end
if not (same and live) then changed() end
for i = 1, 4 do redis.call('PEXPIRE', KEYS[i], {WEEK_MS}) end
return {{live and had and had.inc == inc and 'renewed' or 'new', same and live and 0 or 1}}
"""
)
"""ARGV: lease in ms, key, incarnation, revision as 19 digits, registration. Answers verdict and whether the
list may be another by it."""
REMOVE: Final = (
    _BEGIN
    + """
local key, inc = ARGV[2], ARGV[3]
local had = registered(key)
if not had or tonumber(redis.call('ZSCORE', KEYS[2], key) or '0') <= now then return {'unknown', 0} end
if inc ~= '' and had.inc ~= inc then return {'other_incarnation', 0} end
forget(key, had.inc)
redis.call('HDEL', KEYS[1], key)
redis.call('ZADD', KEYS[2], now, key)
changed()
return {'removed', 1}
"""
)
"""ARGV: lease, key, incarnation or nothing. The end of the lease stays, for the purge to find the rest by."""
READ: Final = (
    _BEGIN
    + """
local count = redis.call('GET', KEYS[4]) or '0'
local ends = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'WITHSCORES')
return {now, now - born, count, ends, count ~= ARGV[2] and redis.call('HGETALL', KEYS[1]) or {}}
"""
)
"""ARGV: lease, the count of changes that the reader has. Answers the time, how long ago completeness began to
count, the count, the leases that hold and, where the count is another, all registrations."""
