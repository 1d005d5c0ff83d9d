"""Which operator works in which namespace, where a restricted one runs beside one of the whole cluster (R33).

An operator that is told its namespaces claims each of them with a Lease there, and works in it while it holds
that (`Claimant`). One of the whole cluster watches these Leases and leaves a namespace alone while somebody's
claim on it is fresh (`OtherClaims`). app/building.py puts `guard` before every reconcile. A claim is fresh
for its duration since its renewal was *seen*, so that clocks need not agree. It is given back at the end; one
that is not runs out. A new claim is acted on HANDOVER_S later, so that the other one has heard of it.
"""

from __future__ import annotations

import socket
from typing import Any, Final, NamedTuple, Protocol

from isthmus import logs
from isthmus.api.coordination import LEASES, Lease
from isthmus.api.meta import Key, Raw
from isthmus.api.times import format_micro_time
from isthmus.clock import Clock
from isthmus.errors import IsthmusError
from isthmus.kube.client import PatchKind
from isthmus.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from isthmus.runtime.cache import Cache, Change
from isthmus.runtime.controller import Again, Outcome, Reconcile
from isthmus.runtime.election import LeaseClient

log = logs.get(__name__)

NAME: Final = "isthmus-namespace"
"""The Lease by which a namespace is claimed."""
LABEL: Final = "isthmus.dev/claims-namespace"
HANDOVER_S: Final = 2.0
RETRY_S: Final = 1.0
"""Seconds to the next try where a claim cannot be had."""
RECHECK_S: Final = 5.0
"""Seconds after which a key that was put off is looked at again: how soon work goes on after a release."""


class Times(NamedTuple):
    """Seconds: how long a claim lasts, and how often it is renewed."""

    duration_s: float = 30.0
    renew_s: float = 10.0


class Claims(Protocol):
    """Whoever knows in which namespaces this process may work."""

    def wait_s(self, namespace: str) -> float:
        """Seconds after which to ask again; 0 where this process may work there now."""


class NoClaims:
    """Those of a process that may work anywhere."""

    def wait_s(self, namespace: str) -> float:
        """0."""
        return 0.0


def guard(claims: Claims, reconcile: Reconcile) -> Reconcile:
    """`reconcile`, put off for keys of namespaces in which this process may not work now."""

    async def guarded(key: Key) -> Outcome:
        wait_s = claims.wait_s(key[0])
        return Again(wait_s) if wait_s > 0 else await reconcile(key)

    return guarded


class _Seen(NamedTuple):
    """A claim's renewal, and when it was first seen, in monotonic seconds."""

    holder: str
    renewed: str | None
    at: float


class _Watched:
    """How fresh claims are, by what has been seen of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def left_s(self, namespace: str, lease: Lease) -> float:
        """Seconds until this claim runs out, unless it is renewed; 0 for one that is over."""
        spec = lease.spec
        known = self._seen.get(namespace)
        if known is None or (known.holder, known.renewed) != (spec.holder_identity or "", spec.renew_time):
            known = _Seen(spec.holder_identity or "", spec.renew_time, self._clock.monotonic())
            self._seen[namespace] = known
        if not known.holder:
            return 0.0
        return max(0.0, known.at + float(spec.lease_duration_seconds or 0) - self._clock.monotonic())

    def forget(self, namespace: str) -> None:
        """The Lease is gone."""
        self._seen.pop(namespace, None)


class OtherClaims:
    """The claims of others, for an operator of the whole cluster. See the module."""

    def __init__(self, cache: Cache[Lease], clock: Clock) -> None:
        self._cache = cache
        self._watched = _Watched(clock)
        self._told: dict[str, str] = {}
        cache.subscribe(self._changed)

    def wait_s(self, namespace: str) -> float:
        """See Claims: at most RECHECK_S, since a claim may be given back before it runs out."""
        lease = self._cache.get((namespace, NAME))
        left_s = self._watched.left_s(namespace, lease) if lease is not None else 0.0
        holder = lease.spec.holder_identity or "" if lease is not None and left_s else ""
        if self._told.get(namespace, "") != holder:
            text = "this namespace is another operator's" if holder else "this namespace is ours again"
            log.info(text, namespace=namespace, holder=holder)
            self._told[namespace] = holder
        return min(left_s, RECHECK_S)

    def _changed(self, change: Change[Lease]) -> None:
        namespace = change.key[0]
        if change.new is None:
            self._watched.forget(namespace)
        elif change.key[1] == NAME:
            self._watched.left_s(namespace, change.new)


class Claimant:
    """The claims of a restricted operator. Give `reconcile` to a runtime Controller with the keys of `keys`,
    and call `release` when no worker runs any more but this process still leads: a claim is for all replicas,
    so a former leader must not touch it (R15).

    Without the right to hold Leases in its namespaces it works there all the same, and says what is missing.
    """

    def __init__(
        self, client: LeaseClient, namespaces: tuple[str, ...], *, holder: str, clock: Clock, times: Times
    ) -> None:
        self._client = client
        self._namespaces = namespaces
        self._holder = holder
        self._clock = clock
        self._times = times
        self._watched = _Watched(clock)
        self._held: dict[str, tuple[float, float]] = {}  # namespace -> from, until (monotonic seconds)
        self._free: set[str] = set()
        self._told: dict[str, str] = {}

    def keys(self) -> list[Key]:
        """One for each namespace."""
        return [(namespace, NAME) for namespace in self._namespaces]

    def wait_s(self, namespace: str) -> float:
        """See Claims."""
        if namespace not in self._namespaces or namespace in self._free:
            return 0.0
        start, end = self._held.get(namespace, (0.0, 0.0))
        now = self._clock.monotonic()
        if now >= end:
            return RETRY_S
        return max(0.0, start - now)

    async def reconcile(self, key: Key) -> Outcome:
        """Claim one namespace, or renew the claim. Raises what failed but for a missing right."""
        namespace = key[0]
        try:
            held = await self._claim(namespace)
        except Forbidden as error:
            self._free.add(namespace)
            self._tell(
                namespace,
                "",
                "cannot claim this namespace: grant get, create and patch on leases; working in it unclaimed",
                error.message,
            )
            return Again(self._times.renew_s)
        self._free.discard(namespace)
        return Again(self._times.renew_s if held else RETRY_S)

    async def release(self) -> None:
        """Give back what is held. What cannot be given back runs out."""
        for namespace in list(self._held):
            del self._held[namespace]
            try:
                lease = await self._client.get(LEASES, namespace, NAME)
                if lease.spec.holder_identity == self._holder:
                    await self._write(namespace, lease, {"holderIdentity": ""})
            except IsthmusError as error:
                log.warning("a claim could not be given back", namespace=namespace, error=str(error))

    async def _claim(self, namespace: str) -> bool:
        asked = self._clock.monotonic()
        spec: Raw = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": round(self._times.duration_s),
            "renewTime": format_micro_time(self._clock.now()),
        }
        try:
            lease = await self._client.get(LEASES, namespace, NAME)
        except NotFound:
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": NAME, "namespace": namespace, "labels": {LABEL: "true"}},
                "spec": {**spec, "acquireTime": spec["renewTime"]},
            }
            try:
                await self._client.create(LEASES, namespace, body)
            except AlreadyExists:
                return False
            return self._hold(namespace, asked, new=True)
        ours = lease.spec.holder_identity == self._holder
        left_s = self._watched.left_s(namespace, lease)
        if not ours and left_s:
            self._held.pop(namespace, None)
            self._tell(namespace, str(lease.spec.holder_identity), "this namespace is another operator's")
            return False
        try:
            await self._write(namespace, lease, spec if ours else {**spec, "acquireTime": spec["renewTime"]})
        except (Conflict, NotFound):
            return False
        return self._hold(namespace, asked, new=not ours)

    def _hold(self, namespace: str, asked: float, *, new: bool) -> bool:
        start = self._held.get(namespace, (asked + HANDOVER_S if new else asked, 0.0))[0]
        self._held[namespace] = start, asked + self._times.duration_s
        self._tell(namespace, self._holder, "claimed this namespace")
        return True

    async def _write(self, namespace: str, lease: Lease, spec: Raw) -> None:
        metadata = {
            "uid": lease.metadata.uid,
            "resourceVersion": lease.metadata.resource_version,
            "labels": {LABEL: "true"},
        }
        body: Raw = {"metadata": metadata, "spec": spec}
        await self._client.patch(LEASES, namespace, NAME, body, kind=PatchKind.MERGE)

    def _tell(self, namespace: str, holder: str, text: str, error: str = "") -> None:
        if self._told.get(namespace) != holder:
            self._told[namespace] = holder
            more: dict[str, Any] = {"error": error} if error else {"holder": holder}
            (log.warning if error else log.info)(text, namespace=namespace, **more)


def holder_name(lease_namespace: str, lease_name: str, *, elected: bool) -> str:
    """Who a claim is for: all replicas that share an election lease are one; else this host's process."""
    return f"{lease_namespace}/{lease_name}" if elected else socket.gethostname()
