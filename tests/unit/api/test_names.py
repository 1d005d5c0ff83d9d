from __future__ import annotations

import pytest

from isthmus.api.names import (
    RoleSize,
    group_name,
    is_dns_label,
    name_budget,
    ordinal,
    pod_name,
    revision_name,
    role_id,
    service_name,
)


@pytest.mark.covers("MS-22")
def test_names_must_be_upstreams() -> None:
    group = group_name("llama-multinode", 1)
    instance = role_id("llama-405b", 2)
    assert group == "llama-multinode-1"
    assert instance == "llama-405b-2"
    assert pod_name(group, instance, 3) == "llama-multinode-1-llama-405b-2-3"
    assert service_name(group, instance) == "llama-multinode-1-llama-405b-2-0"
    assert revision_name("llama-multinode", "8574cb849") == "llama-multinode-8574cb849"


@pytest.mark.covers("MS-23")
@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("demo-0", 0),
        ("demo-10", 10),
        ("llama-405b-2", 2),
        ("a-1-2", 2),
        ("-7", 7),
        ("demo-007", 7),
        ("demo-2147483647", 2147483647),
        ("demo-2147483648", -1),
        ("demo", -1),
        ("demo-", -1),
        ("demo-1a", -1),
        ("demo7", -1),
        ("demo-\u0663", -1),
        ("", -1),
    ],
)
def test_ordinal_must_be_the_trailing_number(name: str, number: int) -> None:
    assert ordinal(name) == number


@pytest.mark.covers("MS-12", "R14")
@pytest.mark.parametrize(
    ("replicas", "roles", "budget"),
    [
        (1, [RoleSize("prefill", 1, 0)], 63 - len("-1-prefill-1-0")),
        (10, [RoleSize("prefill", 1, 0)], 63 - len("-10-prefill-1-0")),
        (9, [RoleSize("a", 1, 0), RoleSize("decode", 100, 9)], 63 - len("-9-decode-100-9")),
        (2147483647, [RoleSize("a" * 12, 2147483647, 2147483647)], 17),
        (3, [], 63 - len("-3")),
    ],
)
def test_budget_must_be_what_the_longest_pod_name_leaves(
    replicas: int, roles: list[RoleSize], budget: int
) -> None:
    assert name_budget(replicas, roles) == budget


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True),
        ("a-1", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("1a", False),
        ("a.b", False),
        ("A", False),
        ("a-", False),
        ("-a", False),
        ("", False),
        ("a\n", False),
    ],
)
def test_dns_label_must_be_that_of_a_service(name: str, valid: bool) -> None:
    assert is_dns_label(name) is valid
