"""The pools of a discovery service or of a file, into the Directory, for as long as the router runs.

`Discovered.run` reads the whole list, then follows the watch, and begins anew with a list whenever that ends
(PW-7, PW-9). `Filed.run` looks at its file each second and takes in what changed. Both keep what they had
while they hear nothing, or something that makes no sense: the Directory decides what a list may take away
(PW-8). Delays double up to MAX_BACKOFF_S and are spread by chance, so that many routers do not come back
together.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from isthmus import logs
from isthmus.api import pools
from isthmus.api.pools import InvalidField, Pool, PoolKey
from isthmus.clock import Clock
from isthmus.errors import IsthmusError, UserError, WorldError
from isthmus.kube.proxies import proxy_for
from isthmus.router.plan.directory import Directory

log = logs.get(__name__)

FIRST_BACKOFF_S: Final = 0.2
MAX_BACKOFF_S: Final = 10.0
ANSWER_S: Final = 15.0
SILENCE_S: Final = 45.0
"""Three of the watch's heartbeats: a watch that says nothing for so long is dead."""
RELIST_S: Final = 300.0
"""How long one watch is followed before a whole list is read again."""
MAX_LIST_BYTES: Final = 64 << 20
MAX_EVENT_BYTES: Final = 2 << 20
FILE_PERIOD_S: Final = 1.0
MAX_FILE_BYTES: Final = 8 << 20


class Heard:
    """When the source was last heard of, on the clock's monotonic time, and what went wrong since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at: float | None = None
        self.problem = ""

    def now(self) -> None:
        """Something sensible came."""
        self._at = self._clock.monotonic()
        self.problem = ""

    def age_s(self) -> float:
        """Seconds since then; -1 before the first time."""
        return -1.0 if self._at is None else self._clock.monotonic() - self._at


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a discovery service is. `token` is a file with a bearer token, read for each connection; `ca` one
    with its authority."""

    url: str
    token: Path | None = None
    ca: Path | None = None


class Discovered:
    """See the module. `changed` is called after each change of the directory."""

    def __init__(
        self, source: Source, directory: Directory, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._source = source
        self._directory = directory
        self._clock = clock
        self._changed = changed
        self.heard = Heard(clock)

    async def run(self) -> None:
        """Follow the service until cancelled."""
        backoff_s = FIRST_BACKOFF_S
        async with self._session() as session:
            while True:
                try:
                    await self._list(session)
                    backoff_s = FIRST_BACKOFF_S
                    await self._follow(session)
                except (aiohttp.ClientError, OSError, ValueError, IsthmusError) as problem:
                    self.heard.problem = str(problem)[:300] or type(problem).__name__
                    log.warning("discovery service not heard", url=self._source.url, error=self.heard.problem)
                    await self._clock.sleep(backoff_s * random.uniform(0.5, 1.5))
                    backoff_s = min(MAX_BACKOFF_S, 2 * backoff_s)

    def _session(self) -> aiohttp.ClientSession:
        context = None if self._source.ca is None else ssl.create_default_context(cafile=str(self._source.ca))
        connector = aiohttp.TCPConnector(limit=4, ssl=context if context is not None else True)
        return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))

    def _request(self, path: str) -> dict[str, Any]:
        headers = {"Accept": "application/json, text/event-stream"}
        if self._source.token is not None:
            headers["Authorization"] = f"Bearer {self._source.token.read_text('utf-8').strip()}"
        base = self._source.url.rstrip("/")
        return {"url": base + path, "headers": headers, "proxy": proxy_for(base, os.environ)}

    async def _list(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(ANSWER_S), session.get(**self._request("/pools")) as answer:
            body = await limited_body(answer, MAX_LIST_BYTES)
            if answer.status != 200:
                raise WorldError(f"GET /pools was answered with {answer.status}: {body[:200]!r}")
        found = pools.read_pool_list(body)
        self._directory.replace(found.pools, complete=found.complete)
        self.heard.now()
        self._changed()

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        """Take in events until the watch ends, says nothing, or has gone on for RELIST_S."""
        end_s = self._clock.monotonic() + RELIST_S
        async with session.get(**self._request("/pools/watch")) as answer:
            if answer.status != 200:
                raise WorldError(f"GET /pools/watch was answered with {answer.status}")
            told: dict[str, Pool] | None = {}
            async for name, data in _events(answer):
                self.heard.now()
                told = self._take(name, data, told)
                if self._clock.monotonic() > end_s:
                    return

    def _take(self, name: str, data: bytes, told: dict[str, Pool] | None) -> dict[str, Pool] | None:
        """One event. Until `synced` the events are one list, `told`; after it each stands for itself."""
        if name == "synced":
            complete = bool(msgspec.json.decode(data).get("complete"))
            known = {pool.pool_id: pool for pool in self._directory.pools}
            self._directory.replace((known if told is None else told).values(), complete=complete)
            self._changed()
            return None
        if name in ("added", "changed"):
            pool = pools.read_pool(data)
            if told is not None:
                told[pool.pool_id] = pool
            else:
                self._directory.put(pool)
                self._changed()
        elif name == "removed" and told is None:
            self._directory.remove(_removed(data))
            self._changed()
        return told


class Filed:
    """See the module: pools from a JSON file, `{"pools": [...]}` with the fields of PW-7; `pool_id` may be
    left out."""

    def __init__(self, path: Path, directory: Directory, clock: Clock, changed: Callable[[], None]) -> None:
        self._path = path
        self._directory = directory
        self._clock = clock
        self._changed = changed
        self._last = b""
        self.heard = Heard(clock)

    def read(self) -> None:
        """Take in the file. Raises UserError, naming the field."""
        try:
            data = self._path.read_bytes()
        except OSError as problem:
            raise UserError(f"--pools-file: {self._path}: {problem.strerror}") from problem
        self.heard.now()
        if data == self._last:
            return
        if len(data) > MAX_FILE_BYTES:
            raise UserError(f"--pools-file: {self._path} is longer than {MAX_FILE_BYTES} bytes")
        self._directory.replace(read_file(data), complete=True)
        self._last = data
        self._changed()

    async def run(self) -> None:
        """Follow the file until cancelled. A bad one keeps the last good one in force."""
        while True:
            await self._clock.sleep(FILE_PERIOD_S)
            try:
                self.read()
            except UserError as problem:
                if str(problem) != self.heard.problem:
                    log.error("pools not reloaded", error=str(problem))
                self.heard.problem = str(problem)


class _Key(pools.Message, frozen=True, kw_only=True):
    cluster_id: str
    namespace: str
    name: str

    @property
    def key(self) -> PoolKey:
        return PoolKey(self.cluster_id, self.namespace, self.name)


class _FiledPool(pools.Message, frozen=True, kw_only=True):
    cluster_id: str
    namespace: str
    name: str
    location: pools.Location = pools.Location()
    runtime_namespaces: tuple[str, ...] = ()
    relay_urls: tuple[str, ...] = ()
    frontend_urls: tuple[str, ...] = ()
    models: tuple[pools.Model, ...] = ()


class _File(pools.Message, frozen=True, kw_only=True):
    pools: tuple[_FiledPool, ...]


def read_file(data: bytes) -> tuple[Pool, ...]:
    """The pools of a file. Raises UserError, naming the field."""
    try:
        found = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise UserError(f"--pools-file: {problem}") from None
    listed: dict[str, Pool] = {}
    for index, each in enumerate(found.pools):
        key = PoolKey(each.cluster_id, each.namespace, each.name)
        pool = Pool(
            pool_id=key.pool_id, source="file", **{f: getattr(each, f) for f in each.__struct_fields__}
        )
        try:
            pools.check_pool(pool)
        except InvalidField as problem:
            raise UserError(f"--pools-file: pools[{index}].{problem}") from None
        if pool.pool_id in listed:
            raise UserError(f"--pools-file: pools[{index}]: {key} is there twice")
        listed[pool.pool_id] = pool
    return tuple(listed.values())


async def limited_body(answer: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """All of a body. Raises WorldError where it is longer."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > limit_bytes:
            raise WorldError(f"the answer is longer than {limit_bytes} bytes")
    return bytes(body)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, bytes]]:
    """(name, data) of each server-sent event; comments only show that the other side is there."""
    buffer = bytearray()
    while True:
        async with asyncio.timeout(SILENCE_S):
            piece = await answer.content.readany()
        if not piece:
            raise WorldError("the watch ended")
        buffer += piece.replace(b"\r\n", b"\n")
        while (end := buffer.find(b"\n\n")) >= 0:
            block = bytes(buffer[:end])
            del buffer[: end + 2]
            name, data = "", b""
            for line in block.split(b"\n"):
                field, _, value = line.partition(b":")
                if field == b"event":
                    name = value.strip().decode("utf-8", "replace")
                elif field == b"data":
                    data += value.removeprefix(b" ")
            if name:
                yield name, data
            else:
                yield "comment", b""
        if len(buffer) > MAX_EVENT_BYTES:
            raise WorldError(f"an event is longer than {MAX_EVENT_BYTES} bytes")


def _removed(data: bytes) -> str:
    """The ID of the pool that an event removes: it has the ID, or the key."""
    raw = msgspec.json.decode(data)
    if not isinstance(raw, dict):
        raise InvalidField("", "a removed event is not an object")
    if isinstance(pool_id := raw.get("pool_id"), str):
        return pool_id
    return msgspec.convert(raw, _Key).key.pool_id
