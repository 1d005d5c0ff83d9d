"""What a sandbox is asked to be (`Spec`), and what it says about itself while it runs (`Record`).

`sandbox.Sandbox` writes spec.json into the sandbox's folder and starts the supervisor, which reads it and
keeps record.json up to date; every other command learns from record.json what runs where. Both are plain
JSON, so that a person can read them too. `Folder` names everything that lies in the folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import msgspec

from isthmus.errors import UserError
from isthmus.sandbox.processes import Identity

ADMIN: Final = "admin"
OPERATOR: Final = "operator"
CONTROLLER_MANAGER: Final = "controller-manager"
NODE: Final = "sandbox-node"
USERS: Final[dict[str, tuple[str, ...]]] = {
    ADMIN: ("system:masters",),
    # As a service account's: the API server's fairness rules treat it like one, unlike system:masters.
    OPERATOR: ("system:serviceaccounts",),
    CONTROLLER_MANAGER: ("system:masters",),
    NODE: ("system:masters",),
}
"""Users that every sandbox has, and their groups. Each has a bearer token and a kubeconfig."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the simulated node behaves, apart from the faults that are asked for pod by pod.

    `ready_delay_s` from binding to Ready, plus up to `ready_jitter_s` by chance; `delete_delay_s` from a
    pod's deletion to its end, but never longer than its grace period. `writes` bounds how many requests are
    under way at once.
    """

    ready_delay_s: float = 0.0
    ready_jitter_s: float = 0.0
    delete_delay_s: float = 0.0
    writes: int = 64


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """How to call each program: the first words of its command line."""

    etcd: tuple[str, ...]
    apiserver: tuple[str, ...]
    controller_manager: tuple[str, ...]
    kubectl: tuple[str, ...]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. `users`: further ones, name to groups, with tokens. `crds`: objects that every
    cluster has from the start. `inert`: clusters whose workloads are only templates for others, as in a
    control plane of Karmada; nothing makes pods or endpoints of them there. `detached`: lives until it is
    told to end, not as long as who started it. `ephemeral`: the folder goes with it."""

    name: str
    programs: Programs
    clusters: int = 1
    nodes: int = 1
    inert: tuple[int, ...] = ()
    audit: bool = False
    detached: bool = False
    ephemeral: bool = True
    users: dict[str, tuple[str, ...]] = {}
    crds: tuple[dict[str, Any], ...] = ()
    node: NodeSettings = NodeSettings()


class ComponentRecord(msgspec.Struct, frozen=True):
    """One server: its process while it has one, its log, how often it was started again unasked."""

    identity: Identity | None
    log: str
    state: str
    restarts: int = 0


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What runs. `phase`: starting, ready or stopping; `step` says more while starting. `proxies`: of each
    cluster, the one through which pods are reached."""

    name: str
    supervisor: Identity
    phase: str
    step: str = ""
    clusters: int
    nodes: int
    detached: bool
    started: float
    servers: tuple[str, ...] = ()
    etcd: str = ""
    proxies: tuple[str, ...] = ()
    components: dict[str, ComponentRecord] = {}


class Folder:
    """The folder of one sandbox, and what lies in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.spec = path / "spec.json"
        self.record = path / "record.json"
        self.pki = path / "pki"
        self.audit_policy = path / "audit-policy.json"
        self.tokens = path / "tokens.csv"
        self.etcd = path / "etcd"
        self.logs = path / "logs"

    def kubeconfig(self, cluster: int, user: str) -> Path:
        """The kubeconfig of a user of one cluster."""
        return self.path / f"cluster-{cluster}" / f"{user}.kubeconfig"

    def log(self, component: str) -> Path:
        """The log of one component."""
        return self.logs / f"{component}.log"

    def audit_log(self, cluster: int) -> Path:
        """The audit log of one cluster, where it was asked for."""
        return self.logs / f"audit-{cluster}.log"

    def read_spec(self) -> Spec:
        """What was asked for. Raises OSError or msgspec.DecodeError."""
        return msgspec.json.decode(self.spec.read_bytes(), type=Spec)

    def try_read_record(self) -> Record | None:
        """What the supervisor said last; None where there is nothing readable, as after a crash."""
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError):
            return None

    def read_tokens(self) -> dict[str, str]:
        """User to bearer token. Raises OSError before the supervisor has written them."""
        rows = (line.split(",") for line in self.tokens.read_text().splitlines() if line)
        return {row[1]: row[0] for row in rows}

    def write_private(self, path: Path, content: bytes) -> None:
        """Write a file that only its owner may read, in one step for those who read it meanwhile."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(content)
        partial.replace(path)


def node_names(count: int) -> tuple[str, ...]:
    """The names of a cluster's Nodes."""
    return tuple(f"sandbox-{index}" for index in range(count))


def check_counts(clusters: int, nodes: int) -> None:
    """Raise UserError where more is asked for than the address plan has room for."""
    if not 1 <= clusters <= 16:
        raise UserError(f"--clusters {clusters}: must be 1 to 16")
    if not 1 <= nodes <= 1000:
        raise UserError(f"--nodes {nodes}: must be 1 to 1000")
