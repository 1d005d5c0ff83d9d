"""The built-in plugins: what they change in a pod that is about to be created (MS-31, MS-107 to MS-109).

Called by objects.py last of all, with a pod that nothing else holds: each pod gets changes of its own
(MS-425). What the controller itself sets stays as it is, whatever a plugin's settings say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from isthmus.api import labels as keys
from isthmus.api.modelserving import Plugin, PluginScope
from isthmus.api.names import ordinal
from isthmus.api.plugins import LWS_LABELS, POD_TWEAKS, pod_tweaks

LWS_PREFIX: Final = "leaderworkerset.sigs.k8s.io/"


class Place(NamedTuple):
    """Which pod this is: number 0 is the entry. `leader_worker_set` owns its ModelServing, if not ""."""

    group: str
    role: str
    number: int
    leader_worker_set: str = ""


def change(raw_pod: dict[str, Any], plugins: Iterable[Plugin], place: Place) -> None:
    """Let each plugin whose scope the pod is in change it, in order. Lists and maps of `raw_pod` that come
    from a template are replaced, never changed. A plugin that does not exist, or whose settings cannot be
    read, is passed over: validation refuses to make pods then."""
    for plugin in plugins:
        work = _PLUGINS.get(plugin.name)
        if work is not None and _is_in(plugin.scope, place):
            work(raw_pod, plugin, place)


def _is_in(scope: PluginScope | None, place: Place) -> bool:
    """Whether a plugin is for this pod (MS-108)."""
    if scope is None:
        return True
    if scope.roles and place.role not in scope.roles:
        return False
    return scope.target == "All" or (scope.target == "Entry") == (place.number == 0)


def _tweak(raw_pod: dict[str, Any], plugin: Plugin, _: Place) -> None:
    tweaks = pod_tweaks(plugin)
    spec, metadata = raw_pod["spec"], raw_pod["metadata"]
    if tweaks.runtime_class_name:
        spec["runtimeClassName"] = tweaks.runtime_class_name
    old = metadata.get("annotations") or {}
    fixed = {key: old[key] for key in (keys.GANG_GROUP, keys.TASK_SPEC) if key in old}
    if tweaks.annotations:
        metadata["annotations"] = {**old, **tweaks.annotations, **fixed}
    env = [variable for variable in tweaks.env if variable["name"] not in keys.ENV]
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [with_env(container, env) for container in spec[field]]


def with_env(raw_container: dict[str, Any], env: list[dict[str, Any]]) -> dict[str, Any]:
    """The container with these variables last, instead of any of the same names (MS-29)."""
    ours = {each["name"] for each in env}
    kept = [each for each in raw_container.get("env") or [] if each.get("name") not in ours]
    return {**raw_container, "env": [*kept, *env]}


def _label(raw_pod: dict[str, Any], _: Plugin, place: Place) -> None:
    """The labels that LeaderWorkerSet's own controller gives its pods; only where one owns the
    ModelServing."""
    name = place.leader_worker_set
    if not name:
        return
    group = ordinal(place.group)
    raw_pod["metadata"]["labels"] |= {
        LWS_PREFIX + "name": name,
        LWS_PREFIX + "group-index": str(group),
        LWS_PREFIX + "worker-index": str(place.number),
        LWS_PREFIX + "group-key": hashlib.sha1(f"{name}-{group}".encode(), usedforsecurity=False).hexdigest(),
    }


_PLUGINS: Final[dict[str, Callable[[dict[str, Any], Plugin, Place], None]]] = {
    POD_TWEAKS: _tweak,
    LWS_LABELS: _label,
}
