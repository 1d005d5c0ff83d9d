"""A small model of the objects around one ModelServing, for property tests: no API server, only their rules.

Objects live by name with UID and resourceVersion; deletion takes a step; a kubelet makes pods ready, unready,
failed or restarted; watches deliver changes to real caches and a real store, as late as a test wants. `act`
makes one pass of the controller: it plans on what was delivered, and carries the plan out wholly, in part, or
until the operator dies. Every pass is held against the invariants of `rules.py`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from isthmus.api.meta import Key, Object, OwnerReference, Raw
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing, Spec, Status
from isthmus.api.podgroups import POD_GROUPS, PodGroup
from isthmus.api.pods import (
    CONTROLLER_REVISIONS,
    SERVING_PODS,
    SERVING_SERVICES,
    ControllerRevision,
    PodStatus,
    ServingPod,
    ServingService,
)
from isthmus.api.times import format_time
from isthmus.modelserving.plan import objects
from isthmus.modelserving.plan.gang import FULL_OFFER, in_cluster
from isthmus.modelserving.plan.model import (
    Act,
    Action,
    Adopt,
    CreatePod,
    CreatePodGroup,
    CreateService,
    DeletePod,
    DeletePodGroup,
    DeleteService,
    Desired,
    DropRevision,
    PersistRevision,
    Plan,
    RepairPodGroup,
    RepairService,
)
from isthmus.modelserving.plan.reconcile import phase, plan
from isthmus.modelserving.store import Caches, Store
from isthmus.modelserving.view import View
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics
from tests.support.serving import NOW, crashed_status, failed_status, ready_status, unready_status

OK, REFUSED, LOST = "ok", "refused", "lost"
"""How a request ends: done; not done; done, and the operator does not learn it."""

Fate = Callable[[int], str]


def all_ok(_: int) -> str:
    """Every request is done."""
    return OK


class World:
    """See the module. `key` is that of the one ModelServing; `images` tells which image each pod UID has."""

    def __init__(self, serving: ModelServing) -> None:
        self.now = NOW
        self.offer = FULL_OFFER
        self._versions = itertools.count(100)
        self._uids = itertools.count(1)
        self.key: Key = serving.key
        self.objects: dict[str, dict[str, Any]] = {name: {} for name in _RESOURCES}
        self.bodies: dict[str, Raw] = {}  # pod UID -> as it was sent
        self.births: dict[str, list[str]] = defaultdict(list)  # pod name -> UIDs, oldest first
        self.deletions: list[DeletePod] = []
        self.counted: dict[str, int] = {}  # pod UID -> the count of the recovery that it led to
        self.checks: list[Callable[[World, View, Plan], None]] = []
        self.objects["modelservings"][serving.metadata.name] = serving
        self._queues: dict[str, deque[tuple[bool, Any]]] = {}
        self.restart()

    # What is there

    @property
    def serving(self) -> ModelServing:
        """The ModelServing as the API server has it."""
        found: ModelServing = self.objects["modelservings"][self.key[1]]
        return found

    @property
    def spec(self) -> Spec:
        """Its spec."""
        assert isinstance(self.serving.spec, Spec)
        return self.serving.spec

    @property
    def pods(self) -> dict[str, ServingPod]:
        """Pods by name."""
        return self.objects["pods"]

    @property
    def services(self) -> dict[str, ServingService]:
        """Services by name."""
        return self.objects["services"]

    @property
    def revisions(self) -> dict[str, ControllerRevision]:
        """ControllerRevisions by name."""
        return self.objects["controllerrevisions"]

    @property
    def pod_groups(self) -> dict[str, PodGroup]:
        """PodGroups by name."""
        return self.objects["podgroups"]

    def image(self, pod: ServingPod) -> str:
        """The image that the pod was created with."""
        image: str = self.bodies[pod.metadata.uid]["spec"]["containers"][0]["image"]
        return image

    def size(self, pod: ServingPod) -> int:
        """How many pods its instance has, as it was told."""
        env = self.bodies[pod.metadata.uid]["spec"]["containers"][0]["env"]
        return next(int(each["value"]) for each in env if each["name"] == "GROUP_SIZE")

    # Writing to the API server

    def put(self, resource: str, obj: Any) -> Any:
        """Store an object as a new version, and tell the watches."""
        written = replace(obj, metadata=replace(obj.metadata, resource_version=str(next(self._versions))))
        self.objects[resource][obj.metadata.name] = written
        self._queues[resource].append((False, written))
        return written

    def drop(self, resource: str, name: str) -> None:
        """Remove an object at once, and tell the watches."""
        obj = self.objects[resource].pop(name)
        last = replace(obj, metadata=replace(obj.metadata, resource_version=str(next(self._versions))))
        self._queues[resource].append((True, last))

    def create(self, resource: str, raw: Raw) -> str:
        """Create an object; "" or why not."""
        name = raw["metadata"]["name"]
        if name in self.objects[resource]:
            return "exists"
        uid = f"{resource}-{next(self._uids)}"
        metadata = {**raw["metadata"], "uid": uid, "creationTimestamp": format_time(self.now)}
        obj = _convert(resource, {**raw, "metadata": metadata})
        if resource == "pods":
            self.bodies[uid] = raw
            self.births[name].append(uid)
            obj = replace(obj, status=PodStatus(phase="Pending"))
        self.put(resource, obj)
        return ""

    def edit(self, change: Callable[[Raw], None]) -> None:
        """Change the spec as a person does; a change that changes nothing is none."""
        raw: Raw = {
            "metadata": {"name": ""},
            "spec": msgspec.json.decode(msgspec.json.encode(self.serving.spec)),
        }
        before = msgspec.json.encode(raw, order="sorted")
        change(raw["spec"])
        if msgspec.json.encode(raw, order="sorted") == before:
            return
        spec = msgspec.json.decode(msgspec.json.encode(raw), type=ModelServing).spec
        metadata = replace(self.serving.metadata, generation=self.serving.metadata.generation + 1)
        self.put("modelservings", replace(self.serving, metadata=metadata, spec=spec))

    def succeed(self) -> None:
        """Somebody deletes the ModelServing and makes one of the same name and spec; the old one's objects
        are still there."""
        old = self.serving
        self.drop("modelservings", self.key[1])
        metadata = replace(old.metadata, uid=f"successor-{next(self._uids)}", generation=1)
        self.put("modelservings", replace(old, metadata=metadata, status=Status()))

    def collect_garbage(self, number: int) -> None:
        """The garbage collector deletes some of what has no owner any more."""
        for resource in ("pods", "services", "controllerrevisions", "podgroups"):
            for index, (name, obj) in enumerate(sorted(self.objects[resource].items())):
                owner = obj.metadata.controller()
                if owner is None or owner.uid == self.serving.metadata.uid or not number >> index % 16 & 1:
                    continue
                self.delete(name) if resource == "pods" else self.drop(resource, name)

    # Kubelet, people, garbage collection

    def alive(self) -> list[ServingPod]:
        """Pods that are not terminating, in the order of their names."""
        return [pod for _, pod in sorted(self.pods.items()) if not pod.metadata.terminating]

    def dying(self) -> list[ServingPod]:
        """Pods that are terminating."""
        return [pod for _, pod in sorted(self.pods.items()) if pod.metadata.terminating]

    def can_serve(self, pod: ServingPod) -> bool:
        """Whether the kubelet will get it ready."""
        return self.image(pod) != "bad" and pod.status.phase != "Failed"

    def make_ready(self, pod: ServingPod) -> None:
        """The kubelet gets the pod ready, where it can."""
        if self.can_serve(pod) and not pod.ready:
            self._set_status(pod, ready_status(since=self.now, restarts=pod.restarts))

    def make_unready(self, pod: ServingPod) -> None:
        """A probe fails; no container ends."""
        if pod.ready:
            restarted = replace(
                unready_status(since=self.now), container_statuses=pod.status.container_statuses
            )
            self._set_status(pod, restarted)

    def crash(self, pod: ServingPod) -> None:
        """A container ends and is started again."""
        if pod.status.phase != "Failed":
            self._set_status(pod, crashed_status(at=self.now, since=self.now, restarts=pod.restarts + 1))

    def fail(self, pod: ServingPod) -> None:
        """The pod is evicted, or ends for good."""
        self._set_status(pod, failed_status(at=self.now))

    def delete(self, name: str) -> None:
        """Somebody deletes a pod, with grace."""
        pod = self.pods.get(name)
        if pod is not None and not pod.metadata.terminating:
            metadata = replace(pod.metadata, deletion_timestamp=format_time(self.now))
            self.put("pods", replace(pod, metadata=metadata))

    def vanish(self, name: str) -> None:
        """The pod is gone: its grace is over, or its deletion was forced."""
        if name in self.pods:
            self.drop("pods", name)

    def _set_status(self, pod: ServingPod, status: PodStatus) -> None:
        self.put("pods", replace(self.pods[pod.metadata.name], status=status))

    # Watches

    def deliver(self, resource: str, count: int = 10**9) -> None:
        """Let the watch of this resource show so many changes."""
        queue, cache = self._queues[resource], self._caches[resource]
        for _ in range(min(count, len(queue))):
            removed, obj = queue.popleft()
            (cache.remove if removed else cache.upsert)("", obj)

    def deliver_all(self) -> None:
        """Let all watches catch up."""
        for resource in _RESOURCES:
            self.deliver(resource)

    @property
    def behind(self) -> bool:
        """Whether a watch has changes that it has not shown."""
        return any(self._queues.values())

    # The operator

    def restart(self) -> None:
        """The operator dies and starts again: its memory is lost, its caches are listed afresh."""
        self._caches: dict[str, Cache[Any]] = {
            name: Cache(resource, metrics=Metrics()) for name, resource in _RESOURCES.items()
        }
        self.queued: list[Key] = []
        self.store = Store(
            Caches(
                servings=self._caches["modelservings"],
                pods=self._caches["pods"],
                services=self._caches["services"],
                revisions=self._caches["controllerrevisions"],
                pod_groups=self._caches["podgroups"],
            ),
            self.queued.append,
        )
        self.store.remember(True)
        for name in _RESOURCES:
            self._queues[name] = deque()
            items = list(self.objects[name].values())
            self._caches[name].replace("", items, str(next(self._versions)))
        self._lacking: set[str] = set()
        self._written: dict[str, int] = {}
        self._deleted: list[tuple[str, str, str]] = []

    def view(self) -> View:
        """What the operator sees."""
        found = self.store.view(self.key, self.now)
        assert isinstance(found, View), found
        return replace(found, desired=in_cluster(found.desired, found.serving, self.offer))

    def plan(self) -> Plan:
        """What the operator would do now, without doing it."""
        view = self.view()
        return plan(view.desired, view.groups, view.revisions, self.now)

    def act(self, *, fate: Fate = all_ok, dies_after: int | None = None, blind: bool = False) -> Plan:
        """One pass of the controller. `fate` says how each request ends, by its number; the operator dies
        after `dies_after` of them. It waits to see its own writes first, unless it is `blind`."""
        if not blind:
            self._catch_up()
        while self._caches["modelservings"].get(self.key) is None:
            self.deliver("modelservings", 1)  # a successor whose creation has not been shown yet
        view = self.view()
        made = plan(view.desired, view.groups, view.revisions, self.now)
        for check in self.checks:
            check(self, view, made)
        serving_uid = view.serving.metadata.uid
        if (
            made.status.recoveries != view.serving.status.recoveries
            and serving_uid == self.serving.metadata.uid
        ):
            self._note("modelservings", self.put("modelservings", replace(self.serving, status=made.status)))
        failed = False
        number = 0
        self._lacking = set()
        for wanted_phase in range(4):
            for action in made.decision.actions if isinstance(made.decision, Act) else ():
                if phase(action) != wanted_phase:
                    continue
                if number == dies_after:
                    self.restart()
                    return made
                failed |= not self._carry_out(view.desired, action, fate(number))
                number += 1
            if failed and wanted_phase == 0:
                break
        if number == dies_after:
            self.restart()
            return made
        self.store.settle(self.key, view.groups)
        if made.status != self.serving.status and serving_uid == self.serving.metadata.uid:
            written = self.put("modelservings", replace(self.serving, status=made.status))
            self._note("modelservings", written)
        return made

    def run(self, passes: int = 60) -> Plan:
        """Let everything happen until nothing does any more; the last plan."""
        for _ in range(passes):
            self.deliver_all()
            before = next(self._versions)
            made = self.act()
            self.deliver_all()
            for pod in self.dying():
                self.vanish(pod.metadata.name)
            for pod in self.alive():
                self.make_ready(pod)
            self.now += 1
            if next(self._versions) == before + 1:
                if made.recheck_at is None:
                    return made
                self.now = max(self.now, made.recheck_at)
        raise AssertionError(f"still busy after {passes} passes: {made.decision}")

    def _catch_up(self) -> None:
        for resource, version in self._written.items():
            while self._caches[resource].seen(self.key[0]) < version and self._queues[resource]:
                self.deliver(resource, 1)
        for resource, name, uid in self._deleted:
            while self._shows_alive(resource, name, uid) and self._queues[resource]:
                self.deliver(resource, 1)
        self._written.clear()
        self._deleted.clear()

    def _shows_alive(self, resource: str, name: str, uid: str) -> bool:
        obj: Object | None = self._caches[resource].get((self.key[0], name))
        return obj is not None and obj.metadata.uid == uid and not obj.metadata.terminating

    def _note(self, resource: str, obj: Object) -> None:
        self._written[resource] = max(self._written.get(resource, 0), int(obj.metadata.resource_version))

    def _carry_out(self, wanted: Desired, action: Action, fate: str) -> bool:
        """Whether the operator believes that it was done."""
        if isinstance(action, DeletePod):
            self.store.intend(self.key, action.pod, with_group=action.with_group)
            self.deletions.append(action)
        done = fate != REFUSED and self._request(wanted, action, noted=fate == OK)
        if not done or fate == LOST:
            if isinstance(action, CreatePodGroup):
                self._lacking.add(action.group)
            if isinstance(action, DeletePod):
                self.store.repent(self.key, action.pod)
            return False
        return True

    def _request(self, wanted: Desired, action: Action, *, noted: bool) -> bool:
        match action:
            case CreatePod(group, template, revision, instance, index, ganged):
                seen = self._caches["podgroups"].get((self.key[0], group))
                if ganged and not seen and group not in self.pod_groups and group not in self._lacking:
                    raise AssertionError(f"a pod of {group} before its PodGroup")
                if group in self._lacking:
                    return False
                raw = objects.pod(wanted, group, template, revision, instance, index, ganged=ganged)
                return self._create("pods", raw, noted)
            case CreatePodGroup() | RepairPodGroup() | DeletePodGroup():
                return self._on_pod_group(wanted, action, noted)
            case CreateService(group, role, instance):
                return self._create("services", objects.service(wanted, group, role, instance), noted)
            case PersistRevision(revision):
                number = 1 + max((each.number for each in wanted.stored.values()), default=0)
                raw = objects.controller_revision(wanted, revision, number)
                return self._create("controllerrevisions", raw, noted)
            case DeletePod(pod):
                return self._delete("pods", _identity(pod), noted)
            case DeleteService(service):
                return self._delete("services", _identity(service), noted)
            case DropRevision(name, uid, version):
                return self._delete("controllerrevisions", (name, uid, version), noted)
            case RepairService(group, role, instance, service):
                raw = objects.service(wanted, group, role, instance)
                spec = replace(service.spec, selector=raw["spec"]["selector"])
                return self._patch("services", _identity(service), spec=spec)
            case Adopt(kind, name, uid, version):
                return self._adopt(wanted, kind, (name, uid, version))

    def _on_pod_group(
        self, wanted: Desired, action: CreatePodGroup | RepairPodGroup | DeletePodGroup, noted: bool
    ) -> bool:
        match action:
            case CreatePodGroup(group, spec):
                return self._create("podgroups", objects.pod_group(wanted, group, spec), noted)
            case RepairPodGroup(pod_group, spec):
                return self._patch("podgroups", _identity(pod_group), spec=spec)
            case DeletePodGroup(pod_group):
                return self._delete("podgroups", _identity(pod_group), noted)

    def _adopt(self, wanted: Desired, kind: str, identity: tuple[str, str, str]) -> bool:
        owners = msgspec.convert([objects.owner_reference(wanted)], tuple[OwnerReference, ...])
        obj = self.objects[kind].get(identity[0])
        return obj is not None and self._patch(
            kind, identity, metadata=replace(obj.metadata, owner_references=owners)
        )

    def _patch(self, resource: str, identity: tuple[str, str, str], **fields: Any) -> bool:
        if self._changed(resource, identity):
            return False
        self._note(resource, self.put(resource, replace(self.objects[resource][identity[0]], **fields)))
        return True

    def _delete(self, resource: str, identity: tuple[str, str, str], noted: bool) -> bool:
        name = identity[0]
        if self._changed(resource, identity):
            return name not in self.objects[resource]
        if resource == "pods":
            self.delete(name)
        else:
            self.drop(resource, name)
        if noted:
            self._deleted.append((resource, name, identity[1]))
        return True

    def _create(self, resource: str, raw: Raw, noted: bool) -> bool:
        if self.create(resource, raw):
            held = self.objects[resource][raw["metadata"]["name"]]
            owner = held.metadata.controller()
            if owner is None or owner.uid != self.serving.metadata.uid:
                return False
        if noted:
            self._note(resource, self.objects[resource][raw["metadata"]["name"]])
        return True

    def _changed(self, resource: str, identity: tuple[str, str, str]) -> bool:
        held = self.objects[resource].get(identity[0])
        return held is None or _identity(held) != identity


def _identity(obj: Object) -> tuple[str, str, str]:
    """Name, UID and resourceVersion: what a deletion or patch is conditional on."""
    return obj.metadata.name, obj.metadata.uid, obj.metadata.resource_version


_RESOURCES: dict[str, Any] = {
    "modelservings": MODEL_SERVINGS,
    "pods": SERVING_PODS,
    "services": SERVING_SERVICES,
    "controllerrevisions": CONTROLLER_REVISIONS,
    "podgroups": POD_GROUPS,
}


def _convert(resource: str, raw: Raw) -> Any:
    """Decode as a watch does, bytes and all."""
    return msgspec.json.decode(msgspec.json.encode(raw), type=_RESOURCES[resource].type)


def _pick(pods: list[ServingPod], number: int) -> ServingPod | None:
    return pods[number % len(pods)] if pods else None


def _on(
    pods: Callable[[World], list[ServingPod]], do: Callable[[World, ServingPod], None]
) -> Callable[..., None]:
    def step(world: World, number: int) -> None:
        pod = _pick(pods(world), number)
        if pod is not None:
            do(world, pod)

    return step


def _partly(world: World, number: int) -> Plan:
    """Some requests are refused and some answers lost: two bits of the number for each request."""
    fates = (OK, REFUSED, LOST, OK)
    return world.act(fate=lambda index: fates[(number >> (2 * (index % 8))) & 3])


def _ready_many(world: World, number: int) -> None:
    for index, pod in enumerate(world.alive()):
        if number >> (index % 16) & 1:
            world.make_ready(pod)


def _gone_many(world: World, number: int) -> None:
    for index, pod in enumerate(world.dying()):
        if number >> (index % 16) & 1:
            world.vanish(pod.metadata.name)


def _deliver_some(world: World, number: int) -> None:
    name = list(_RESOURCES)[number % len(_RESOURCES)]
    world.deliver(name, 1 + number // len(_RESOURCES) % 8)


def _wait(world: World, number: int) -> None:
    world.now += number % 40


STEPS: dict[str, Callable[[World, int], Plan | None]] = {
    "act": lambda world, _: world.act(),
    "partly": _partly,
    "die": lambda world, number: world.act(dies_after=number % 9),
    "restart": lambda world, _: world.restart(),
    "deliver": _deliver_some,
    "catch-up": lambda world, _: world.deliver_all(),
    "ready": _ready_many,
    "gone": _gone_many,
    "wait": _wait,
    "unready": _on(World.alive, World.make_unready),
    "crash": _on(World.alive, World.crash),
    "fail": _on(World.alive, World.fail),
    "delete": _on(World.alive, lambda world, pod: world.delete(pod.metadata.name)),
    "force": _on(World.alive, lambda world, pod: world.vanish(pod.metadata.name)),
}
CALM = ("act", "act", "partly", "die", "restart", "deliver", "catch-up", "ready", "ready", "gone", "wait")
"""Steps in which nothing breaks but the operator."""
NUMBERS = st.integers(0, 2**16 - 1)
FAULTS = ("unready", "crash", "fail", "delete", "force")


def scripts(*words: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    """Scripts of these words, each with a number that says to what; also long ones, which plain lists hardly
    ever are."""
    step = st.tuples(st.sampled_from(words), NUMBERS)
    return st.sampled_from((0, 4, 12, 30)).flatmap(
        lambda size: st.lists(step, min_size=size // 2, max_size=size)
    )
