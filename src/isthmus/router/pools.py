"""The pools of a discovery service or of a file, into the Directory, for as long as the router runs.

`Discovered.run` reads the list, with its ETag, then follows the watch from that list's version, and begins
anew whenever that ends (PW-7, PW-9): where no watch can be had, that is polling. `Filed.run` looks at its
file each second and takes in what changed. Both keep what they had while they hear nothing, or something that
makes no sense: the Directory decides what a list may take away (PW-8). Delays double up to MAX_BACKOFF_S and
are spread by chance, so that many routers do not come back together. Redirects are not followed, since they
would carry the token elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp
import msgspec

from isthmus import __version__, logs
from isthmus.api import pools
from isthmus.api.pools import InvalidField, Pool, PoolKey
from isthmus.clock import Clock
from isthmus.errors import IsthmusError, UserError, WorldError
from isthmus.kube.credentials import Credentials, Fixed, TokenFile
from isthmus.kube.proxies import proxy_for
from isthmus.kube.tls import TlsSettings, TlsSource
from isthmus.router.plan.directory import Directory
from isthmus.router.plan.eventstream import EventStream
from isthmus.router.plan.follow import Follower

log = logs.get(__name__)

FIRST_BACKOFF_S: Final = 0.2
MAX_BACKOFF_S: Final = 10.0
STEADY_S: Final = 20.0
"""How long it must have gone well for the next delay to be the first again."""
ANSWER_S: Final = 15.0
SILENCE_S: Final = 45.0
"""Three of the watch's heartbeats: a watch that says nothing for so long is dead."""
RELIST_S: Final = 300.0
"""How long one watch is followed before the list is asked for again."""
MAX_LIST_BYTES: Final = 64 << 20
FILE_PERIOD_S: Final = 1.0
MAX_FILE_BYTES: Final = 8 << 20
MAX_PROBLEM: Final = 300


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

    def still_there(self) -> None:
        """It can be read as before, which mends no problem."""
        self._at = self._clock.monotonic()

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
    """See the module. `changed` is called after changes of the directory, once for all that came together."""

    def __init__(
        self, source: Source, directory: Directory, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._base = source.url.rstrip("/")
        self._directory = directory
        self._follower = Follower(directory)
        self._seen = directory.version
        self._logged = ""
        self._clock = clock
        self._changed = changed
        self._credentials: Credentials = Fixed() if source.token is None else TokenFile(source.token)
        https = self._base.startswith("https:")
        self._tls = TlsSource(TlsSettings(ca_path=source.ca)) if https else None
        self.heard = Heard(clock)

    async def run(self) -> None:
        """Follow the service until cancelled."""
        backoff_s = FIRST_BACKOFF_S
        async with _session() as session:
            while True:
                began_s = self._clock.monotonic()
                try:
                    await self._list(session)
                    await self._watch(session)
                except (aiohttp.ClientError, OSError, ValueError, IsthmusError) as problem:
                    self._note(problem)
                    if self._clock.monotonic() - began_s > STEADY_S:
                        backoff_s = FIRST_BACKOFF_S
                    await self._clock.sleep(backoff_s * random.uniform(0.5, 1.5))
                    backoff_s = min(MAX_BACKOFF_S, 2 * backoff_s)

    def _note(self, problem: Exception) -> None:
        if self._tls is not None:
            self._tls.renew()
        text = str(problem)[:MAX_PROBLEM] or type(problem).__name__
        if text != self._logged:
            log.warning("discovery service not heard", url=self._base, error=text)
        self._logged = text
        self.heard.problem = text

    async def _ask(
        self, session: aiohttp.ClientSession, target: str, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """The head of the answer to a GET, which the caller must close."""
        authorization = self._credentials.cached(self._clock.monotonic())
        if authorization is None:
            authorization = await self._credentials.refresh(self._clock)
        context: ssl.SSLContext | None = None
        if self._tls is not None:
            now = self._clock.monotonic()
            context = self._tls.cached(now, None) or await self._tls.refresh(self._clock, None)
        answer = await session.get(
            self._base + target,
            headers={**headers, **({"Authorization": authorization} if authorization else {})},
            ssl=context if context is not None else True,
            proxy=proxy_for(self._base, os.environ),
            allow_redirects=False,
        )
        if answer.status == 401:
            self._credentials.renew()
        if answer.status not in (200, 304):
            answer.close()
            raise WorldError(f"GET {target.partition('?')[0]} was answered with {answer.status}")
        return answer

    async def _list(self, session: aiohttp.ClientSession) -> None:
        """Take in the list, unless it is the one that is known."""
        version = self._follower.version
        known = {"If-None-Match": f'"{version}"'} if version else {}
        async with asyncio.timeout(ANSWER_S):
            answer = await self._ask(session, "/pools", {"Accept": "application/json", **known})
            async with answer:
                body = await limited_body(answer, MAX_LIST_BYTES) if answer.status == 200 else None
        now = self._clock.monotonic()
        if body is not None:
            self._follower.listed(pools.read_pool_list(body), now)
        self._heard(now)

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        """Take in events until the watch has gone on for RELIST_S. Raises where it ends, says nothing, or
        makes no sense."""
        end_s = self._clock.monotonic() + RELIST_S
        version = self._follower.began()
        target = "/pools/watch" + (f"?from={quote(version, safe='')}" if version else "")
        stream = EventStream()
        async with asyncio.timeout(ANSWER_S):
            answer = await self._ask(session, target, {"Accept": "text/event-stream"})
        async with answer:
            while (now := self._clock.monotonic()) < end_s:
                async with asyncio.timeout(SILENCE_S):
                    piece = await answer.content.readany()
                if not piece:
                    raise WorldError("the watch ended")
                for event in stream.feed(piece):
                    self._follower.take(event, now)
                self._heard(now)
                self._logged = ""

    def _heard(self, now: float) -> None:
        self.heard.now()
        self._directory.heard(now)
        if self._seen != self._directory.version:
            self._seen = self._directory.version
            self._changed()


class Filed:
    """See the module: pools from a JSON file, `{"pools": [...]}` with the fields of PW-7; `pool_id` may be
    left out."""

    def __init__(self, path: Path, directory: Directory, clock: Clock, changed: Callable[[], None]) -> None:
        self._path = path
        self._directory = directory
        self._clock = clock
        self._changed = changed
        self._stamp: tuple[int, int, int, int] | None = None
        self.heard = Heard(clock)

    def read(self) -> None:
        """Take in the file if it is another than at the last time. Raises UserError, naming the field."""
        try:
            state = self._path.stat()
            stamp = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            if stamp == self._stamp:
                self.heard.still_there()
                return
            with self._path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as problem:
            raise UserError(f"--pools-file: {self._path}: {problem.strerror}") from problem
        self._stamp = stamp
        if len(data) > MAX_FILE_BYTES:
            raise UserError(f"--pools-file: {self._path} is longer than {MAX_FILE_BYTES} bytes")
        self._directory.replace(read_file(data), complete=True, now=self._clock.monotonic())
        self.heard.now()
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
                if isinstance(problem.__cause__, OSError):
                    self._stamp = None


class _FiledPool(pools.Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of PW-7, so that a list of a discovery service may be the file; those of a moment are passed
    over."""

    cluster_id: str
    namespace: str
    name: str
    location: pools.Location = pools.Location()
    runtime_namespaces: tuple[str, ...] = ()
    relay_urls: tuple[str, ...] = ()
    frontend_urls: tuple[str, ...] = ()
    models: tuple[pools.Model, ...] = ()
    pool_id: str = ""
    incarnation: str = ""
    revision: int = 0
    expires_in_secs: float = 0.0
    source: str = ""


class _File(pools.Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pools: tuple[_FiledPool, ...]
    schema: int = 1
    version: str = ""
    complete: bool = True
    mode: str = ""


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
            pool_id=each.pool_id or key.pool_id,
            cluster_id=each.cluster_id,
            namespace=each.namespace,
            name=each.name,
            location=each.location,
            runtime_namespaces=each.runtime_namespaces,
            relay_urls=each.relay_urls,
            frontend_urls=each.frontend_urls,
            models=each.models,
            source="file",
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


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=4),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"User-Agent": f"isthmus-router/{__version__}"},
    )
