"""The operator's cache against the API server's word: two views of the ModelServings, and how they differ.
Pure.

debug.py gives `differences` a dump and what it listed; the lines that come back are for people. A pod counts
for a ModelServing as in the store: by its labels, and owned by UID, so that leftovers of a former one of the
same name are not taken for it. States that only the planner can tell (Creating or Scaling) are compared only
as far as pods decide them: an instance that the cache calls Running must have no pod that does not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from isthmus.api.modelserving import ModelServing
from isthmus.api.pods import ServingPod
from isthmus.cli.dumps import visible
from isthmus.modelserving.dto import CacheDump, RoleInstanceDTO, ServingGroupDTO

RUNNING: Final = "Running"
CACHE_ONLY: Final = "is in the cache, but the API server has no such thing"
API_ONLY: Final = "is in the API, but not in the cache"


class Instance(msgspec.Struct):
    """What the API server has of one role instance: its pods' names, and what their labels say."""

    running: set[str] = msgspec.field(default_factory=set)
    waiting: set[str] = msgspec.field(default_factory=set)
    revisions: set[str] = msgspec.field(default_factory=set)
    hashes: set[str] = msgspec.field(default_factory=set)


Group = dict[tuple[str, str], Instance]
"""(role, role instance ID) -> what there is of it."""
View = dict[str, dict[str, Group]]
"""`namespace/name` -> group -> its instances: what the API server has."""


def is_running(pod: ServingPod) -> bool:
    """Whether the pod is one of `runningPods`: Running, ready, and not being deleted."""
    return pod.status.phase == RUNNING and pod.ready and not pod.metadata.terminating


def view(servings: Iterable[ModelServing], pods: Iterable[ServingPod]) -> View:
    """What the API server has: every ModelServing, and its own pods sorted into groups and instances."""
    uids = {serving.key: serving.metadata.uid for serving in servings}
    seen: View = {"/".join(key): {} for key in uids}
    for pod in pods:
        labels, owner = pod.metadata.labels, pod.metadata.controller()
        key = (pod.metadata.namespace, labels.name)
        if owner is None or uids.get(key) != owner.uid:
            continue
        group = seen["/".join(key)].setdefault(labels.group_name, {})
        instance = group.setdefault((labels.role, labels.role_id), Instance())
        (instance.running if is_running(pod) else instance.waiting).add(pod.metadata.name)
        instance.revisions.add(labels.revision)
        instance.hashes.add(labels.role_template_hash)
    return seen


def differences(dump: CacheDump, api: View) -> list[str]:
    """One line per difference, sorted; empty where the cache says what the API server says."""
    lines = [visible(line) for line in _pairs("ModelServing", dump, api)]
    for key in dump.keys() & api.keys():
        for line in _pairs("group", dump[key], api[key]):
            lines.append(visible(f"{key}: {line}"))
        for name in dump[key].keys() & api[key].keys():
            lines += (
                visible(f"{key}: group {name}: {line}") for line in _group(dump[key][name], api[key][name])
            )
    return sorted(lines)


def _pairs(noun: str, cached: Iterable[str], live: Iterable[str]) -> Iterator[str]:
    cached, live = set(cached), set(live)
    yield from (f"{noun} {name} {CACHE_ONLY}" for name in cached - live)
    yield from (f"{noun} {name} {API_ONLY}" for name in live - cached)


def _group(cached: ServingGroupDTO, live: Group) -> Iterator[str]:
    instances = {
        (role, instance_id): instance
        for role, by_id in cached.roles.items()
        for instance_id, instance in by_id.items()
    }
    yield from _pairs("instance", map("/".join, instances), map("/".join, live))
    running = {pod for instance in live.values() for pod in instance.running}
    yield from _pairs("running pod", cached.running_pods, running)
    for key in instances.keys() & live.keys():
        yield from (f"instance {'/'.join(key)}: {line}" for line in _instance(instances[key], live[key]))


def _instance(cached: RoleInstanceDTO, live: Instance) -> Iterator[str]:
    if cached.status == RUNNING and live.waiting:
        yield f"Running in the cache, but not running in the API: {', '.join(sorted(live.waiting))}"
    for what, value, values in (
        ("revision", cached.revision, live.revisions),
        ("role template hash", cached.role_template_hash, live.hashes),
    ):
        if value not in values:
            told = " and ".join(sorted(each or "(none)" for each in values))
            yield f"{what} {value or '(none)'} in the cache, {told} in the API"
