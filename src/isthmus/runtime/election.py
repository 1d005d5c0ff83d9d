"""One leader among replicas: holds a Lease, and is the gate that every other write of this process passes.

It carries out what runtime/election_state.py decides, one request at a time, each given up when the time to
renew is over. runtime/manager.py runs it as a task and starts workers when it leads; kube/client.py asks
`check` right before a write leaves. The client given here must be one without that gate, or the lease could
never be taken; a client of its own also keeps renewals out of the queue behind other requests. A lost lease
ends it for good: the process must end too (R15). Rights needed: get, create and patch on leases.
"""

from __future__ import annotations

import random
import socket
import uuid
from asyncio import Event
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

from isthmus import logs
from isthmus.api.coordination import LEASES, Lease
from isthmus.api.meta import Key, Raw, Resource
from isthmus.api.times import format_micro_time
from isthmus.clock import Clock
from isthmus.errors import IsthmusError, WorldError
from isthmus.kube.client import PatchKind, Written
from isthmus.kube.errors import AlreadyExists, Conflict, NotFound, WriteRefused
from isthmus.runtime import election_state as es
from isthmus.runtime.election_state import Durations
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import wait_first

log = logs.get(__name__)

JITTER = 0.2
"""Candidates wait up to this part longer than retry_s, so that they don't all ask at once."""


class LeaseLost(WorldError):
    """This process was the leader, and cannot know that it still is. It must not write, and must end."""


class LeaseClient(Protocol):
    """What is needed of kube.client.Client."""

    async def get(self, resource: Resource[Lease], namespace: str, name: str) -> Lease:
        """See Client.get."""

    async def create(self, resource: Resource[Any], namespace: str, body: Raw) -> Written:
        """See Client.create."""

    async def patch(
        self, resource: Resource[Any], namespace: str, name: str, body: Raw, *, kind: PatchKind
    ) -> Written:
        """See Client.patch."""


def unique_identity() -> str:
    """The host's name (in a pod, the pod's) and eight random digits: two processes never share one."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


class LeaderElector:
    """See the module. `lease`: (namespace, name) of the Lease. `identity` must be unique to this process.

    Raises ValueError for durations that do not fit together.
    """

    def __init__(
        self,
        client: LeaseClient,
        *,
        lease: Key,
        identity: str,
        clock: Clock,
        metrics: Metrics,
        durations: Durations = Durations(),  # noqa: B008 - immutable
    ) -> None:
        if problem := durations.problem():
            raise ValueError(problem)
        self.lease = lease
        self.identity = identity
        self._client = client
        self._clock = clock
        self._state = es.State(identity, durations)
        self._stop = Event()
        self._stop_seen = False
        self._complaint = ""
        metrics.read_gauge(
            "leader_election_master_status",
            "Whether this process is the leader.",
            lambda: float(self.leading),
            name=lease[1],
        )

    @property
    def leading(self) -> bool:
        """Whether a write may leave now."""
        return self._state.may_write(self._clock.monotonic(), self._clock.now())

    @property
    def leader(self) -> str:
        """The identity that held the lease when it was last seen; "" if nobody."""
        return self._state.observed.holder if self._state.observed is not None else ""

    def check(self) -> None:
        """Return if a write may leave at this moment. Raises WriteRefused otherwise."""
        if not self.leading:
            raise WriteRefused(
                f"this process ({self.identity}) does not hold the lease {'/'.join(self.lease)} now;"
                f" last seen holder: {self.leader or 'nobody'}"
            )

    def stop(self) -> None:
        """Refuse writes from now on, give the lease back, and let run() return."""
        self._stop.set()

    async def run(
        self, on_started: Callable[[], None] = lambda: None, on_stopped: Callable[[], None] = lambda: None
    ) -> None:
        """Try to lead, and hold on; return after stop(). Raises LeaseLost if the lease could not be renewed
        in time. `on_started` is called at most once; `on_stopped` after it, whatever ends the office."""
        led = False
        try:
            input_: es.Input = es.Tick(self._clock.monotonic(), self._stamp())
            while True:
                before = self._state
                self._state, effect = es.step(before, input_)
                self._tell(before, self._state)
                if self._state.phase is es.Phase.HOLDING and not led:
                    led = True
                    on_started()
                if isinstance(effect, es.End):
                    break
                input_ = await self._next(effect)
        finally:
            lost = self._state.phase is es.Phase.LOST
            self._state = replace(self._state, phase=es.Phase.LOST if lost else es.Phase.RELEASED)
            if led:
                on_stopped()
        if lost:
            raise LeaseLost(
                f"the lease {'/'.join(self.lease)} was not renewed in time; holder: {self.leader}"
            )

    async def _next(self, effect: es.Effect) -> es.Input:
        """Carry out the effect. A stop interrupts it, and so does the end of our time."""
        came: list[es.Input] = []

        async def act() -> None:
            came.append(await self._carry_out(effect))

        waits: list[Awaitable[Any]] = [act(), self._clock.sleep(self._time_left())]
        if not self._stop_seen:
            waits.append(self._stop.wait())
        await wait_first(*waits)
        if came:
            return came[0]
        if self._stop.is_set() and not self._stop_seen:
            self._stop_seen = True
            return es.Stop(self._clock.monotonic(), self._stamp())
        return es.Failed(self._clock.monotonic())

    def _time_left(self) -> float:
        if self._state.phase is es.Phase.CANDIDATE:
            return self._state.durations.renew_s
        return self._state.deadline - self._clock.monotonic()

    async def _carry_out(self, effect: es.Effect) -> es.Input:
        try:
            match effect:
                case es.Fetch():
                    return es.Fetched(await self._fetch(), self._clock.monotonic(), self._stamp())
                case es.Put(record=record):
                    sent_at, sent_wall = self._clock.monotonic(), self._clock.now()
                    version = await self._put(record)
                    self._complaint = ""
                    record = record._replace(version=version)
                    return es.Accepted(record, sent_at, sent_wall, self._clock.monotonic())
                case es.Wait(seconds=seconds):
                    if self._state.phase is es.Phase.CANDIDATE:
                        seconds *= 1 + JITTER * random.random()
                    await self._clock.sleep(seconds)
        except (Conflict, AlreadyExists, NotFound):
            return es.Refused(self._clock.monotonic())
        except IsthmusError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("cannot read or write the lease", lease=self.lease, error=self._complaint)
            return es.Failed(self._clock.monotonic())
        return es.Tick(self._clock.monotonic(), self._stamp())

    async def _fetch(self) -> es.Record | None:
        try:
            lease = await self._client.get(LEASES, *self.lease)
        except NotFound:
            return None
        spec = lease.spec
        return es.Record(
            holder=spec.holder_identity or "",
            lease_s=spec.lease_duration_seconds or 0,
            transitions=spec.lease_transitions or 0,
            acquired=spec.acquire_time or "",
            renewed=spec.renew_time or "",
            version=lease.metadata.resource_version,
        )

    async def _put(self, record: es.Record) -> str:
        """Create or patch the Lease; returns its new resourceVersion. A patch leaves alone what others put on
        the object, which a PUT of what was read would not."""
        namespace, name = self.lease
        raw_spec: Raw = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": int(record.lease_s),
            "leaseTransitions": record.transitions,
            "acquireTime": record.acquired,
            "renewTime": record.renewed,
        }
        if not record.version:
            raw_lease: Raw = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": name, "namespace": namespace},
                "spec": raw_spec,
            }
            return (await self._client.create(LEASES, namespace, raw_lease)).resource_version
        raw_patch: Raw = {"metadata": {"resourceVersion": record.version}, "spec": raw_spec}
        written = await self._client.patch(LEASES, namespace, name, raw_patch, kind=PatchKind.MERGE)
        return written.resource_version

    def _stamp(self) -> str:
        return format_micro_time(self._clock.now())

    def _tell(self, before: es.State, after: es.State) -> None:
        if before.phase is not after.phase:
            known = {"lease": "/".join(self.lease), "identity": self.identity}
            match after.phase:
                case es.Phase.HOLDING:
                    log.info("this process leads", **known)
                case es.Phase.LOST:
                    log.error("the lease is lost", holder=self.leader, **known)
                case es.Phase.RELEASED if before.phase is es.Phase.RELEASING:
                    log.info("the lease is given back", **known)
        holder = after.observed.holder if after.observed is not None else ""
        if holder not in ("", self.identity) and (
            before.observed is None or before.observed.holder != holder
        ):
            log.info("another process leads", holder=holder, lease="/".join(self.lease))
