"""Reads a debug port for the command line: HTTP to loopback, strict decoding, and plain words when it fails.

debug.py calls `DebugClient`; tree.py and differences.py work on what it returns. The standard library's
client is used, since no proxy may ever be asked for loopback and nothing here is asynchronous. What the port
says is not trusted: sizes are bounded, the JSON must have MS-47's shape, and texts pass through `visible`
before a terminal sees them.
"""

from __future__ import annotations

import http.client
from typing import Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from isthmus.errors import IsthmusError, UserError
from isthmus.modelserving.dto import CacheDump, DecisionDump

CACHE_PATH: Final = "/debug/modelserving/cache"
DECISIONS_PATH: Final = "/debug/modelserving/decisions"
TIMEOUT_S: Final = 15.0
"""How long the port may be silent."""
MAX_BYTES: Final = 1 << 30

T = TypeVar("T")


class Unreadable(IsthmusError):
    """The debug port could not be read: nothing listens, something else does, or it is not ready. `hint` says
    what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class NothingListens(Unreadable):
    """The connection was refused."""


class NotComplete(Unreadable):
    """The operator is starting; `caches` names what it waits for."""

    def __init__(self, caches: list[str]) -> None:
        names = ", ".join(visible(cache) for cache in caches)
        super().__init__(
            f"the operator is still starting: these caches are not complete yet: {names}",
            "try again in a moment, or use --watch",
        )


class _Problem(msgspec.Struct):
    """The debug port's JSON error page."""

    error: str
    incomplete: list[str] = []


class DebugClient:
    """One debug port: the first of `hosts` that takes a connection on `port`."""

    def __init__(self, hosts: tuple[str, ...], port: int) -> None:
        self._hosts = hosts
        self._port = port

    @classmethod
    def of_url(cls, url: str) -> DebugClient:
        """The one at `http://HOST:PORT`. Raises UserError where `url` is something else."""
        parts = urlsplit(url)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme != "http" or not host or not port or parts.path not in ("", "/") or parts.query:
            raise UserError(f"--url must look like http://127.0.0.1:8070; got {visible(url)[:80]}")
        return cls((host,), port)

    @property
    def where(self) -> str:
        """The address for people."""
        return f"{' and '.join(visible(host) for host in self._hosts)} port {self._port}"

    def cache(self, namespace: str | None, name: str | None) -> CacheDump:
        """What the operator's cache holds now (MS-47). Raises Unreadable."""
        return self._decode(self._fetch(CACHE_PATH, namespace, name), CacheDump)

    def decisions(self, namespace: str | None, name: str | None) -> DecisionDump:
        """The last decisions, oldest first for each ModelServing. Raises Unreadable."""
        return self._decode(self._fetch(DECISIONS_PATH, namespace, name), DecisionDump)

    def _decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.MsgspecError:
            raise self._stranger("its JSON has another shape") from None

    def _fetch(self, path: str, namespace: str | None, name: str | None) -> bytes:
        query = urlencode({key: value for key, value in (("namespace", namespace), ("name", name)) if value})
        status, body = self._get(f"{path}?{query}" if query else path)
        if status == 200:
            return body
        try:
            problem = msgspec.json.decode(body, type=_Problem)
        except msgspec.MsgspecError:
            raise self._stranger(f"it answers {status} for {path}") from None
        if status == 503 and problem.incomplete:
            raise NotComplete(problem.incomplete)
        if status == 404:
            raise self._stranger(f"it has no {path}")
        raise Unreadable(f"the debug port on {self.where} answers {status}: {visible(problem.error)[:500]}")

    def _get(self, target: str) -> tuple[int, bytes]:
        for host in self._hosts:
            try:
                return self._get_from(host, target)
            except ConnectionRefusedError:
                continue
        raise NothingListens(f"nothing listens on {self.where}", HINT.format(self._port))

    def _get_from(self, host: str, target: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", target, headers={"Accept": "application/json", "Connection": "close"})
            with connection.getresponse() as response:
                body = response.read(MAX_BYTES + 1)
                if response.length and len(body) <= MAX_BYTES:  # read(n) does not mind an end too soon
                    raise http.client.IncompleteRead(body, response.length)
        except ConnectionRefusedError:
            raise
        except TimeoutError:
            raise Unreadable(f"{self.where} takes connections but does not answer") from None
        except (http.client.IncompleteRead, ConnectionError):
            hint = "try again; the log of the operator says why"
            raise Unreadable(f"the answer of {self.where} broke off", hint) from None
        except http.client.HTTPException:
            raise self._stranger("it does not speak HTTP") from None
        except OSError as problem:
            raise Unreadable(f"cannot reach {self.where}: {problem.strerror}") from None
        finally:
            connection.close()
        if len(body) > MAX_BYTES:
            raise self._stranger("its answer has no end")
        return response.status, body

    def _stranger(self, why: str) -> Unreadable:
        message = f"what listens on {self.where} is not an operator's debug port: {why}"
        return Unreadable(message, HINT.format(self._port))


HINT: Final = (
    "start the operator with --debug-port {0}, or forward its port:"
    " kubectl port-forward -n NAMESPACE POD {0}:{0}"
)


def visible(text: str) -> str:
    """`text` with everything that a terminal would act on, or that hides its neighbours, as an escape."""
    return "".join(char if char.isprintable() else f"\\u{{{ord(char):x}}}" for char in text)
