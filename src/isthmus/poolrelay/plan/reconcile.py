"""One relay as it was observed -> its Plan: the order of section 17 as one pure function.

The controller calls `plan` in each pass, and again where a look at the API server has found strangers among
the children. Publication is decided first; a relay that is withdrawn loses its exports and then its Service,
a published one gets what is missing and nothing else. A plan on which nothing is left to do is empty (PR-71).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from isthmus.api.decode import Unreadable as UnreadableSpec
from isthmus.api.poolrelay import RelayChild
from isthmus.poolrelay.plan import children, exports, publication, warnings
from isthmus.poolrelay.plan.model import (
    GRAPH_KIND,
    RELAY,
    ExportAction,
    Observed,
    Plan,
    Pool,
    RelaySettings,
    Stranger,
    Verdict,
    Wanted,
)
from isthmus.poolrelay.plan.ownership import is_ours, owner_text

FRONTEND_SUFFIX: Final = "-frontend"
"""What a discovery service finds frontends by, unless it is told otherwise (PR-39)."""


def plan(observed: Observed, settings: RelaySettings) -> Plan:
    """What to do about one relay that is not being deleted; see the module."""
    relay = observed.relay
    identity = publication.ClusterId()
    if not isinstance(relay.spec, UnreadableSpec):
        identity = publication.cluster_id(relay, observed.cluster)
    verdict = publication.decide(observed, settings, identity)
    if verdict is not None:
        return _withdraw(observed, settings, verdict, identity.value)
    pool = observed.pool
    assert pool is not None
    unread = publication.unread(observed.cluster)
    about_id = tuple(warnings.of_cluster_id(identity.value, observed.cluster))
    if identity.unknown:
        return Plan(hold="the cluster's ID is not known yet", events=about_id, unread=unread)
    return _publish(observed, pool, settings, Plan(cluster_id=identity.value, events=about_id, unread=unread))


def _withdraw(observed: Observed, settings: RelaySettings, verdict: Verdict, cluster_id: str) -> Plan:
    return Plan(
        withdrawn=verdict,
        cluster_id=cluster_id,
        exports=exports.withdrawals(observed) if settings.export_version else (),
        children=children.withdrawals(observed),
        recheck_s=settings.conflict_recheck_s if observed.strangers else None,
    )


def _publish(observed: Observed, pool: Pool, settings: RelaySettings, begun: Plan) -> Plan:
    relay = observed.relay
    rendered = children.render(relay, pool, begun.cluster_id, settings)
    changes = children.actions(observed, rendered)
    if not settings.export_version:
        return Plan(cluster_id=begun.cluster_id, children=changes)
    wanted = exports.wanted(relay.metadata.name, pool, settings.implementation)
    steps, notes = _steps(wanted.values(), observed, pool, settings)
    return Plan(
        cluster_id=begun.cluster_id,
        exports=(*steps, *exports.withdrawals(observed, frozenset(wanted))),
        events=(*warnings.of_names(wanted.values(), pool), *begun.events),
        children=changes,
        notes=notes,
        unread=begun.unread,
    )


def _steps(
    wanted: Iterable[Wanted], observed: Observed, pool: Pool, settings: RelaySettings
) -> tuple[list[ExportAction], tuple[str, ...]]:
    """The actions for the wanted names, and what is worth a line in the log (PR-39, PR-115)."""
    steps: list[ExportAction] = []
    notes = []
    for want in wanted:
        step = exports.decide(want, observed.exports.get(want.name), observed, pool, settings)
        if not isinstance(step, str):
            steps.append(step)
        elif step == "foreign":
            whose = owner_text(observed.exports[want.name])
            notes.append(f"ServiceExport {want.name} is left alone: it is {whose}")
        elif step == "futile":
            notes.append(f"ServiceExport {want.name} does not keep what the configuration exports with it")
        if pool.kind == GRAPH_KIND and RELAY not in want.of and not want.name.endswith(FRONTEND_SUFFIX):
            notes.append(
                f"{want.name} does not end in {FRONTEND_SUFFIX}: a discovery service finds it only if told so"
            )
    return steps, tuple(notes)


def sort_children(
    found: Mapping[str, RelayChild], uid: str
) -> tuple[dict[str, RelayChild], tuple[Stranger, ...]]:
    """Objects by kind that have the children's names -> this relay's, and the others (PR-20, PR-29)."""
    ours = {kind: child for kind, child in found.items() if is_ours(child, uid)}
    others = tuple(
        Stranger(kind, child.metadata.name, owner_text(child))
        for kind, child in found.items()
        if kind not in ours
    )
    return ours, others
