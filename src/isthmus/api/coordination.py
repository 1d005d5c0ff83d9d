"""Leases and Events: the two kinds of Kubernetes' own machinery that the runtime reads or writes.

runtime/election.py reads and updates a Lease; runtime/events.py creates Events (events.k8s.io/v1) from raw
JSON and reads back no more than their name. Nothing here decides anything.
"""

from __future__ import annotations

from typing import Final

from isthmus.api.meta import Frozen, Object, Resource


class LeaseSpec(Frozen, frozen=True, kw_only=True):
    """spec of a Lease. Times are RFC 3339 text with microseconds; the duration is in seconds."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True, kw_only=True):
    """A coordination.k8s.io/v1 Lease."""

    spec: LeaseSpec = LeaseSpec()


class EventSeries(Frozen, frozen=True, kw_only=True):
    """How often an Event was repeated, and when last."""

    count: int
    last_observed_time: str


class Event(Object, frozen=True, kw_only=True):
    """An events.k8s.io/v1 Event, as far as tests and `isthmus explain` read it."""

    type: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""
    reporting_controller: str = ""
    reporting_instance: str = ""
    event_time: str | None = None
    series: EventSeries | None = None


LEASES: Final = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", type=Lease)
EVENTS: Final = Resource(group="events.k8s.io", version="v1", plural="events", kind="Event", type=Event)
