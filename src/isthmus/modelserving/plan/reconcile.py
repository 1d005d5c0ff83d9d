"""The planner: what one ModelServing wants, what is there, and the time -> what to do.

Called by modelserving/controller.py with one snapshot of the store, and by `isthmus plan`. Pure: the same
arguments give the same plan. Nothing is made before its revision is stored (MS-54), since a revision that was
lost cannot be kept or returned to. A plan only ever moves towards what is desired; that it can be carried out
half, or on a view that is behind, is what tests/property holds against it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from isthmus.api.meta import Object
from isthmus.api.names import revision_name
from isthmus.api.podgroups import PodGroup
from isthmus.api.pods import ControllerRevision, ServingPod
from isthmus.modelserving.plan.draft import Draft
from isthmus.modelserving.plan.gang import consider
from isthmus.modelserving.plan.groups import plan_groups
from isthmus.modelserving.plan.model import (
    Act,
    Action,
    Adopt,
    Blocked,
    CreatePod,
    CreatePodGroup,
    CreateService,
    Desired,
    Done,
    DropRevision,
    Group,
    PersistRevision,
    Plan,
    RepairPodGroup,
)
from isthmus.modelserving.plan.status import status


class Revisions(msgspec.Struct, frozen=True, gc=False):
    """The ControllerRevisions that carry a ModelServing's label: `owned` by it, free for adoption
    (`orphans`), and names that are `taken` for a while by those of a former one, with the reason."""

    owned: tuple[ControllerRevision, ...] = ()
    orphans: tuple[ControllerRevision, ...] = ()
    taken: dict[str, str] = {}


def plan(desired: Desired, groups: Mapping[int, Group], revisions: Revisions, now: float) -> Plan:
    """What to do for one ModelServing. `groups` by ordinal, those included of which only others' names are
    there; `now` in seconds since the epoch."""
    draft = Draft()
    _keep_revision(desired, revisions, draft)
    for group in groups.values():
        for orphan in group.orphans:
            _adopt(_kind(orphan), orphan, draft)
    consider(desired, draft)
    plan_groups(groups, desired, draft)
    computed = status(groups, desired, draft, now)
    _drop_revisions(desired, groups, revisions, draft, computed.current_revision)
    recheck = min(
        (group.recheck_at for group in groups.values() if group.recheck_at is not None), default=None
    )
    waiting = (
        computed.available_replicas != desired.spec.replicas or computed.replicas != desired.spec.replicas
    )
    decision: Done | Blocked | Act
    if draft.actions:
        decision = Act(tuple(sorted(draft.actions, key=phase)), tuple(draft.reasons))
    elif waiting or draft.reasons or draft.problems:
        texts = tuple(draft.reasons) or tuple(text for _, text in draft.problems)
        decision = Blocked(texts or (computed.conditions[0].message,))
    else:
        decision = Done()
    return Plan(decision, computed, draft.states, recheck, tuple(draft.problems))


def phase(action: Action) -> int:
    """Revisions first, pods last; see controller.py for what is done at once."""
    if isinstance(action, PersistRevision):
        return 0
    if isinstance(action, Adopt | CreateService | CreatePodGroup | RepairPodGroup):
        return 1
    return 3 if isinstance(action, CreatePod | DropRevision) else 2


def _kind(orphan: Object) -> str:
    if isinstance(orphan, PodGroup):
        return "podgroups"
    return "pods" if isinstance(orphan, ServingPod) else "services"


def _adopt(kind: str, orphan: Object, draft: Draft) -> None:
    metadata = orphan.metadata
    draft.actions.append(Adopt(kind, metadata.name, metadata.uid, metadata.resource_version))
    draft.because(f"adopt {kind} {metadata.name}, which nobody owns")


def _keep_revision(desired: Desired, revisions: Revisions, draft: Draft) -> None:
    """Store the present revision in every pass that sees it unstored (MS-406, MS-409); wait where its name is
    taken."""
    for orphan in revisions.orphans:
        _adopt("controllerrevisions", orphan, draft)
    if desired.revision.name in desired.stored:
        return
    name = revision_name(desired.name, desired.revision.name)
    if revisions.orphans or name in revisions.taken:
        draft.may_create = False
        draft.because(f"ControllerRevision {name} {revisions.taken.get(name, 'may be among those adopted')}")
        return
    draft.actions.append(PersistRevision(desired.revision))
    draft.because(f"store revision {desired.revision.name}")


def _drop_revisions(
    desired: Desired, groups: Mapping[int, Group], revisions: Revisions, draft: Draft, current: str
) -> None:
    """Forget revisions that nothing uses or is owed, once the status that says so is written (MS-78,
    MS-405)."""
    if desired.status.current_revision != current or desired.revision.name not in desired.stored:
        return
    used = {current, desired.revision.name}
    for group in groups.values():
        used.update(instance.revision for instance in group.each())
    for revision in revisions.owned:
        label = revision.metadata.labels.revision
        if label not in used and not revision.metadata.terminating:
            metadata = revision.metadata
            draft.actions.append(DropRevision(metadata.name, metadata.uid, metadata.resource_version))
            draft.because(f"forget revision {label}, which nothing uses")
