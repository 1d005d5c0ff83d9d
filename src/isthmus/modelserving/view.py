"""What the planner is shown of one ModelServing: the answer of the store, and how revisions are told apart.

The store makes views; the controller plans on them. Immutable, pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing
from isthmus.api.pods import ControllerRevision
from isthmus.modelserving.plan.desired import desired
from isthmus.modelserving.plan.model import Desired, Group
from isthmus.modelserving.plan.reconcile import Revisions


class View(msgspec.Struct, frozen=True, gc=False):
    """One ModelServing at one instant. `groups` are by ordinal. `problems` are what a person should mend in
    the spec, although it can be acted on."""

    serving: ModelServing
    desired: Desired
    groups: Mapping[int, Group]
    revisions: Revisions
    problems: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A ModelServing whose spec cannot be acted on, and why: it got past the CRD's rules."""

    serving: ModelServing
    problem: str


def resolve(serving: ModelServing, held: dict[str, ControllerRevision]) -> Desired:
    """What a ModelServing asks for, given the revisions that are held under its name."""
    revisions = sort_revisions(held, serving.key[1], serving.metadata.uid)
    taken = held.keys() - {each.metadata.name for each in revisions.orphans}
    return desired(serving, revisions.owned, taken - revisions.taken.keys())


def sort_revisions(held: dict[str, ControllerRevision], serving: str, uid: str) -> Revisions:
    """Whose revisions these are; others' are left out, since their names can be passed over."""
    owned, orphans, taken = [], [], {}
    for name, revision in sorted(held.items()):
        owner = revision.metadata.controller()
        if revision.metadata.terminating:
            taken[name] = "is still terminating"
        elif owner is None:
            orphans.append(revision)
        elif owner.uid == uid:
            owned.append(revision)
        elif (owner.kind, owner.name) == (MODEL_SERVINGS.kind, serving):
            taken[name] = "was made for a former ModelServing of this name, and is being collected"
    return Revisions(tuple(owned), tuple(orphans), taken)
