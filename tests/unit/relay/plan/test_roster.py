"""Who belongs to a pool: slices of a graph, entry pods of a ModelServing."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.relay.plan.model import SERVING
from isthmus.relay.plan.roster import of_pods, of_slices
from tests.support.relayfacts import DYNAMO, endpoint, entry, selection, slice_of


def urls(found: Any) -> list[str]:
    return [door.url for door in found.doors]


@pytest.mark.covers("RL-4", "RL-9")
def test_frontends_and_workers_must_be_told_apart_by_their_labels() -> None:
    found = of_slices(
        [
            slice_of("Gateway", "frontend", endpoint("10.0.0.1"), endpoint("10.0.0.2", ready=False)),
            slice_of("Engine", "worker", endpoint("10.0.1.1"), endpoint("10.0.1.2", ready=False)),
            slice_of("P", "prefill", endpoint("10.0.2.1")),
            slice_of("D", "decode"),
            slice_of("Plan", "planner", endpoint("10.0.3.1")),
        ],
        selection(),
    )
    assert urls(found) == ["http://10.0.0.1:8000"]
    crews = [(crew.component, crew.role, crew.ready, crew.total) for crew in found.crews]
    assert crews == [("d", "decode", 0, 0), ("engine", "aggregated", 1, 2), ("p", "prefill", 1, 1)]
    assert found.namespaces == (DYNAMO,)


@pytest.mark.covers("DS-15")
def test_frontend_in_two_slices_and_families_must_count_once() -> None:
    both = [endpoint("10.0.0.1", pod="a"), endpoint("10.0.0.2", pod="b")]
    found = of_slices(
        [
            slice_of("F", "frontend", endpoint("fd00::1", pod="a"), name="six", family="IPv6"),
            slice_of("F", "frontend", *both, name="four"),
            slice_of("F", "frontend", endpoint("10.0.0.1", pod="a"), name="four-2"),
            slice_of("F", "frontend", endpoint("fd00::3", pod="c"), name="six-2", family="IPv6"),
            slice_of("F", "frontend", endpoint("east.example", pod="d"), name="fq", family="FQDN"),
        ],
        selection(),
    )
    assert urls(found) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[fd00::3]:8000"]


def test_worker_in_two_slices_must_be_ready_where_one_says_so() -> None:
    found = of_slices(
        [
            slice_of("E", "worker", endpoint("10.0.1.1", pod="a", ready=False), name="one"),
            slice_of("E", "worker", endpoint("10.0.1.1", pod="a"), name="two"),
        ],
        selection(),
    )
    assert [(crew.ready, crew.total) for crew in found.crews] == [(1, 1)]


def test_service_without_labels_must_be_a_frontend_by_its_suffix() -> None:
    bare = {"nvidia.com/dynamo-component-type": "", "nvidia.com/dynamo-namespace": ""}
    found = of_slices(
        [
            slice_of("Frontend", "frontend", endpoint("10.0.0.1"), labels=bare),
            slice_of("Other", "frontend", endpoint("10.0.0.2"), labels=bare),
        ],
        selection(),
    )
    assert urls(found) == ["http://10.0.0.1:8000"]


@pytest.mark.covers("RL-2")
def test_namespaces_and_prefixes_must_choose() -> None:
    slices = [
        slice_of("F", "frontend", endpoint("10.0.0.1")),
        slice_of("G", "frontend", endpoint("10.0.0.2"), namespace="other"),
        slice_of("Engine", "worker", endpoint("10.0.1.1")),
        slice_of("Extra", "worker", endpoint("10.0.1.2")),
    ]
    assert len(of_slices(slices, selection()).doors) == 2
    found = of_slices(slices, selection(namespaces=(DYNAMO,), prefixes=(f"{DYNAMO}.eng",)))
    assert urls(found) == ["http://10.0.0.1:8000"]
    assert [crew.component for crew in found.crews] == ["engine"]


@pytest.mark.parametrize(
    ("ports", "port"),
    [
        ([{"name": "http", "port": 9000}, {"name": "x", "port": 1}], 9000),
        ([{"name": "x", "port": 7000}], 7000),
        ([], 8123),
    ],
)
def test_port_must_be_the_named_the_only_or_the_default(ports: list[Any], port: int) -> None:
    found = of_slices([slice_of("F", "frontend", endpoint("10.0.0.1"), ports=ports)], selection(port=8123))
    assert urls(found) == [f"http://10.0.0.1:{port}"]


def test_more_frontends_than_are_asked_must_be_counted() -> None:
    many = [endpoint(f"10.0.{number // 250}.{number % 250}") for number in range(300)]
    found = of_slices([slice_of("F", "frontend", *many)], selection())
    assert (len(found.doors), found.left_out) == (256, 44)


@pytest.mark.covers("RL-9")
def test_entry_pods_must_be_frontends_and_aggregated_workers() -> None:
    found = of_pods(
        [
            entry("east-0-p-0-0", "p", "10.0.0.1", ports=[{"name": "http", "containerPort": 8080}]),
            entry("east-1-p-0-0", "p", "10.0.0.2", ready=False),
            entry("east-2-p-0-0", "p", ""),
            entry("east-3-p-0-0", "p", "10.0.0.4", metadata={"deletionTimestamp": "2026-12-01T00:00:00Z"}),
        ],
        selection(kind=SERVING),
    )
    assert urls(found) == ["http://10.0.0.1:8080"]
    assert [(crew.role, crew.ready, crew.total) for crew in found.crews] == [("aggregated", 1, 3)]


def test_typed_roles_must_work_and_the_others_take_requests() -> None:
    pods = [
        entry("east-0-prefill-0-0", "prefill", "10.0.0.1"),
        entry("east-0-decode-0-0", "Decode", "10.0.0.2"),
        entry("east-0-router-0-0", "router", "10.0.0.3", ports=[{"containerPort": 7000}]),
    ]
    found = of_pods(pods, selection(kind=SERVING))
    assert urls(found) == ["http://10.0.0.3:7000"]
    assert [crew.role for crew in found.crews] == ["decode", "prefill"]
    told = of_pods(pods, selection(kind=SERVING, frontend_roles=("Decode",)))
    assert urls(told) == ["http://10.0.0.2:8000"]
