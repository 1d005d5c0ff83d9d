"""Everything that `isthmus router` was told, checked: cli/router.py fills it, app.py builds from it.

Checks that need more than one flag, or a file, are here; each error names the flag. The grid's file and a
static list of pools are read once at the start, so that a bad one ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from isthmus.errors import UserError
from isthmus.router.plan import gridfile
from isthmus.router.plan.gridfile import BadGrid
from isthmus.router.plan.model import Place
from isthmus.router.plan.selector import GRID, LOCALITY, PolicySettings, PriorityRule
from isthmus.router.pools import Source
from isthmus.router.proxy import ProxySettings
from isthmus.router.upstream import Timeouts

MAX_GRID_BYTES: Final = 4 << 20

Address = tuple[tuple[str, ...], int]


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: how long new requests are still taken after SIGTERM, while readiness already says no, and how
    long running answers may then go on."""

    delay_s: float = 5.0
    timeout_s: float = 300.0


class RouterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. Exactly one of `discovery` and `pools_file` is there. `listen` is for clients,
    `metrics` for health and metrics, None: with the clients."""

    listen: Address
    metrics: Address | None = None
    discovery: Source | None = None
    pools_file: Path | None = None
    policy: PolicySettings = PolicySettings()
    proxy: ProxySettings = ProxySettings()
    timeouts: Timeouts = Timeouts()
    drain: Drain = Drain()
    retry_share: float = 0.2
    retry_floor_per_s: float = 10.0
    connections: int = 4096
    body_bytes: int = 16 << 20
    held_bytes: int = 512 << 20
    loads: bool = True
    access_log: bool = True
    page: bool = True

    def __post_init__(self) -> None:
        if (self.discovery is None) == (self.pools_file is None):
            raise UserError("give one of --discovery and --pools-file: where the pools come from")
        if self.policy.policy == GRID and self.policy.grid is None:
            raise UserError("--policy grid needs --config: the file with the grid")
        if self.policy.policy != GRID and self.policy.grid is not None:
            raise UserError(
                f"--config is for --policy grid, not for {self.policy.policy}",
                hint="upstream's variable DYN_GLOBAL_ROUTER_CONFIG counts as --config",
            )
        if self.policy.policy == LOCALITY and self.policy.place == Place():
            raise UserError("--policy locality needs --region or --zone: where this router is")
        if self.policy.breaker.longest_s < self.policy.breaker.first_s:
            raise UserError("--breaker-open-max must not be below --breaker-open")
        if not 0 <= self.retry_share <= 1:
            raise UserError("--retry-share must be from 0 to 1")
        if self.proxy.attempts < 1:
            raise UserError("--attempts must be at least 1")


def read_grid(path: Path) -> gridfile.Read:
    """The grids of upstream's configuration file. Raises UserError, naming the flag and the key."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"--config: there is no file {path}") from None
    except OSError as problem:
        raise UserError(f"--config: {path}: {problem.strerror}") from problem
    if len(data) > MAX_GRID_BYTES:
        raise UserError(f"--config: {path} is longer than {MAX_GRID_BYTES} bytes")
    try:
        return gridfile.read(data)
    except BadGrid as problem:
        raise UserError(f"--config: {path}: {problem}") from None


def read_weights(items: Iterable[str]) -> Mapping[str, float]:
    """`CLUSTER=WEIGHT` texts. Raises UserError."""
    found: dict[str, float] = {}
    for item in items:
        cluster, equals, text = item.partition("=")
        try:
            weight = float(text)
        except ValueError:
            weight = 0.0
        if not equals or not cluster or not 0 < weight < 1e6:
            raise UserError(f"--weight must be CLUSTER=NUMBER above 0, got {item[:80]!r}")
        if cluster in found:
            raise UserError(f"--weight has {cluster[:80]!r} twice")
        found[cluster] = weight
    return found


def read_priorities(items: Iterable[str]) -> tuple[PriorityRule, ...]:
    """`MIN:MAX=SELECTOR` texts. Raises UserError."""
    found = []
    for item in items:
        bounds, equals, selector = item.partition("=")
        low, colon, high = bounds.partition(":")
        try:
            rule = PriorityRule(int(low), int(high), selector)
        except ValueError:
            colon = ""
        if not equals or not colon or not selector or rule.low > rule.high:
            raise UserError(
                f"--priority-override must be MIN:MAX=POOL, got {item[:80]!r}",
                hint="POOL is one of its Dynamo namespaces, or CLUSTER/NAMESPACE/NAME",
            )
        found.append(rule)
    return tuple(found)
