"""The simulated node: scheduler and kubelet of a cluster whose containers are only claims in a pod's status,
except those of Isthmus' own image, which are processes (machine.py).

One per cluster, in the supervisor. It watches pods and Nodes, binds every pod that has no node whatever its
schedulerName, gives it an address, takes it to Running and Ready in one write (two writes per pod in all),
finalises deleted pods, and does the faults of faults.py. Each pod has at most one task, which is started
anew from the pod's `Life` whenever something about the pod changes; what it writes carries the pod's UID, so
a task that comes late never touches a successor. It never reads a clock but the one it was given.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from isthmus import logs
from isthmus.api.meta import Key
from isthmus.api.times import format_time, parse_time
from isthmus.clock import Clock
from isthmus.errors import IsthmusError, WorldError
from isthmus.kube import errors
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.watch import Reflector
from isthmus.sandbox import faults, podstatus
from isthmus.sandbox.addresses import Addresses
from isthmus.sandbox.faults import Fault, Kind
from isthmus.sandbox.lives import Feed, Life, real_changes
from isthmus.sandbox.machine import Machine
from isthmus.sandbox.manifest import CannotStart
from isthmus.sandbox.podstatus import Aspect, Shape
from isthmus.sandbox.resources import BINDINGS, NODES, PODS, NodeObject, Pod
from isthmus.sandbox.settings import NodeSettings
from isthmus.sandbox.workload import Workload

log = logs.get(__name__)

RETRY_S: Final = 0.3
MAX_BACKOFF_S: Final = 60.0

Raw = dict[str, Any]


class SimulatedNode:
    """See the module. `names` are its Nodes, which exist already; `settings` may be replaced at any time."""

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        client: Client,
        *,
        names: Sequence[str],
        addresses: Addresses,
        settings: NodeSettings,
        clock: Clock,
        machine: Machine | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._machine = machine
        self._addresses = addresses
        self.settings = settings
        self._clock = clock
        self._chance = chance
        self._lives: dict[Key, Life] = {}
        self._up = {name: asyncio.Event() for name in names}
        for up in self._up.values():
            up.set()
        self._turn = itertools.cycle(names)
        self._any_up = asyncio.Event()
        self._any_up.set()
        self._writes = asyncio.Semaphore(settings.writes)
        self._group: asyncio.TaskGroup | None = None
        self._pods = Reflector(
            client, PODS, sink=Feed(self.see_pod, self.lose_pod, self.keep_pods), clock=clock
        )
        self._nodes = Reflector(client, NODES, sink=Feed(self.see_node), clock=clock)

    async def run(self) -> None:
        """Be the node until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._pods.run())
            group.create_task(self._nodes.run())
            if self._machine is not None:
                group.create_task(self._machine.run())

    async def wait_synced(self) -> None:
        """Return once all pods and Nodes have been seen."""
        await self._pods.synced.wait()
        await self._nodes.synced.wait()

    # What the watches say

    def see_pod(self, pod: Pod) -> None:
        """A pod was added or changed."""
        life = self._lives.get(pod.key)
        if life is not None and life.pod.metadata.uid != pod.metadata.uid:
            self.lose_pod(life.pod)
            life = None
        wanted = self._read_faults(pod)
        if life is None:
            life = self._lives[pod.key] = Life(pod)
            if pod.status.phase in ("Running", "Failed", "Succeeded"):
                self._resume(life)
                life.faults = wanted
            else:
                life.ask(wanted)
        elif wanted == life.faults and pod.metadata.terminating == life.pod.metadata.terminating:
            life.pod = pod
            return
        else:
            life.pod = pod
            life.ask(wanted)
        self._restart(life)

    def lose_pod(self, pod: Pod) -> None:
        """A pod is gone."""
        life = self._lives.pop(pod.key, None)
        if life is None:
            return
        if life.task is not None:
            life.task.cancel()
        if self._machine is not None:
            self._machine.forget(pod.metadata.uid)
        if life.aspect is not None:
            self._addresses.free(life.aspect.address)

    def keep_pods(self, keys: set[Key]) -> None:
        """All pods that are not in `keys` are gone."""
        for key in self._lives.keys() - keys:
            self.lose_pod(self._lives[key].pod)

    def see_node(self, node: NodeObject) -> None:
        """A Node was added or changed: it is lost while its annotation says so."""
        up = self._up.get(node.metadata.name)
        if up is None:
            return
        lost = faults.has(self._read_faults(node), Kind.NODE_LOST)
        if lost is not up.is_set():
            return
        if lost:
            up.clear()
        else:
            up.set()
        if any(each.is_set() for each in self._up.values()):
            self._any_up.set()
        else:
            self._any_up.clear()
        self._spawn(self._report_node(node.metadata.name, lost=lost))

    # One pod

    async def _live(self, life: Life) -> None:
        if life.pod.metadata.terminating:
            await self._finish(life)
            return
        if self._machine is not None and self._machine.wants(life.pod):
            await self._live_really(life, self._machine)
            return
        if life.aspect is None:
            await self._come_up(life)
        elif not life.written:
            # The task before this one was stopped in the middle of its write.
            await self._write(life)
        backoff_s = 0.0
        while not life.over:
            if life.pending:
                await self._happen(life, life.pending.pop(0))
            elif faults.has(life.faults, Kind.CRASHLOOP):
                backoff_s = min(
                    MAX_BACKOFF_S, backoff_s * 2 or faults.seconds_of(life.faults, Kind.CRASHLOOP)
                )
                await self._crash(life, backoff_s, Shape.BACKING_OFF)
                await self._write(life, shape=Shape.RUNNING, ready=False)
                await self._clock.sleep(min(1.0, backoff_s))
            elif (ready := not faults.has(life.faults, Kind.NEVER_READY, Kind.UNREADY)) != self._is_ready(
                life
            ):
                await self._write(life, shape=Shape.RUNNING, ready=ready)
            else:
                return

    async def _live_really(self, life: Life, machine: Machine) -> None:
        """A pod of our image: its status follows its process."""
        if life.aspect is None:
            await self._settle(life)
            life.written = False
        assert life.aspect is not None
        while life.workload is None and not life.over:
            try:
                life.workload = await machine.start(life.pod, life.aspect.address)
            except CannotStart as error:
                await self._write(life, shape=Shape.BLOCKED, ready=False, why=(error.reason, str(error)))
                return
            except WorldError as error:
                log.warning("a pod's process could not be prepared", error=str(error))
                await self._clock.sleep(RETRY_S)
            else:
                self._spawn(life.workload.run())
        while life.workload is not None and not life.over:
            life.workload.changed.clear()
            if life.pending:
                await self._happen_really(life, life.workload, life.pending.pop(0))
            elif changes := real_changes(life.aspect, life.workload.state, life.faults):
                await self._write(life, **changes)
            elif not life.written and life.workload.state.running:
                await self._write(life)
            else:
                await life.workload.changed.wait()

    async def _happen_really(self, life: Life, workload: Workload, fault: Fault) -> None:
        match fault.kind:
            case Kind.FAIL | Kind.EVICT:
                workload.give_up()
                await self._happen(life, fault)
            case Kind.NODE_LOST:
                await self._happen(life, fault)
            case _:
                workload.kill()

    async def _settle(self, life: Life) -> None:
        """Give a pod its node and address."""
        if not life.node:
            await self._bind(life)
        settings = self.settings
        await self._clock.sleep(settings.ready_delay_s + settings.ready_jitter_s * self._chance())
        now = format_time(self._clock.now())
        life.aspect = Aspect(address=self._addresses.take(), started=now, changed=now)

    async def _come_up(self, life: Life) -> None:
        await self._settle(life)
        if faults.has(life.faults, Kind.FAIL, Kind.EVICT):
            return
        if slow_s := faults.seconds_of(life.faults, Kind.SLOW):
            await self._write(life, ready=False)
            await self._clock.sleep(slow_s)
        blocked = faults.has(life.faults, Kind.NEVER_READY, Kind.CRASHLOOP, Kind.UNREADY)
        await self._write(life, ready=not blocked)

    async def _bind(self, life: Life) -> None:
        await self._any_up.wait()
        node = next(name for name in self._turn if self._up[name].is_set())
        raw_binding = podstatus.binding(life.pod, node)
        namespace = life.pod.metadata.namespace
        try:
            await self._send(lambda: self._client.create(BINDINGS, namespace, raw_binding))
        except errors.WrongAnswer:
            pass  # What a Binding is answered with is a Status, which names no object.
        except errors.Conflict:
            # Bound by an attempt whose answer was lost, or by somebody else; the watch says to which.
            node = life.pod.spec.node_name or node
        life.node = node

    async def _happen(self, life: Life, fault: Fault) -> None:
        match fault.kind:
            case Kind.FAIL:
                await self._write(life, shape=Shape.FAILED, ready=False)
            case Kind.EVICT:
                await self._write(life, shape=Shape.EVICTED, ready=False)
            case Kind.NODE_LOST:
                await self._mark_lost(life.node)
            case _:
                await self._crash(life, fault.seconds, Shape.RUNNING)

    async def _crash(self, life: Life, down_s: float, shape: Shape) -> None:
        """The first container ends and is started again at once (RUNNING) or backs off, for `down_s`."""
        assert life.aspect is not None
        now = format_time(self._clock.now())
        await self._write(life, shape=shape, ready=False, restarts=life.aspect.restarts + 1, crashed=now)
        await self._clock.sleep(down_s)

    async def _finish(self, life: Life) -> None:
        pod = life.pod
        deadline = parse_time(pod.metadata.deletion_timestamp or "1970-01-01T00:00:00Z")
        grace_s = max(0.0, deadline - self._clock.now())
        hang_s = faults.seconds_of(life.faults, Kind.HANG_TERMINATION)
        if life.workload is not None:
            await life.workload.stop(grace_s)
        await self._clock.sleep(min(self.settings.delete_delay_s, grace_s) + hang_s)
        await self._wait_up(life)
        uid = pod.metadata.uid
        await self._send(lambda: self._client.delete(PODS, *pod.key, uid=uid, grace_period_s=0))

    def _is_ready(self, life: Life) -> bool:
        return life.aspect is not None and life.aspect.ready and life.aspect.shape is Shape.RUNNING

    async def _write(self, life: Life, **changes: Any) -> None:
        """Write the pod's status with some fields of its aspect changed."""
        assert life.aspect is not None
        if changes.get("ready", life.aspect.ready) != life.aspect.ready or "shape" in changes:
            changes["changed"] = format_time(self._clock.now())
        life.aspect = msgspec.structs.replace(life.aspect, **changes)
        life.written = False
        await self._wait_up(life)
        await self._write_aspect(life)
        life.written = True

    async def _write_aspect(self, life: Life) -> None:
        pod = life.pod
        aspect = life.aspect
        assert aspect is not None
        body = {"metadata": {"uid": pod.metadata.uid}, "status": podstatus.status_of(pod, aspect)}
        await self._send(
            lambda: self._client.patch(PODS, *pod.key, body, kind=PatchKind.MERGE, subresource="status")
        )

    # A whole node

    async def _mark_lost(self, node: str) -> None:
        raw_patch = {"metadata": {"annotations": {faults.ANNOTATION: str(Kind.NODE_LOST)}}}
        await self._send(lambda: self._client.patch(NODES, "", node, raw_patch, kind=PatchKind.MERGE))

    async def _report_node(self, node: str, *, lost: bool) -> None:
        """What the control plane does when a node stops reporting, and the kubelet when it is back."""
        now = format_time(self._clock.now())
        raw_patch = {"status": {"conditions": [podstatus.node_condition(lost=lost, now=now)]}}
        await self._send(
            lambda: self._client.patch(
                NODES, "", node, raw_patch, kind=PatchKind.STRATEGIC, subresource="status"
            )
        )
        for life in [each for each in self._lives.values() if each.node == node and not each.over]:
            if life.aspect is None or life.pod.metadata.terminating:
                continue
            life.aspect = msgspec.structs.replace(life.aspect, lost=lost, changed=now)
            self._spawn(self._write_aspect(life))

    async def _wait_up(self, life: Life) -> None:
        up = self._up.get(life.node)
        if up is not None and not up.is_set():
            await up.wait()

    # Tasks and requests

    def _restart(self, life: Life) -> None:
        if life.task is not None:
            life.task.cancel()
        life.task = self._spawn(self._live(life))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        assert self._group is not None
        return self._group.create_task(_unharmed(work))

    async def _send(self, request: Callable[[], Awaitable[Any]]) -> None:
        """Send until it is answered. Raises ApiError for an answer that repeating cannot change."""
        while True:
            try:
                async with self._writes:
                    await request()
            except (errors.Conflict, errors.WrongAnswer):
                raise
            except WorldError as error:
                log.debug("write failed; trying again", error=str(error))
                await self._clock.sleep(RETRY_S)
            else:
                return

    def _resume(self, life: Life) -> None:
        """A pod that a former node brought up: go on from what its status says."""
        status = life.pod.status
        address = status.pod_ip or self._addresses.take()
        self._addresses.claim(address)
        now = format_time(self._clock.now())
        life.aspect = Aspect(
            address=address,
            started=now,
            changed=now,
            shape=Shape.RUNNING if status.phase == "Running" else Shape.FAILED,
            ready=status.phase == "Running",
            restarts=max((each.restart_count for each in status.container_statuses), default=0),
        )

    def _read_faults(self, obj: Pod | NodeObject) -> tuple[Fault, ...]:
        text = obj.metadata.annotations.get(faults.ANNOTATION, "")
        if not text:
            return ()
        try:
            return faults.parse(text)
        except ValueError as error:
            log.warning("annotation ignored", object="/".join(obj.key), error=str(error))
            return ()


async def _unharmed(work: Awaitable[None]) -> None:
    """One pod's trouble stays its own: a pod that is gone or replaced needs nothing more."""
    try:
        await work
    except (errors.NotFound, errors.Conflict):
        pass
    except IsthmusError as error:
        log.warning("the simulated node gave up on an object", error=str(error))
    except Exception:
        log.exception("the simulated node failed on an object")
