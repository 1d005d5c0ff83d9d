from __future__ import annotations

import msgspec

from isthmus.api.coordination import EVENTS, LEASES, Event, Lease


def test_lease_must_be_read() -> None:
    lease = msgspec.json.decode(
        b'{"metadata":{"name":"l"},"spec":{"holderIdentity":"a","leaseDurationSeconds":15,'
        b'"acquireTime":"2026-01-01T00:00:00.000000Z","renewTime":null,"leaseTransitions":2}}',
        type=Lease,
    )
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("a", 15)
    assert (lease.spec.renew_time, lease.spec.lease_transitions) == (None, 2)


def test_event_must_be_read_with_its_series() -> None:
    event = msgspec.json.decode(
        b'{"metadata":{"name":"e"},"type":"Warning","reason":"R","action":"A","note":"n",'
        b'"series":{"count":3,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}',
        type=Event,
    )
    assert event.series is not None
    assert (event.type, event.reason, event.series.count) == ("Warning", "R", 3)


def test_resources_must_have_their_paths() -> None:
    assert LEASES.path("ns", "l") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"
    assert EVENTS.path("ns") == "/apis/events.k8s.io/v1/namespaces/ns/events"
