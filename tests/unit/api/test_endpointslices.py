"""EndpointSlices as the API server has them, null lists and absent conditions among them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.endpointslices import EndpointSlice


def read(**parts: Any) -> EndpointSlice:
    raw = {"metadata": {"name": "a-1", "labels": {"kubernetes.io/service-name": "a"}}, **parts}
    return msgspec.json.decode(msgspec.json.encode(raw), type=EndpointSlice)


@pytest.mark.covers("DS-15")
@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ({}, True),
        ({"ready": None}, True),
        ({"ready": True}, True),
        ({"ready": False}, False),
        ({"ready": True, "terminating": True}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
    ],
)
def test_endpoint_must_be_ready_unless_it_says_otherwise(conditions: dict[str, Any], ready: bool) -> None:
    found = read(endpoints=[{"addresses": ["10.0.0.1"], "conditions": conditions}])
    assert [each.ready for each in found.all] == [ready]


def test_null_lists_must_be_empty() -> None:
    found = read(endpoints=None, ports=None)
    assert (found.all, found.port("http"), found.service) == ((), None, "a")


@pytest.mark.parametrize(
    ("ports", "number"),
    [
        ([{"name": "http", "port": 8000}, {"name": "x", "port": 1}], 8000),
        ([{"name": "x", "port": 9}], 9),
        ([{"name": "", "port": 9, "protocol": "TCP"}, {"name": "http", "port": 7, "protocol": "UDP"}], 9),
        ([{"name": "x", "port": 9}, {"name": "y", "port": 8}], None),
        ([{"name": "http", "port": None}], None),
    ],
)
def test_port_must_be_the_named_or_the_only_one(ports: list[dict[str, Any]], number: int | None) -> None:
    assert read(ports=ports).port("http") == number
