"""What would be exported of a pool, under which names, and what stands in the way: a plan, told to a person.

app/poolcheck.py calls `check` with what it has read from a cluster or from files. It asks the controller's
own planner, so that the two cannot disagree, and tells every cause at once, where the status of a relay has
room for the first only. Pure: it carries nothing out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from isthmus.api.decode import Unreadable as UnreadableSpec
from isthmus.api.names import is_dns_label
from isthmus.api.poolrelay import pool_relay_name
from isthmus.poolrelay.plan import exports, publication, warnings
from isthmus.poolrelay.plan.model import (
    CreateExport,
    DeleteExport,
    ExportAction,
    Observed,
    Plan,
    RelaySettings,
    RepairExport,
    Wanted,
)
from isthmus.poolrelay.plan.ownership import is_ours, owner_text
from isthmus.poolrelay.plan.reconcile import plan

State = Literal[
    "exported", "create", "repair", "withdraw", "foreign", "terminating", "impossible", "withheld"
]
"""`create`, `repair` and `withdraw` are what the controller would do next; `withheld`: the relay is not
published, or nothing is exported at all."""
_DOES: Final[dict[type[ExportAction], State]] = {
    CreateExport: "create",
    RepairExport: "repair",
    DeleteExport: "withdraw",
}


class Export(msgspec.Struct, frozen=True, gc=False):
    """A name, the components whose Service has it, and how it stands."""

    name: str
    of: tuple[str, ...]
    state: State


class Finding(msgspec.Struct, frozen=True, gc=False):
    """Something that stands in the way. `reason` is that of the condition or event that tells it, where there
    is one."""

    reason: str
    text: str


class Check(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """All of it. Nothing stands in the way where `findings` is empty; `notes` are worth knowing."""

    namespace: str
    name: str
    published: bool
    cluster_id: str
    exports: tuple[Export, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    arrived: bool | None = None
    """Whether a discovery service lists it; None where none was asked."""


def check(observed: Observed, settings: RelaySettings) -> Check:
    """One relay as it was read. Whether the cluster's own ID is compared is up to `observed.cluster`."""
    planned = plan(observed, settings)
    wanted = _wanted(observed, settings)
    found = tuple(_exports(observed, planned, wanted))
    return Check(
        namespace=observed.key[0],
        name=observed.key[1],
        published=planned.withdrawn is None and not planned.hold,
        cluster_id=planned.cluster_id,
        exports=found,
        findings=tuple(_findings(observed, settings, found)),
        notes=planned.notes,
    )


def _wanted(observed: Observed, settings: RelaySettings) -> tuple[Wanted, ...]:
    relay, pool = observed.relay.metadata.name, observed.pool
    if pool is None or not is_dns_label(pool_relay_name(relay)):
        return ()
    return tuple(exports.wanted(relay, pool, settings.implementation).values())


def _exports(observed: Observed, planned: Plan, wanted: Iterable[Wanted]) -> Iterator[Export]:
    """The wanted names, and then what is there of ours and not wanted."""
    actions = {action.name: action for action in planned.exports}
    for want in wanted:
        yield Export(want.name, want.of, _state(want, actions.pop(want.name, None), observed))
    for name, action in actions.items():
        yield Export(name, (), _DOES[type(action)])


def _state(want: Wanted, action: ExportAction | None, observed: Observed) -> State:
    if action is not None:
        return _DOES[type(action)]
    export = observed.exports.get(want.name)
    if export is None:
        return "impossible" if want.problem else "withheld"
    if export.metadata.terminating:
        return "terminating"
    return "exported" if is_ours(export, observed.uid) else "foreign"


def _findings(observed: Observed, settings: RelaySettings, found: tuple[Export, ...]) -> Iterator[Finding]:
    if not settings.implementation:
        text = "multiCluster.mcsImplementation is empty in the operator's configuration: nothing is exported"
        yield Finding("ExportsOff", text)
    identity = publication.ClusterId()
    if not isinstance(observed.relay.spec, UnreadableSpec):
        identity = publication.cluster_id(observed.relay, observed.cluster)
    for cause in publication.causes(observed, settings, identity):
        yield Finding(cause.reason, cause.text)
    wanted = _wanted(observed, settings)
    if wanted and observed.pool is not None:
        for event in warnings.of_names(wanted, observed.pool):
            yield Finding(event.reason, event.note)
    if identity.value:
        for event in warnings.of_cluster_id(identity.value, observed.cluster):
            yield Finding(event.reason, event.note)
    for export in found:
        if export.state == "foreign":
            owner = owner_text(observed.exports[export.name])
            text = f"ServiceExport {export.name} is {owner}; it is left alone, and so this pool's is not made"
            yield Finding("ForeignExport", text)
        elif export.state == "terminating":
            text = f"ServiceExport {export.name} is being deleted; it is made anew once it is gone"
            yield Finding("TerminatingExport", text)
