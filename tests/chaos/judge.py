"""Watches every version of every object, and says what must never be and was: the judge of a chaos run.

run.py gives it caches of its own and tells it what it does itself (`did`). What one version tells is compared
with what was true at some time from LAG_S before to GRACE_S after: the operator decides on a cache that is a
little behind, and each kind has a watch of its own. Nothing here asks the cluster.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final, NamedTuple

from isthmus.api.decode import Unreadable
from isthmus.api.modelserving import ModelServing, Role, Spec
from isthmus.api.names import group_name, ordinal, pod_name
from isthmus.api.percent import resolve
from isthmus.api.pods import ControllerRevision, ServingPod, ServingService
from isthmus.modelserving.store import Caches
from isthmus.runtime.cache import Change

LAG_S: Final = 4.0
GRACE_S: Final = 2.0
TAIL: Final = 60


class _Question(NamedTuple):
    """Whether at least `least` groups but those in `but` were available around `at`; asked GRACE_S later."""

    at: float
    serving: ModelServing
    least: int
    but: frozenset[str]
    what: str


class Judge:
    """See the module. `faults` are what it found, each with the end of the history of its ModelServing."""

    def __init__(self, caches: Caches) -> None:
        self.faults: list[str] = []
        self.versions = 0
        self.ours: set[str] = set()
        """UIDs of pods that the run itself deletes, or makes fail."""
        self.foreign: dict[str, str] = {}
        """Name -> UID of pods that nobody may touch."""
        self._caches = caches
        self._history: dict[str, deque[str]] = {}
        self._available: dict[tuple[str, str], float] = {}  # (ModelServing's UID, group) -> when last so
        self._current: dict[str, set[str]] = {}  # ModelServing's UID -> groups that are
        self._floors: dict[
            str, deque[tuple[float, int, int, dict[str, int]]]
        ] = {}  # when, groups that must stay, replicas
        self._down: dict[tuple[str, str], float] = {}  # taken down by the operator, and when
        self._open: list[_Question] = []
        self._began = time.monotonic()
        caches.servings.subscribe(self._serving)
        caches.pods.subscribe(self._pod)
        caches.services.subscribe(self._service)
        caches.revisions.subscribe(self._revision)

    def did(self, name: str, what: str) -> None:
        """Note something that the run does, in the history of one ModelServing or, for "", of all."""
        for each in [name] if name else list(self._history) or [""]:
            self._note(each, f"* {what}")

    def history(self, name: str) -> str:
        """The end of what happened to one ModelServing."""
        return "\n".join(self._history.get(name, ()))

    def _note(self, name: str, what: str) -> None:
        at = time.monotonic() - self._began
        self._history.setdefault(name, deque(maxlen=TAIL)).append(f"{at:8.2f} {what}")

    def _fail(self, name: str, what: str) -> None:
        self._note(name, f"! {what}")
        self.faults.append(f"{what}\n{self.history(name)}")

    def _serving(self, change: Change[ModelServing]) -> None:
        self.versions += 1
        self.settle()
        new, old = change.new, change.old
        if new is None or isinstance(new.spec, Unreadable):
            self._note(change.key[1], "ModelServing is gone")
            return
        name, status, now = new.metadata.name, new.status, time.monotonic()
        self._touch(new.metadata.uid)
        self._note(
            name,
            f"ModelServing generation {new.metadata.generation}, wants {new.spec.replicas}: observed "
            f"{status.observed_generation}, replicas {status.replicas}, updated {status.updated_replicas}, "
            f"available {status.available_replicas}",
        )
        self._floors.setdefault(new.metadata.uid, deque(maxlen=50)).append(
            (now, *_floor(new.spec), _counts(new.spec))
        )
        if status.observed_generation > new.metadata.generation:
            self._fail(name, "observedGeneration is of a generation that is not there yet")
        before = (
            old.status.available_replicas if old is not None and old.metadata.uid == new.metadata.uid else 0
        )
        if status.available_replicas > before and new.spec.template.roles[0].replicas:
            claimed = status.available_replicas
            self._open.append(
                _Question(now, new, claimed, frozenset(), f"status claims {claimed} available groups")
            )

    def _pod(self, change: Change[ServingPod]) -> None:
        self.versions += 1
        self.settle()
        old, new = change.old, change.new
        pod = new if new is not None else old
        assert pod is not None
        metadata, labels = pod.metadata, pod.metadata.labels
        if metadata.name in self.foreign:
            self._foreign(change)
            return
        owner = metadata.controller()
        state = (
            "gone"
            if new is None
            else f"{new.status.phase} ready={new.ready} terminating={metadata.terminating}"
        )
        self._note(labels.name, f"pod {metadata.name} {metadata.uid[:8]} at {labels.revision}: {state}")
        if owner is None or owner.kind != "ModelServing":
            self._fail(labels.name, f"pod {metadata.name} has no ModelServing as its controller")
            return
        index = ordinal(metadata.name)
        if metadata.name != pod_name(labels.group_name, labels.role_id, index):
            self._fail(labels.name, f"pod {metadata.name} has labels of another")
        if labels.group_name != group_name(labels.name, ordinal(labels.group_name)) or not labels.revision:
            self._fail(labels.name, f"pod {metadata.name} has labels that are wrong: {labels}")
        began = new is not None and metadata.terminating and old is not None and not old.metadata.terminating
        vanished = new is None and old is not None and not old.metadata.terminating
        serving = self._caches.servings.get((metadata.namespace, labels.name))
        if serving is None or serving.metadata.uid != owner.uid or serving.metadata.terminating:
            return
        if isinstance(serving.spec, Unreadable):
            return
        self._touch(owner.uid)
        if (began or vanished) and old is not None and metadata.uid not in self.ours:
            self._taken_down(serving, serving.spec, old)
        self._remember(serving)

    def _taken_down(self, serving: ModelServing, spec: Spec, pod: ServingPod) -> None:
        """A pod of a group that was available is deleted by the operator: the first of its group counts."""
        name, now = serving.metadata.name, time.monotonic()
        group = pod.metadata.labels.group_name
        if spec.rollout_strategy is not None and spec.rollout_strategy.type == "RoleRollingUpdate":
            return
        is_there = group in self._current.get(serving.metadata.uid, ())
        if not is_there:
            return
        floors = list(self._floors[serving.metadata.uid])
        valid = [
            each
            for index, each in enumerate(floors)
            if index + 1 == len(floors) or now - floors[index + 1][0] <= LAG_S
        ]
        least = min(each[1] for each in valid)
        counts = valid[-1][3]
        labels = pod.metadata.labels
        if any(each[3] != counts for each in valid) or ordinal(labels.role_id) >= counts.get(labels.role, 0):
            return  # its role has become smaller
        groups = {
            each.metadata.labels.group_name
            for each in self._caches.pods.values()
            if each.metadata.labels.name == name
        }
        if len(groups) > min(each[2] for each in valid):
            return  # it may be one too many
        uid = serving.metadata.uid
        self._down[uid, group] = now
        down = frozenset(its for (each, its), at in self._down.items() if each == uid and now - at <= LAG_S)
        what = f"{', '.join(sorted(down))} are taken down, {least} must be left"
        self._open.append(_Question(now, serving, least, down, what))

    def settle(self) -> None:
        """Answer the questions that are due."""
        now = time.monotonic()
        due = [each for each in self._open if now >= each.at + GRACE_S]
        self._open = [each for each in self._open if now < each.at + GRACE_S]
        for each in due:
            there = self._available_groups(each.serving, each.at) - each.but
            if len(there) < each.least:
                self._fail(each.serving.metadata.name, f"{each.what}; only {sorted(there)} are available")

    def _available_groups(self, serving: ModelServing, at: float) -> set[str]:
        """The groups that were available at some time since LAG_S before `at`."""
        uid = serving.metadata.uid
        recent = {
            group for (its, group), last in self._available.items() if its == uid and last >= at - LAG_S
        }
        return recent | self._current.get(uid, set())

    def _touch(self, uid: str) -> None:
        """What was available until now."""
        for group in self._current.get(uid, ()):
            self._available[uid, group] = time.monotonic()

    def _remember(self, serving: ModelServing) -> None:
        uid = serving.metadata.uid
        groups: dict[str, list[ServingPod]] = {}
        for pod in self._caches.pods.values():
            owner = pod.metadata.controller()
            if owner is not None and owner.uid == uid:
                groups.setdefault(pod.metadata.labels.group_name, []).append(pod)
        if isinstance(serving.spec, Unreadable):
            return
        least = sum(role.replicas * (1 + _workers(role)) for role in serving.spec.template.roles)
        self._current[uid] = {
            group
            for group, pods in groups.items()
            if len(pods) >= least and all(_serves(pod) for pod in pods)
        }
        self._touch(uid)
        for group in self._current[uid]:
            self._down.pop((uid, group), None)

    def _service(self, change: Change[ServingService]) -> None:
        self.versions += 1
        service = change.new
        if service is None:
            return
        labels = service.metadata.labels
        self._note(labels.name, f"Service {service.metadata.name} {service.metadata.uid[:8]}")
        if service.metadata.name != pod_name(labels.group_name, labels.role_id, 0):
            self._fail(labels.name, f"Service {service.metadata.name} has labels of another")

    def _revision(self, change: Change[ControllerRevision]) -> None:
        self.versions += 1
        revision = change.new if change.new is not None else change.old
        assert revision is not None
        labels = revision.metadata.labels
        self._note(labels.name, f"ControllerRevision {labels.revision}" + ("" if change.new else " is gone"))

    def _foreign(self, change: Change[ServingPod]) -> None:
        pod = change.new
        if pod is None or pod.metadata.terminating or pod.metadata.uid != self.foreign[change.key[1]]:
            self._fail("", f"foreign pod {change.key[1]} was touched")
        elif (owner := pod.metadata.controller()) is not None and owner.kind == "ModelServing":
            self._fail("", f"foreign pod {change.key[1]} was adopted")


def _serves(pod: ServingPod) -> bool:
    return pod.ready and pod.status.phase == "Running" and not pod.metadata.terminating


def _workers(role: Role) -> int:
    return role.worker_replicas if role.worker_template is not None else 0


def _counts(spec: Spec) -> dict[str, int]:
    return {role.name: role.replicas for role in spec.template.roles}


def _floor(spec: Spec) -> tuple[int, int]:
    """(groups that a rollout must leave available, groups wanted)."""
    strategy, replicas = spec.rollout_strategy, spec.replicas
    configuration = strategy.rolling_update_configuration if strategy is not None else None
    value = configuration.max_unavailable if configuration is not None else None
    return replicas - (1 if value is None else max(1, resolve(value, replicas))), replicas
