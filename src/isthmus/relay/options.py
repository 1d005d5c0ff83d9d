"""Everything that `isthmus relay` was told, checked: flags, environment and what follows from them.

cli/relay.py makes a RelayOptions; app.py and its parts read it. What is wrong is a UserError that names the
flag, before anything is opened.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from isthmus.api.dynamo.names import dynamo_namespace
from isthmus.api.pools import (
    InvalidField,
    Location,
    PoolKey,
    check_key,
    check_location,
    check_url,
    endpoint_url,
)
from isthmus.errors import UserError
from isthmus.relay.plan.model import GRAPH, Selection, Settings

Address = tuple[tuple[str, ...], int]
MAX_ALIASES: Final = 64


@dataclass(frozen=True, kw_only=True)
class DiscoveryOptions:
    """The discovery service: its URL, and the files with a bearer token and with its CA, if any."""

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    def __post_init__(self) -> None:
        try:
            check_url("--discovery", self.url)
        except InvalidField as problem:
            raise UserError(str(problem)) from None


@dataclass(frozen=True, kw_only=True)
class RelayOptions:
    """See the module. `bind` and `system` are where to listen, None for nowhere; `advertise` is the URL that
    routers find this relay by. The incarnation tells two runs of one relay apart, `instance` two relays."""

    cluster_id: str
    selection: Selection
    bind: Address | None = None
    system: Address | None = None
    advertise: str = ""
    discovery: DiscoveryOptions | None = None
    location: Location = field(default_factory=Location)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_concurrency: int | None = None
    sources_file: Path | None = None
    instance: str = "relay"
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        if not self.cluster_id or self.cluster_id != self.cluster_id.strip():
            raise UserError("--cluster-id must be there and have no whitespace around it")
        for flag, value in (
            ("--pool-namespace", self.selection.namespace),
            ("--pool-name", self.selection.name),
        ):
            if not value:
                raise UserError(f"{flag} is required")
        try:
            check_key(self.key)
            check_location(self.location)
        except InvalidField as problem:
            raise UserError(f"--{problem.field.replace('_', '-')}: {problem}") from None
        if self.bind is None and self.system is None:
            raise UserError("there is nothing to listen on: give --bind or --system-bind")
        if self.bind is not None and self.system is not None and self.bind[1] == self.system[1]:
            raise UserError(f"--bind and --system-bind both want port {self.bind[1]}")
        if self.discovery is not None and not self.advertise:
            raise UserError(
                "--discovery needs an address under which routers find this relay",
                hint="give --advertise URL, or --bind with one address, or set POD_IP",
            )
        if self.max_concurrency is not None and not 0 < self.max_concurrency < 1 << 31:
            raise UserError("--max-concurrency must be an integer from 1 to 2147483647")

    @property
    def key(self) -> PoolKey:
        """The pool's key."""
        return PoolKey(self.cluster_id, self.selection.namespace, self.selection.name)

    @property
    def settings(self) -> Settings:
        """What the planner reads."""
        own = dynamo_namespace(self.selection.namespace, self.selection.name)
        graph = self.selection.kind == GRAPH
        return Settings(
            namespace=(self.selection.namespaces or (own,))[0] if graph else own,
            cluster_id=self.cluster_id,
            location=self.location,
            aliases=self.aliases,
            max_concurrency=self.max_concurrency,
        )


def advertised(url: str, bind: Address | None, pod_ip: str) -> str:
    """The URL that routers find this relay by: as told, else the pod's address, else the one that it listens
    on; empty where none is known. Raises UserError for a URL that is none."""
    if url:
        try:
            check_url("--advertise", url)
        except InvalidField as problem:
            raise UserError(str(problem)) from None
        return url.rstrip("/")
    if bind is None:
        return ""
    address = pod_ip or (bind[0][0] if len(bind[0]) == 1 else "")
    try:
        usable = bool(address) and not ipaddress.ip_address(address).is_unspecified
    except ValueError:
        usable = False
    return endpoint_url("http", address, bind[1]) if usable else ""


def parse_aliases(flag: str, words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Further names by model, of `ALIAS=MODEL`. Raises UserError naming `flag`."""
    found: dict[str, list[str]] = {}
    names = set()
    for word in words:
        alias, equals, model = word.partition("=")
        if not (alias and equals and model):
            raise UserError(f"{flag} must be ALIAS=MODEL; got {word[:80]!r}")
        if alias in names:
            raise UserError(f"{flag} has {alias[:80]!r} twice")
        names.add(alias)
        found.setdefault(model, []).append(alias)
    if len(names) > MAX_ALIASES:
        raise UserError(f"{flag} may be there {MAX_ALIASES} times")
    return {model: tuple(aliases) for model, aliases in found.items()}
