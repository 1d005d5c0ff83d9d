"""The words that the planner, the controller and the executor share: what is seen, what is to be done, what
to say.

store.py fills `Observed` from the caches; reconcile.py turns it into a `Plan`; executor.py carries the
actions out. A `Pool` is all that is known of a graph or a ModelServing here, whatever its kind and version.
Everything is frozen; nothing here computes more than a name.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from isthmus.api.configuration import RelayDiscovery, RelayLocation
from isthmus.api.meta import Key, Raw, Resource
from isthmus.api.poolrelay import ClusterProperty, DynamoPoolRelay, RelayChild, ServiceExport

GRAPH_KIND: Final = "DynamoGraphDeployment"
SERVING_KIND: Final = "ModelServing"
RELAY: Final = "relay"
"""What `Wanted.of` says of the relay's own Service."""

Implementation = Literal["", "mcs", "karmada"]


class RelaySettings(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What the operator's configuration says about relays, resolved once at the start.

    `export_version` is the version of exports that the cluster serves; empty where nothing is exported
    (PR-7). `image` and `command` are the relay's where its spec names none; `metadata_rights`, `discovery`
    and `location` are as in the configuration; `discovery_backend` is the graphs' default.
    `conflict_recheck_s`: how soon to look again whether a stranger has left a child's name, which no watch
    shows.
    """

    implementation: Implementation = ""
    export_version: str = ""
    exported_labels: Mapping[str, str] = {}
    exported_annotations: Mapping[str, str] = {}
    discovery_backend: str = "kubernetes"
    image: str = ""
    command: tuple[str, ...] = ("isthmus", "relay")
    metadata_rights: bool = False
    discovery: RelayDiscovery = RelayDiscovery()
    location: RelayLocation = RelayLocation()
    conflict_recheck_s: float = 15.0

    @property
    def checks_cluster_id(self) -> bool:
        """Whether the cluster's own ID is read at all (PR-14, PR-87)."""
        return self.implementation == "mcs"


class Frontend(NamedTuple):
    """A component that takes requests from outside, and its Service."""

    component: str
    service: str


class Pool(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A graph or a ModelServing, as far as its relay is concerned.

    `unsupported` says why the relay could not see its workers, or is empty (PR-25). `namespaces` are the
    Dynamo namespaces that the relay watches.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    terminating: bool = False
    unsupported: str = ""
    shared: bool = False
    has_workers: bool = True
    frontends: tuple[Frontend, ...] = ()
    namespaces: tuple[str, ...] = ()


class PropertyState(enum.Enum):
    """What is known of the cluster's own ID where there is none to compare with."""

    UNWATCHED = "unwatched"
    """Nobody looks: with karmada, or switched off (PR-87)."""
    UNKNOWN = "unknown"
    """It is looked for and has not been read yet: no reason to act or to withdraw."""
    ABSENT = "absent"
    """There is none, or no About API (PR-86, PR-88)."""


class Unreadable(NamedTuple):
    """It cannot be read now; `text` says why (PR-89)."""

    text: str


Property = PropertyState | Unreadable | ClusterProperty
"""The cluster's ID as the About API says it, or why there is none."""


class Stranger(NamedTuple):
    """An object that has a child's name and is not this relay's: it is never touched (PR-20)."""

    kind: str
    name: str
    owner: str


class Observed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One relay and all that its plan depends on, at one instant.

    `cluster` is what the cluster says of itself. `exports` are those of the namespace that have a wanted name
    or this relay's UID. `children` are this relay's, by kind; `strangers` have a child's name and are not.
    `futile` are the (UID, resourceVersion) of exports on which an apply has changed nothing.
    """

    relay: DynamoPoolRelay
    pool: Pool | None
    cluster: Property = PropertyState.UNWATCHED
    exports: Mapping[str, ServiceExport] = {}
    children: Mapping[str, RelayChild] = {}
    strangers: tuple[Stranger, ...] = ()
    futile: frozenset[tuple[str, str]] = frozenset()

    @property
    def key(self) -> Key:
        """(namespace, name) of the relay."""
        return self.relay.key

    @property
    def uid(self) -> str:
        """The relay's."""
        return self.relay.metadata.uid


class Related(NamedTuple):
    """The object that an event is about beside the relay, as it was read (PR-80)."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something to tell about the relay (PR-79 to PR-82). Every event has a related object, since otherwise
    two of one reason would become one."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: Literal["Export", "Withdraw", "CheckClusterID"]
    related: Related
    note: str


class Reason(enum.StrEnum):
    """Reasons of the condition Ready, in the order in which the first that holds is told (PR-30)."""

    INVALID_CONFIGURATION = "InvalidConfiguration"
    GRAPH_NOT_FOUND = "GraphNotFound"
    TARGET_NOT_FOUND = "TargetNotFound"
    GRAPH_TERMINATING = "GraphTerminating"
    TARGET_TERMINATING = "TargetTerminating"
    UNSUPPORTED_DISCOVERY = "UnsupportedDiscovery"
    SHARED_NAMESPACE = "SharedNamespace"
    NO_WORKERS = "NoWorkers"
    OWNERSHIP_CONFLICT = "OwnershipConflict"
    RECONCILE_FAILED = "ReconcileFailed"
    PROGRESSING = "Progressing"
    AVAILABLE = "Available"


class Verdict(NamedTuple):
    """Why a relay is withdrawn. `text` is for people."""

    reason: Reason
    text: str


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A Service that should be exported: the relay's own (`of` is RELAY), or that of the components named.
    `problem` is the reason why its name cannot be, or empty (PR-49, PR-50)."""

    name: str
    of: tuple[str, ...]
    problem: str = ""


class CreateExport(msgspec.Struct, frozen=True, gc=False):
    """POST an export that nothing is known to have the name of (PR-60)."""

    name: str
    body: Raw


class RepairExport(msgspec.Struct, frozen=True, gc=False):
    """Apply what is ours of an export, only if it is still as it was read (PR-63)."""

    export: ServiceExport
    body: Raw

    @property
    def name(self) -> str:
        """Of the export."""
        return self.export.metadata.name


class DeleteExport(msgspec.Struct, frozen=True, gc=False):
    """DELETE an export, only if it is still as it was read (PR-67)."""

    export: ServiceExport

    @property
    def name(self) -> str:
        """Of the export."""
        return self.export.metadata.name


ExportAction = CreateExport | RepairExport | DeleteExport


class CreateChild(msgspec.Struct, frozen=True, gc=False):
    """POST a child whose name is free."""

    resource: Resource[Any]
    body: Raw


class RepairChild(msgspec.Struct, frozen=True, gc=False):
    """Merge what was rendered into a child of ours that has drifted, only if it is still as it was read."""

    resource: Resource[Any]
    child: RelayChild
    body: Raw


class DeleteChild(msgspec.Struct, frozen=True, gc=False):
    """DELETE a child of ours, only if it is still as it was read."""

    resource: Resource[Any]
    child: RelayChild


ChildAction = CreateChild | RepairChild | DeleteChild


class Plan(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What to do about one relay now, in this order: exports, events, children, status.

    `withdrawn` says why it is not published, None where it is. `cluster_id` is the ID in effect. `notes` are
    lines for the log, not for people who watch the relay. `unread` says that the cluster's ID could not be
    read, which makes the pass fail after all else (PR-89). With `hold`, nothing is done at all, since what it
    names is not known yet. `recheck_s`: come again after so many seconds.
    """

    withdrawn: Verdict | None = None
    cluster_id: str = ""
    exports: tuple[ExportAction, ...] = ()
    events: tuple[Event, ...] = ()
    children: tuple[ChildAction, ...] = ()
    notes: tuple[str, ...] = ()
    unread: str = ""
    hold: str = ""
    recheck_s: float | None = None
