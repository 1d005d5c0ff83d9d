"""Which outdated things to replace now, so that never more than allowed are down: the same rule for groups
and roles.

Called by groups.py and roles.py. INV-1: the number of available things that a rollout takes down never brings
the available ones below `wanted - max_unavailable`. Healing comes before budget: what is outdated and already
broken is replaced at once and costs nothing, since it serves nobody (R01); what is incomplete and yet of use
goes only as far as enough others are of use. The budget is counted from what is available now, so whatever is
missing, starting, deleting or broken uses it up by itself, counted once (R03, MS-419).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Member(msgspec.Struct, frozen=True, gc=False):
    """One group, or one instance of a role, as a rollout sees it.

    `available`: complete and ready. `serving`: of use, as all that is available is. `outdated`: has another
    template than wanted. `protected`: below the partition. Things being deleted are not members.
    """

    ordinal: int
    available: bool
    serving: bool
    outdated: bool
    protected: bool = False


def replace(members: Iterable[Member], wanted: int, max_unavailable: int) -> list[int]:
    """The ordinals to replace now, in the order in which to do it: broken ones, then incomplete ones, then
    available ones, each from the highest ordinal down (MS-70, MS-73)."""
    members = list(members)
    floor = wanted - max_unavailable
    eligible = sorted((m for m in members if m.outdated and not m.protected), key=lambda m: -m.ordinal)
    broken = [m.ordinal for m in eligible if not m.serving]
    spare = max(0, sum(m.serving for m in members) - floor)
    incomplete = [m.ordinal for m in eligible if m.serving and not m.available][:spare]
    budget = min(spare - len(incomplete), sum(m.available for m in members) - floor)
    available = [m.ordinal for m in eligible if m.available][: max(0, budget)]
    return broken + incomplete + available
