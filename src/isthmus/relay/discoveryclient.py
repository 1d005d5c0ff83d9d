"""Questions to the discovery service: registration, its end, lists; answers in, or what went wrong.

registrar.py decides when (PW-4), this module only asks (PW-1, PW-2, PW-5); `pool check` asks for lists too.
It takes the bearer token that its file has now, the CA of its file, the standard proxy variables, deadlines,
and a bounded answer. Redirects are not followed, since they would carry the token elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from isthmus import __version__
from isthmus.api.pools import Grant, InvalidField, PoolKey, Registration, read_grant
from isthmus.clock import Clock
from isthmus.errors import IsthmusError, WorldError
from isthmus.kube import proxies
from isthmus.kube.credentials import Credentials, Fixed, TokenFile
from isthmus.kube.tls import TlsSettings, TlsSource
from isthmus.relay.options import DiscoveryOptions

DEADLINE_S: Final = 5.0
MAX_ANSWER_BYTES: Final = 1 << 16
MAX_LIST_BYTES: Final = 16 << 20
_MAX_TEXT: Final = 300


class NotTaken(WorldError):
    """The service did not do it. `status` is 0 where it did not answer; `code` is that of its error, and
    `retry_after_s` what it asks for."""

    def __init__(self, text: str, *, status: int = 0, code: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class DiscoveryClient:
    """See the module. Use as an async context manager."""

    def __init__(
        self, options: DiscoveryOptions, clock: Clock, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self._base = options.url.rstrip("/")
        self._clock = clock
        self._credentials: Credentials = (
            Fixed() if options.token_file is None else TokenFile(options.token_file)
        )
        https = self._base.startswith("https:")
        self._tls = TlsSource(TlsSettings(ca_path=options.ca_file)) if https else None
        self._proxy = proxies.proxy_for(self._base, os.environ if environ is None else environ)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> DiscoveryClient:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=4, keepalive_timeout=30.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers={"User-Agent": f"isthmus-relay/{__version__}", "Accept-Encoding": "identity"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def register(self, registration: Registration) -> Grant:
        """Register or renew. Raises NotTaken."""
        body = msgspec.json.encode(registration)
        status, answer, headers = await self._ask("POST", "/pools", body)
        if status not in (200, 201):
            raise _refusal(status, answer, headers)
        try:
            return read_grant(answer)
        except InvalidField as problem:
            raise NotTaken(f"the answer cannot be used: {problem}", status=status) from None

    async def deregister(self, key: PoolKey, incarnation: str) -> None:
        """Take the registration back; that there is none is fine. Raises NotTaken."""
        path = "/".join(quote(part, safe="") for part in (key.cluster_id, key.namespace, key.name))
        query = urlencode({"incarnation": incarnation})
        status, answer, headers = await self._ask("DELETE", f"/pools/{path}?{query}", None)
        if status not in (200, 204, 404):
            raise _refusal(status, answer, headers)

    async def fetch(self, target: str) -> bytes:
        """What the service answers at a path with its query. Raises NotTaken."""
        status, answer, headers = await self._ask("GET", target, None, limit=MAX_LIST_BYTES)
        if status != 200:
            raise _refusal(status, answer, headers)
        return answer

    async def _ask(
        self, method: str, target: str, body: bytes | None, *, limit: int = MAX_ANSWER_BYTES
    ) -> tuple[int, bytes, Mapping[str, str]]:
        assert self._session is not None
        try:
            async with asyncio.timeout(DEADLINE_S):
                headers, context = await self._prepare()
                async with self._session.request(
                    method,
                    URL(self._base + target, encoded=True),
                    data=body,
                    headers=headers,
                    ssl=context if context is not None else True,
                    proxy=self._proxy,
                    allow_redirects=False,
                ) as response:
                    answer = bytearray()
                    async for piece in response.content.iter_chunked(MAX_ANSWER_BYTES):
                        answer += piece
                        if len(answer) > limit:
                            break
                    if response.status == 401:
                        self._credentials.renew()
                    if len(answer) > limit:
                        raise NotTaken("the answer is too long", status=response.status)
                    return response.status, bytes(answer), response.headers
        except TimeoutError:
            raise NotTaken(f"no answer within {DEADLINE_S:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            if self._tls is not None:
                self._tls.renew()
            raise NotTaken(str(problem)[:_MAX_TEXT] or type(problem).__name__) from None
        except NotTaken:
            raise
        except IsthmusError as problem:
            raise NotTaken(str(problem)[:_MAX_TEXT]) from None

    async def _prepare(self) -> tuple[dict[str, str], ssl.SSLContext | None]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        now = self._clock.monotonic()
        authorization = self._credentials.cached(now)
        if authorization is None:
            authorization = await self._credentials.refresh(self._clock)
        if authorization:
            headers["Authorization"] = authorization
        if self._tls is None:
            return headers, None
        return headers, self._tls.cached(now, None) or await self._tls.refresh(self._clock, None)


class _Error(msgspec.Struct, frozen=True):
    error: Any = None


def _refusal(status: int, body: bytes, headers: Mapping[str, str]) -> NotTaken:
    """What an answer other than the wished says."""
    code, text = "", f"answered {status}"
    try:
        error = msgspec.json.decode(body, type=_Error).error
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        error = None
    if isinstance(error, dict):
        code = str(error.get("code", ""))[:64]
        text += f": {str(error.get('message', ''))[:_MAX_TEXT]}"
    seconds = headers.get("Retry-After", "")
    retry_after_s = float(seconds) if seconds.isascii() and seconds.isdigit() and len(seconds) < 7 else 0.0
    return NotTaken(text, status=status, code=code, retry_after_s=retry_after_s)
