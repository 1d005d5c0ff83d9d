"""The HTTP contract between relays, the discovery service and routers, as types (PW-1 to PW-13, DS-5).

A relay sends a Registration and gets a Grant; a router reads a PoolList; a relay answers routers with
snapshots of what it knows. `read_registration` and `read_pool_list` take hostile bytes: what does not fit is
an InvalidField that names the field, and unknown keys are passed over, so that either side can be newer. Pool
IDs are SHA-256 with a prefix of their own, since Python has no BLAKE3. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from isthmus.errors import UserError

SCHEMA: Final = 1
PROTOCOL: Final = 1
"""Version of what a relay answers at /v1."""
MAX_BODY_BYTES: Final = 1 << 20
MAX_ITEMS: Final = 256
"""Models, frontends, aliases and namespaces in one registration, each."""
MAX_TEXT: Final = 253
MAX_URL: Final = 2048
MAX_LEASE_S: Final = 86400.0
ID_PREFIX: Final = "pool-v1s-"
SCHEMES: Final = ("http", "https")

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

T = TypeVar("T")


class Message(msgspec.Struct, frozen=True, gc=False):
    """Base of what is sent: immutable, snake_case on the wire, unknown keys ignored."""


class InvalidField(UserError):
    """A value that a peer sent and that cannot be used. `field` is its path, such as `frontends[0].url`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class PoolKey(Message, frozen=True, order=True):
    """Which pool (DS-5): the cluster's ID in its set, the Kubernetes namespace, the graph's or ModelServing's
    name."""

    cluster_id: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.cluster_id}/{self.namespace}/{self.name}"

    @property
    def pool_id(self) -> str:
        """The pool's ID (DS-6): SHA-256 over the three parts, each after its length in bytes as unsigned 64
        bits, big-endian."""
        digest = hashlib.sha256()
        for part in (self.cluster_id, self.namespace, self.name):
            raw = part.encode()
            digest.update(len(raw).to_bytes(8, "big"))
            digest.update(raw)
        return ID_PREFIX + digest.hexdigest()


class Location(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Where a pool is (DS-7). Empty text: not said."""

    region: str = ""
    availability_zone: str = ""
    cluster: str = ""
    datacenter: str = ""


class Model(Message, frozen=True, kw_only=True):
    """A model that a pool serves. `roles` as in RL-10; `max_concurrency` is in requests, None: not said."""

    id: str
    aliases: tuple[str, ...] = ()
    ready: bool = True
    roles: tuple[str, ...] = ("aggregated",)
    max_concurrency: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What a client may call it."""
        return (self.id, *self.aliases)


class Frontend(Message, frozen=True, kw_only=True):
    """One address of a pool's OpenAI server, without a path."""

    url: str
    service: str = ""


class RelayRun(Message, frozen=True, kw_only=True):
    """Where a relay answers, which run of it this is, and how often what it says has changed."""

    url: str
    incarnation: str
    revision: int = 0


class Registration(Message, frozen=True, kw_only=True):
    """What a relay sends to register or renew (PW-1)."""

    cluster_id: str
    namespace: str
    name: str
    relay: RelayRun
    schema: int = SCHEMA
    runtime_namespaces: tuple[str, ...] = ()
    location: Location = Location()
    models: tuple[Model, ...] = ()
    frontends: tuple[Frontend, ...] = ()

    @property
    def key(self) -> PoolKey:
        """The pool's key."""
        return PoolKey(self.cluster_id, self.namespace, self.name)


class RouterRef(Message, frozen=True, kw_only=True):
    """A router that a discovery service knows (PW-10)."""

    id: str
    url: str


class Grant(Message, frozen=True, kw_only=True):
    """The answer to a registration (PW-2). Durations in seconds."""

    pool_id: str
    heartbeat_interval_secs: float
    lease_duration_secs: float
    routers: tuple[RouterRef, ...] = ()
    complete: bool = False


class Pool(Message, frozen=True, kw_only=True):
    """A pool as routers see it (PW-7). `expires_in_secs` counts from the answer."""

    pool_id: str
    cluster_id: str
    namespace: str
    name: str
    location: Location = Location()
    runtime_namespaces: tuple[str, ...] = ()
    relay_urls: tuple[str, ...] = ()
    frontend_urls: tuple[str, ...] = ()
    models: tuple[Model, ...] = ()
    incarnation: str = ""
    revision: int = 0
    expires_in_secs: float = 0.0
    source: str = "registration"

    @property
    def key(self) -> PoolKey:
        """The pool's key."""
        return PoolKey(self.cluster_id, self.namespace, self.name)


class PoolList(Message, frozen=True, kw_only=True):
    """The pools, sorted by key (PW-7). While `complete` is False, a pool's absence proves nothing (PW-8)."""

    version: str
    complete: bool
    mode: str
    pools: tuple[Pool, ...] = ()
    schema: int = SCHEMA


class LoadFrontends(Message, frozen=True, kw_only=True):
    """How many of a pool's frontends there should be, answered, and are ready."""

    expected: int
    observed: int
    ready: int


class ModelLoad(Message, frozen=True, kw_only=True):
    """The load of one model of a pool (PW-13), in requests. None: not known."""

    model: str
    awaiting_first_token: int | None = None
    generating: int | None = None
    frontends: LoadFrontends = LoadFrontends(expected=0, observed=0, ready=0)
    max_concurrency: int | None = None


class LoadSnapshot(Message, frozen=True, kw_only=True):
    """What GET /v1/load of a relay answers: `status` is complete, degraded or unavailable; `age_ms` is how
    old the sample was when it was sent."""

    incarnation: str
    revision: int
    status: str
    age_ms: int
    entries: tuple[ModelLoad, ...] = ()


_registration: Final = msgspec.json.Decoder(Registration)
_grant: Final = msgspec.json.Decoder(Grant)
_pool_list: Final = msgspec.json.Decoder(PoolList)
_pool: Final = msgspec.json.Decoder(Pool)


def read_registration(body: bytes) -> Registration:
    """A registration that is fit to be kept (PW-3). Raises InvalidField."""
    found = _decode(_registration, body)
    if found.schema != SCHEMA:
        raise InvalidField("schema", f"must be {SCHEMA}, got {found.schema}")
    check_key(found.key)
    check_url("relay.url", found.relay.url)
    check_text("relay.incarnation", found.relay.incarnation, limit=128)
    if not 0 <= found.relay.revision < 1 << 63:
        raise InvalidField("relay.revision", "must be an integer from 0 to 2^63-1")
    check_location(found.location)
    _check_count("runtime_namespaces", found.runtime_namespaces)
    for index, namespace in enumerate(found.runtime_namespaces):
        check_text(f"runtime_namespaces[{index}]", namespace)
    check_models(found.models)
    _check_count("frontends", found.frontends)
    for index, frontend in enumerate(found.frontends):
        check_url(f"frontends[{index}].url", frontend.url)
        check_text(f"frontends[{index}].service", frontend.service, empty=True)
    return found


def read_grant(body: bytes) -> Grant:
    """An answer to a registration that a relay may go by. Raises InvalidField."""
    found = _decode(_grant, body)
    for field in ("heartbeat_interval_secs", "lease_duration_secs"):
        if not 0 < getattr(found, field) <= MAX_LEASE_S:
            raise InvalidField(field, f"must be more than 0 and at most {MAX_LEASE_S:g} seconds")
    return found


def read_pool_list(body: bytes) -> PoolList:
    """A list that a router may go by. Raises InvalidField: one bad pool spoils its whole list."""
    found = _decode(_pool_list, body)
    if found.schema != SCHEMA:
        raise InvalidField("schema", f"must be {SCHEMA}, got {found.schema}")
    for index, pool in enumerate(found.pools):
        _in(f"pools[{index}]", pool)
    return found


def read_pool(body: bytes) -> Pool:
    """One pool, as an event of a watch has it. Raises InvalidField."""
    found = _decode(_pool, body)
    check_pool(found)
    return found


def check_pool(pool: Pool) -> None:
    """Raises InvalidField where the pool's parts are not what they should be, its ID included."""
    check_key(pool.key)
    if pool.pool_id != pool.key.pool_id:
        raise InvalidField("pool_id", f"is not that of {pool.key}")
    check_location(pool.location)
    check_models(pool.models)
    for field, urls in (("relay_urls", pool.relay_urls), ("frontend_urls", pool.frontend_urls)):
        _check_count(field, urls)
        for index, url in enumerate(urls):
            check_url(f"{field}[{index}]", url)


def check_key(key: PoolKey) -> None:
    """Raises InvalidField for a part that is empty, too long, or has whitespace around it or control
    characters (DS-5), and for a name that is no DNS label (PW-3)."""
    check_text("cluster_id", key.cluster_id)
    check_text("namespace", key.namespace, limit=63)
    check_text("name", key.name, limit=63)
    for field, value in (("namespace", key.namespace), ("name", key.name)):
        if not _NAME.fullmatch(value):
            raise InvalidField(field, f"must be lower-case letters, digits and '-', got {value[:80]!r}")


def check_models(models: tuple[Model, ...]) -> None:
    """Raises InvalidField where one has no name, or where two have the same."""
    _check_count("models", models)
    taken: dict[str, str] = {}
    for index, model in enumerate(models):
        _check_count(f"models[{index}].aliases", model.aliases)
        for field, name in _model_names(index, model):
            check_text(field, name)
            if name in taken:
                raise InvalidField(field, f"{name!r} is {taken[name]} too")
            taken[name] = field
        for role in model.roles:
            check_text(f"models[{index}].roles", role, limit=32)
        if model.max_concurrency is not None and not 0 < model.max_concurrency < 1 << 31:
            raise InvalidField(f"models[{index}].max_concurrency", "must be an integer from 1 to 2^31-1")


def check_location(location: Location) -> None:
    """Raises InvalidField for text that is too long or has control characters."""
    for field in location.__struct_fields__:
        check_text(f"location.{field}", getattr(location, field), empty=True)


def check_text(field: str, value: str, *, limit: int = MAX_TEXT, empty: bool = False) -> None:
    """Raises InvalidField where `value` is no short piece of text. `limit`: bytes of UTF-8."""
    if not value and not empty:
        raise InvalidField(field, "must not be empty")
    size_bytes = len(value.encode(errors="surrogatepass"))
    if size_bytes > limit:
        raise InvalidField(field, f"must have at most {limit} bytes, has {size_bytes}")
    if value != value.strip():
        raise InvalidField(field, "must have no whitespace around it")
    if _CONTROL.search(value):
        raise InvalidField(field, "must have no control characters")


def check_url(field: str, url: str) -> None:
    """Raises InvalidField for anything but http or https, a host, and perhaps a port and a path (PW-3)."""
    check_text(field, url, limit=MAX_URL)
    try:
        parts = urlsplit(url)
        _ = parts.port
        host = parts.hostname or ""
    except ValueError as problem:
        raise InvalidField(field, f"is no URL: {problem}") from None
    if parts.scheme not in SCHEMES or not host:
        raise InvalidField(field, f"must be an http or https URL with a host, got {url[:80]!r}")
    if "@" in parts.netloc:
        raise InvalidField(field, "must have no user info")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise InvalidField(field, "must have no query and no fragment")
    if not url.isascii() or any(char in url for char in ' \\"<>^`{|}'):
        raise InvalidField(field, "must have only the characters of a URL")


def endpoint_url(scheme: str, address: str, port: int) -> str:
    """The URL of an endpoint's address, an IPv6 one, which alone has colons, in brackets (DS-15)."""
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"


def _in(path: str, pool: Pool) -> None:
    try:
        check_pool(pool)
    except InvalidField as problem:
        raise InvalidField(
            f"{path}.{problem.field}", str(problem).removeprefix(f"{problem.field}: ")
        ) from None


def _model_names(index: int, model: Model) -> Iterator[tuple[str, str]]:
    yield f"models[{index}].id", model.id
    for number, alias in enumerate(model.aliases):
        yield f"models[{index}].aliases[{number}]", alias


def _check_count(field: str, items: tuple[Any, ...]) -> None:
    if len(items) > MAX_ITEMS:
        raise InvalidField(field, f"must have at most {MAX_ITEMS} items, has {len(items)}")


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        text, _, path = str(problem).partition(" - at `")
        raise InvalidField(path.rstrip("`").removeprefix("$").removeprefix("."), text) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InvalidField("", f"is not JSON: {problem}") from None
