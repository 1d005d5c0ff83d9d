"""What is remembered of a group between two plans, and what each event makes of it. Pure.

The store calls these while it leads. Only what no object says any more is remembered: deletions that are on
their way, pods that vanished and whom they left behind, how many restarts were survived
(docs/decisions/0006). Losing it loses no object: at worst a failure is counted anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from isthmus.api.meta import Object
from isthmus.api.pods import ServingPod
from isthmus.modelserving.plan.model import Group, Memory


def intending(memory: Memory, uid: str, *, with_group: bool) -> Memory:
    """The deletion of this pod is about to be asked for, with its whole group or with its instance."""
    condemned = memory.condemned | {uid} if with_group else memory.condemned
    return replace(memory, intended=memory.intended | {uid}, condemned=condemned)


def repenting(memory: Memory, uid: str) -> Memory:
    """The deletion was refused. Why it was wanted stays remembered."""
    return replace(memory, intended=memory.intended - {uid}, condemned=memory.condemned - {uid})


def bereft(memory: Memory, pod: ServingPod, left: Mapping[str, ServingPod]) -> Memory:
    """`pod` is gone, and unless it was deleted here, it is remembered which pods of its group it leaves
    behind (MS-84). `left` are all pods with the group's labels."""
    labels, owner = pod.metadata.labels, _owner_uid(pod)
    if pod.metadata.uid in memory.intended or not owner:
        return memory
    group = [each for each in left.values() if _owner_uid(each) == owner and not each.metadata.terminating]
    if not group:
        return memory
    instance = frozenset(
        each.metadata.uid for each in group if each.metadata.labels.role_id == labels.role_id
    )
    lost = {**memory.lost, labels.role_id: memory.lost.get(labels.role_id, frozenset()) | instance}
    everyone = frozenset(each.metadata.uid for each in group)
    bereaved = {**memory.bereaved, labels.role: memory.bereaved.get(labels.role, frozenset()) | everyone}
    return replace(memory, lost=lost if instance else memory.lost, bereaved=bereaved)


def calmed(memory: Memory, pod: ServingPod) -> Memory:
    """A pod is ready: what restarts it has had are no reason to act any more (MS-418)."""
    uid, restarts = pod.metadata.uid, pod.restarts
    if not restarts or not pod.ready or memory.calm.get(uid) == restarts:
        return memory
    return replace(memory, calm={**memory.calm, uid: restarts})


def settled(memory: Memory, planned: Memory, group: Group) -> Memory:
    """What is left to remember of `memory` after a plan was made on `planned`, an earlier state of it."""
    broken = {instance.id for instance in group.each() if instance.broken}
    lost = {
        role_id: left
        for role_id, uids in memory.lost.items()
        if (left := uids if role_id in broken else uids - planned.lost.get(role_id, frozenset()))
    }
    bereaved = {
        role: left
        for role, uids in memory.bereaved.items()
        if (left := uids if group.broken else uids - planned.bereaved.get(role, frozenset()))
    }
    failing = {each.uid: each.at for each in group.failures if each.at is not None}
    return replace(memory, lost=lost, bereaved=bereaved, failing=failing)


def without(memory: Memory, uid: str) -> Memory:
    """The pod of this UID is gone for good: nothing of it needs remembering."""
    return Memory(
        intended=memory.intended - {uid},
        condemned=memory.condemned - {uid},
        lost={role_id: uids - {uid} for role_id, uids in memory.lost.items() if uids - {uid}},
        bereaved={role: uids - {uid} for role, uids in memory.bereaved.items() if uids - {uid}},
        failing={each: at for each, at in memory.failing.items() if each != uid},
        calm={each: restarts for each, restarts in memory.calm.items() if each != uid},
    )


def _owner_uid(obj: Object) -> str:
    owner = obj.metadata.controller()
    return owner.uid if owner is not None else ""
