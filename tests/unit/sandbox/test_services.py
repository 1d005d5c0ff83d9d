"""A Service's port leads to the ready endpoints of its slices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.sandbox.network import NoRoute, Target
from isthmus.sandbox.services import Service, Slice, ready_targets

SERVICE = msgspec.convert(
    {
        "metadata": {"name": "web", "namespace": "n"},
        "spec": {
            "clusterIP": "10.100.0.9",
            "clusterIPs": ["10.100.0.9"],
            "ports": [{"name": "http", "port": 80}, {"name": "grpc", "port": 81}],
        },
    },
    Service,
)


def slice_of(*endpoints: dict[str, Any], ports: Any = ({"name": "http", "port": 8000},)) -> Slice:
    labels = {"kubernetes.io/service-name": "web"}
    return msgspec.convert(
        {
            "metadata": {"name": "web-1", "namespace": "n", "labels": labels},
            "endpoints": list(endpoints),
            "ports": list(ports),
        },
        Slice,
    )


def endpoint(address: str, ready: bool | None = True) -> dict[str, Any]:
    return {"addresses": [address], "conditions": {} if ready is None else {"ready": ready}}


def test_ready_endpoints_of_all_slices_must_be_found() -> None:
    slices = [
        slice_of(endpoint("198.18.1.1"), endpoint("198.18.1.2", ready=False)),
        slice_of(endpoint("198.18.1.3", ready=None)),
    ]
    assert slices[0].service == ("n", "web")
    assert SERVICE.spec.cluster_ip == "10.100.0.9"
    assert ready_targets(SERVICE, slices, 80) == [Target("198.18.1.1", 8000), Target("198.18.1.3", 8000)]


@pytest.mark.parametrize(
    ("slices", "port", "reason"),
    [
        ([], 80, "n/web has no ready endpoint"),
        ([slice_of(endpoint("198.18.1.1", ready=False))], 80, "n/web has no ready endpoint"),
        ([slice_of(endpoint("198.18.1.1"))], 81, "n/web has no ready endpoint"),
        ([slice_of(endpoint("198.18.1.1"))], 8000, "n/web has no port 8000"),
        (
            [msgspec.convert({"metadata": {"name": "x"}, "endpoints": None, "ports": None}, Slice)],
            80,
            "no ready",
        ),
    ],
)
def test_service_without_a_way_must_say_why(slices: list[Slice], port: int, reason: str) -> None:
    with pytest.raises(NoRoute, match=reason):
        ready_targets(SERVICE, slices, port)
