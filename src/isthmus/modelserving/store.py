"""All ServingGroups as their objects tell them: a view of the caches, kept up by each change, the same on
every replica.

Fed by the caches of ModelServings, pods, Services, PodGroups and ControllerRevisions; read by the controller
(`view`) and by the dump (`snapshot`). It holds nothing that the cluster does not say, apart from `memory`,
which only a leader keeps and which may be lost. INV-2: everything below a key is either immutable or
replaced, never changed, so that a snapshot is a copy of maps and what it refers to can be read in another
thread. INV-3: objects are told apart by UID; what belongs to a former ModelServing of the same name is
occupied space, never ours (R05).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from isthmus.api.decode import Unreadable
from isthmus.api.meta import Key
from isthmus.api.modelserving import ModelServing, Recovery
from isthmus.api.names import group_name
from isthmus.api.podgroups import PodGroup
from isthmus.api.pods import ControllerRevision, ServingPod, ServingService
from isthmus.api.validation import problems
from isthmus.modelserving.plan import memory
from isthmus.modelserving.plan.model import NOTHING_REMEMBERED, Desired, Facts, Group, Memory
from isthmus.modelserving.plan.observe import observe
from isthmus.modelserving.view import Refused, View, resolve, sort_revisions
from isthmus.runtime.cache import AnyCache, Cache, Change


@dataclass(frozen=True)
class Caches:
    """The caches that the store is a view of."""

    servings: Cache[ModelServing]
    pods: Cache[ServingPod]
    services: Cache[ServingService]
    revisions: Cache[ControllerRevision]
    pod_groups: Cache[PodGroup]
    """Of an API that need not be there; see gangapi.py."""

    @property
    def all(self) -> tuple[AnyCache, ...]:
        """Each of them."""
        return (self.servings, self.pods, self.services, self.revisions, self.pod_groups)


class Part(msgspec.Struct, frozen=True, gc=False):
    """One ModelServing in a snapshot: what its groups are computed from. `known` is what it asks for, if that
    has been resolved already; call `desired()`, not on the event loop, since resolving takes a
    millisecond."""

    serving: ModelServing
    revisions: dict[str, ControllerRevision]
    facts: dict[str, Facts]
    memory: dict[str, Memory]
    known: Desired | None

    @property
    def key(self) -> Key:
        """(namespace, name)."""
        return self.serving.key

    def desired(self) -> Desired:
        """What it asks for."""
        return self.known or resolve(self.serving, self.revisions)


class _Entry:
    """What is held under one key. It exists while any object with the key's labels does."""

    __slots__ = (
        "base",
        "blocking",
        "desired",
        "facts",
        "groups",
        "memory",
        "problems",
        "resolved",
        "revisions",
        "version",
    )

    def __init__(self) -> None:
        self.facts: dict[str, Facts] = {}
        self.revisions: dict[str, ControllerRevision] = {}
        self.memory: dict[str, Memory] = {}
        self.groups: dict[str, tuple[Facts, Memory, Desired, Group, Recovery | None]] = {}
        self.resolved: dict[str, ControllerRevision] | None = None
        self.version: tuple[str, int] = ("", 0)
        self.blocking = ""
        self.problems: tuple[str, ...] = ()
        self.base: Desired | None = None
        self.desired: Desired | None = None

    def is_resolved(self, serving: ModelServing) -> bool:
        """Whether `base` is what this spec and these revisions ask for."""
        return self.base is not None and self.version == _version(serving) and self.resolved is self.revisions


class Store:
    """See the module. `enqueue` is called with the key of each ModelServing that a change may concern."""

    def __init__(self, caches: Caches, enqueue: Callable[[Key], None]) -> None:
        self._caches = caches
        self._enqueue = enqueue
        self._entries: dict[Key, _Entry] = {}
        self._remembering = False
        caches.servings.subscribe(self._serving_changed)
        caches.pods.subscribe(self._pod_changed)
        caches.services.subscribe(self._service_changed)
        caches.pod_groups.subscribe(self._pod_group_changed)
        caches.revisions.subscribe(self._revision_changed)

    # Reading

    def keys(self) -> list[Key]:
        """The keys of all ModelServings."""
        return [serving.key for serving in self._caches.servings.values()]

    def sizes(self) -> dict[str, int]:
        """How much is held: names of ModelServings with objects, their groups, and groups of which something
        is remembered. All fall back to 0 with the objects."""
        entries = self._entries.values()
        return {
            "servings": len(entries),
            "groups": sum(len(entry.facts) for entry in entries),
            "remembered": sum(len(entry.memory) for entry in entries),
        }

    def incomplete(self) -> tuple[str, ...]:
        """Names of the caches that have not been listed yet; while there are any, nothing may be
        concluded."""
        caches = (cache for cache in self._caches.all if cache is not self._caches.pod_groups)
        return tuple(cache.name for cache in caches if not cache.complete)

    def view(self, key: Key, now: float) -> View | Refused | None:
        """The ModelServing `key` as of now (seconds since the epoch); None if it
        is gone."""
        serving = self._caches.servings.get(key)
        if serving is None:
            return None
        if isinstance(serving.spec, Unreadable):
            return Refused(serving, serving.spec.reason)
        entry = self._entries.setdefault(key, _Entry())
        wanted = self._desired(entry, serving)
        if entry.blocking:
            return Refused(serving, entry.blocking)
        assert entry.base is not None
        groups = {}
        past = {each.group: each for each in serving.status.recoveries}
        for name, facts in entry.facts.items():
            group = _observed(entry, name, facts, entry.base, past.get(name), now)
            if name == group_name(
                key[1], group.ordinal
            ):  # labels that name no group of ours stand for nothing
                groups[group.ordinal] = group
        revisions = sort_revisions(entry.revisions, key[1], wanted.uid)
        return View(serving, wanted, MappingProxyType(groups), revisions, entry.problems)

    def snapshot(self) -> list[Part]:
        """All ModelServings at this instant, immutable: copies of maps of a few thousand references, no
        objects."""
        parts = []
        for serving in self._caches.servings.values():
            if isinstance(serving.spec, Unreadable):
                continue
            entry = self._entries.get(serving.key)
            if entry is None:
                parts.append(Part(serving, {}, {}, {}, None))
                continue
            known = entry.base if entry.is_resolved(serving) else None
            parts.append(Part(serving, entry.revisions, dict(entry.facts), dict(entry.memory), known))
        return parts

    # Remembering (only while leading)

    def remember(self, on: bool) -> None:
        """Start or stop to tell vanished pods from those that were deleted here. A replica that does not lead
        sees the leader's deletions and cannot tell, so it must not remember any."""
        self._remembering = on
        for entry in self._entries.values():
            if not on:
                entry.memory.clear()
                continue
            for facts in entry.facts.values():
                for pod in facts.pods.values():
                    _note_calm(entry, pod)

    def intend(self, key: Key, pod: ServingPod, *, with_group: bool) -> None:
        """The deletion of this pod is about to be asked for; with its whole group, or with its instance."""
        entry, uid, group = self._entries.get(key), pod.metadata.uid, pod.metadata.labels.group_name
        facts = entry.facts.get(group) if entry is not None else None
        known = facts.pods.get(pod.metadata.name) if facts is not None else None
        if entry is None or known is None or known.metadata.uid != uid:
            return  # it is gone already, and nobody would forget it again
        _remember(entry, group, memory.intending(_memory(entry, group), uid, with_group=with_group))

    def repent(self, key: Key, pod: ServingPod) -> None:
        """The deletion was refused. Why it was wanted stays remembered."""
        entry, uid, group = self._entries.get(key), pod.metadata.uid, pod.metadata.labels.group_name
        if entry is not None:
            _remember(entry, group, memory.repenting(_memory(entry, group), uid))

    def settle(self, key: Key, groups: Mapping[int, Group]) -> None:
        """These groups were planned: losses that did not make one of them or its instances go need no
        remembering; failures do, for their grace. What happened since then stays untouched."""
        entry = self._entries.get(key)
        if entry is None or not self._remembering:
            return
        for group in groups.values():
            known = entry.groups.get(group.name)
            if known is not None and known[3] is group:
                _remember(entry, group.name, memory.settled(_memory(entry, group.name), known[1], group))

    # Being fed

    def _serving_changed(self, change: Change[ModelServing]) -> None:
        if change.new is None:
            entry = self._entries.get(change.key)
            if entry is not None:
                entry.memory.clear()
                entry.groups.clear()
                entry.base, entry.desired = None, None
                self._drop_if_empty(change.key, entry)
        self._enqueue(change.key)

    def _pod_changed(self, change: Change[ServingPod]) -> None:
        old, new = change.old, change.new
        key = _key_of(change.object)
        group = change.object.metadata.labels.group_name
        if old is not None and (new is None or _place(old) != _place(new)):
            self._remove_pod(old)
        if new is not None:
            entry = self._entries.setdefault(key, _Entry())
            facts = entry.facts.get(group)
            if facts is None:
                entry.facts[group] = Facts({new.metadata.name: new})
            else:
                entry.facts[group] = replace(facts, pods={**facts.pods, new.metadata.name: new})
            if self._remembering:
                _note_calm(entry, new)
        self._enqueue(key)

    def _remove_pod(self, pod: ServingPod) -> None:
        key, group = _key_of(pod), pod.metadata.labels.group_name
        entry = self._entries.get(key)
        facts = entry.facts.get(group) if entry is not None else None
        if entry is None or facts is None:
            return
        pods = {name: other for name, other in facts.pods.items() if name != pod.metadata.name}
        self._replace_facts(key, entry, group, replace(facts, pods=pods))
        if self._remembering:
            _remember(entry, group, memory.bereft(_memory(entry, group), pod, pods))
        _remember(entry, group, memory.without(_memory(entry, group), pod.metadata.uid))
        self._enqueue(key)

    def _service_changed(self, change: Change[ServingService]) -> None:
        self._part_changed("services", change.old, change.new)

    def _pod_group_changed(self, change: Change[PodGroup]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _place(old) == _place(new) and _is_alike(old, new):
            return  # Volcano writes the status of PodGroups all the time
        self._part_changed("pod_groups", old, new)

    def _part_changed(
        self,
        part: Literal["services", "pod_groups"],
        old: ServingService | PodGroup | None,
        new: ServingService | PodGroup | None,
    ) -> None:
        """Something that a group has beside its pods; `part` is the field of Facts that holds it."""
        if old is not None and (new is None or _place(old) != _place(new)):
            key, group = _key_of(old), old.metadata.labels.group_name
            entry = self._entries.get(key)
            facts = entry.facts.get(group) if entry is not None else None
            if entry is not None and facts is not None:
                kept = {
                    name: each for name, each in getattr(facts, part).items() if name != old.metadata.name
                }
                self._replace_facts(key, entry, group, replace(facts, **{part: kept}))
                self._enqueue(key)
        if new is not None:
            key, group = _key_of(new), new.metadata.labels.group_name
            entry = self._entries.setdefault(key, _Entry())
            facts = entry.facts.get(group, Facts())
            held = {**getattr(facts, part), new.metadata.name: new}
            entry.facts[group] = replace(facts, **{part: held})
            self._enqueue(key)

    def _revision_changed(self, change: Change[ControllerRevision]) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or _key_of(old) != _key_of(new)):
            key = _key_of(old)
            entry = self._entries.get(key)
            if entry is not None:
                entry.revisions = {k: v for k, v in entry.revisions.items() if k != old.metadata.name}
                self._drop_if_empty(key, entry)
                self._enqueue(key)
        if new is not None:
            key = _key_of(new)
            entry = self._entries.setdefault(key, _Entry())
            entry.revisions = {**entry.revisions, new.metadata.name: new}
            self._enqueue(key)

    # Inside

    def _desired(self, entry: _Entry, serving: ModelServing) -> Desired:
        """Resolved once per spec and set of revisions; the status, which changes most, is put in cheaply."""
        if not entry.is_resolved(serving):
            entry.base = entry.desired = resolve(serving, entry.revisions)
            entry.version, entry.resolved = _version(serving), entry.revisions
            found = problems(serving.metadata.name, entry.base.spec)
            entry.blocking = "; ".join(str(each) for each in found if each.blocking)
            entry.problems = tuple(str(each) for each in found)
        assert entry.base is not None
        assert entry.desired is not None
        if entry.desired.status is not serving.status:
            entry.desired = replace(entry.base, status=serving.status)
        return entry.desired

    def _replace_facts(self, key: Key, entry: _Entry, group: str, facts: Facts) -> None:
        if facts.pods or facts.services or facts.pod_groups:
            entry.facts[group] = facts
            return
        entry.facts.pop(group, None)
        entry.groups.pop(group, None)
        entry.memory.pop(group, None)
        self._drop_if_empty(key, entry)

    def _drop_if_empty(self, key: Key, entry: _Entry) -> None:
        if not entry.facts and not entry.revisions and self._caches.servings.get(key) is None:
            self._entries.pop(key, None)


def _version(serving: ModelServing) -> tuple[str, int]:
    return serving.metadata.uid, serving.metadata.generation


def _observed(
    entry: _Entry, name: str, facts: Facts, base: Desired, past: Recovery | None, now: float
) -> Group:
    held = _memory(entry, name)
    known = entry.groups.get(name)
    unchanged = known is not None and known[0] is facts and known[1] is held and known[2] is base
    if known is not None and unchanged and known[4] == past:
        group = known[3]
        if group.recheck_at is None or now < group.recheck_at:
            return group
    group = observe(name, facts, base, held, now, past)
    entry.groups[name] = (facts, held, base, group, past)
    return group


def _memory(entry: _Entry, group: str) -> Memory:
    return entry.memory.get(group, NOTHING_REMEMBERED)


def _note_calm(entry: _Entry, pod: ServingPod) -> None:
    group = pod.metadata.labels.group_name
    _remember(entry, group, memory.calmed(_memory(entry, group), pod))


def _remember(entry: _Entry, group: str, held: Memory) -> None:
    if held == NOTHING_REMEMBERED:
        entry.memory.pop(group, None)
    elif held != entry.memory.get(group):
        entry.memory[group] = held


def _is_alike(old: PodGroup, new: PodGroup) -> bool:
    """Whether two versions of a PodGroup are the same to the planner."""
    ours, theirs = old.metadata, new.metadata
    same = (ours.uid, ours.terminating, ours.owner_references)
    return same == (theirs.uid, theirs.terminating, theirs.owner_references) and old.spec == new.spec


def _key_of(obj: ServingPod | ServingService | ControllerRevision | PodGroup) -> Key:
    """The ModelServing that an object's labels name."""
    return (obj.metadata.namespace, obj.metadata.labels.name)


def _place(obj: ServingPod | ServingService | PodGroup) -> tuple[Key, str, str]:
    return _key_of(obj), obj.metadata.labels.group_name, obj.metadata.name
