"""The operator's settings, validated as a whole before anything starts.

cli/operator.py fills OperatorOptions from flags; operator.py builds from it. Every problem is a UserError
that names the flag, so that a typo ends the process with exit code 2 and one line instead of half an
operator. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from isthmus.api.configuration import OperatorConfiguration
from isthmus.debugport.port import parse_debug_port
from isthmus.errors import UserError
from isthmus.kube.config import ClusterConfig
from isthmus.runtime.election_state import Durations
from isthmus.runtime.optional import PROBE_S
from isthmus.web.sockets import parse_address

CONTROLLERS = ("modelserving", "graph", "poolrelay")
"""The controllers there are, in the order in which people read of them."""

Address = tuple[tuple[str, ...], int]


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """Everything that `isthmus operator` was told. `configuration` is the file, of which features read what
    has no flag. Times are in seconds; `metrics` and `health` are where to listen, None for nowhere; empty
    `namespaces` mean all; `qps` 0 means no limit of ours. Those of the `controllers` that are `required` must
    have their APIs in the cluster; the others stay off without. Each `probe_s` it is looked whether an
    optional API has come or gone. `leader_worker_sets`: they are run as ModelServings."""

    config: ClusterConfig
    configuration: OperatorConfiguration = field(default_factory=OperatorConfiguration)
    controllers: frozenset[str] = frozenset(CONTROLLERS)
    required: frozenset[str] = frozenset()
    namespaces: tuple[str, ...] = ()
    leader_elect: bool = False
    lease_namespace: str = ""
    lease_name: str = "isthmus-operator"
    durations: Durations = field(default_factory=Durations)
    debug_port: int = 0
    metrics: Address | None = None
    health: Address | None = None
    qps: float = 0
    burst: int = 0
    workers: int = 5
    probe_s: float = PROBE_S
    leader_worker_sets: bool = True

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UserError(f"--workers must be at least 1; got {self.workers}")
        if self.qps < 0:
            raise UserError(f"--kube-api-qps must not be negative; got {self.qps:g}")
        if self.burst < 0:
            raise UserError(f"--kube-api-burst must not be negative; got {self.burst}")
        if self.probe_s <= 0:
            raise UserError(f"--api-probe-interval must be positive; got {self.probe_s:g}")
        if problem := self.durations.problem():
            raise UserError(
                "--leader-elect-lease-duration, --leader-elect-renew-deadline, --leader-elect-retry-period:"
                f" {problem}"
            )
        ports = [("--metrics-bind-address", self.metrics), ("--health-probe-bind-address", self.health)]
        taken = {self.debug_port: "--debug-port"} if self.debug_port else {}
        for flag, address in ports:
            if address is None:
                continue
            if address[1] in taken:
                raise UserError(f"{flag} and {taken[address[1]]} both want port {address[1]}")
            taken[address[1]] = flag


class Chosen(NamedTuple):
    """The controllers that shall run, and those of them that were asked for by name."""

    controllers: frozenset[str]
    required: frozenset[str]


def choose_controllers(text: str) -> Chosen:
    """The controllers that `--controllers` names: `*` for all, `NAME` or `+NAME` for one, `-NAME` to leave
    one out of all.

    For each controller the first entry that names it decides, then `*` (MS-114). Raises UserError for a name
    that is not a controller's, and where nothing is left: upstream then enables all, which hides a typo.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    for entry in entries:
        if entry != "*" and entry.lstrip("+-") not in CONTROLLERS:
            raise UserError(f"--controllers: {entry!r} is no controller; there are: {', '.join(CONTROLLERS)}")
    chosen = frozenset(name for name in CONTROLLERS if _is_chosen(name, entries))
    if not chosen:
        raise UserError(f"--controllers {text!r} leaves no controller; there are: {', '.join(CONTROLLERS)}")
    return Chosen(chosen, frozenset(name for name in chosen if any(e.lstrip("+") == name for e in entries)))


def _is_chosen(name: str, entries: Sequence[str]) -> bool:
    for entry in entries:
        if entry.lstrip("+-") == name:
            return not entry.startswith("-")
    return "*" in entries


def choose_namespaces(given: Sequence[str]) -> tuple[str, ...]:
    """The namespaces to work in, each once, in order. Raises UserError for what cannot be a namespace's
    name."""
    for namespace in given:
        letters = namespace.replace("-", "")
        fits = letters.isascii() and letters.isalnum() and letters == letters.lower() and len(namespace) <= 63
        if not fits or namespace.startswith("-") or namespace.endswith("-"):
            raise UserError(f"--namespace {namespace!r} is not a namespace's name")
    return tuple(dict.fromkeys(given))


__all__ = [
    "CONTROLLERS",
    "Address",
    "Chosen",
    "Durations",
    "OperatorOptions",
    "choose_controllers",
    "choose_namespaces",
    "parse_address",
    "parse_debug_port",
]
