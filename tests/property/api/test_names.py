"""What admission lets in must have names and label values that the API server takes (R14)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.api.names import (
    LABEL_LIMIT,
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

LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

dns_labels = st.from_regex(r"[a-z]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)
counts = st.one_of(st.integers(0, 12), st.sampled_from([99, 100, 101, 2**31 - 1]))
roles = st.builds(RoleSize, st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True), counts, counts)


def last(count: int) -> int:
    return max(count - 1, 0)


@pytest.mark.covers("R14", "MS-12", "MS-24")
@given(serving=dns_labels, replicas=counts, sizes=st.lists(roles, min_size=1, max_size=4))
def test_admitted_object_must_have_valid_names_only(
    serving: str, replicas: int, sizes: list[RoleSize]
) -> None:
    # Cut to the budget where it is too long, so that names at the very edge come up often.
    budget = name_budget(replicas, sizes)
    serving = serving[: max(budget, 0)].rstrip("-")
    if not is_dns_label(serving):
        return
    assert SUBDOMAIN.fullmatch(revision_name(serving, "8574cb849f"))
    for g in {0, last(replicas)}:
        group = group_name(serving, g)
        for size in sizes:
            for r in {0, last(size.replicas)}:
                instance = role_id(size.name, r)
                assert is_dns_label(service_name(group, instance))
                for value in (serving, group, size.name, instance):
                    assert len(value) <= LABEL_LIMIT
                    assert LABEL_VALUE.fullmatch(value)
                for index in (0, size.worker_replicas):
                    assert is_dns_label(pod_name(group, instance, index))


@pytest.mark.covers("MS-12")
@given(serving=dns_labels, replicas=counts, sizes=st.lists(roles, min_size=1, max_size=4))
def test_budget_must_equal_the_length_check_of_upstream(
    serving: str, replicas: int, sizes: list[RoleSize]
) -> None:
    texts = [f"{serving}-{replicas}-{s.name}-{s.replicas}-{s.worker_replicas}" for s in sizes]
    fits = all(len(text) <= LABEL_LIMIT for text in texts)
    assert (len(serving) <= name_budget(replicas, sizes)) is fits


@given(sizes=st.lists(roles, min_size=1, max_size=4), replicas=counts, more=counts)
def test_budget_must_never_grow_with_a_count(sizes: list[RoleSize], replicas: int, more: int) -> None:
    assert name_budget(replicas + more, sizes) <= name_budget(replicas, sizes)


@pytest.mark.covers("MS-23")
@given(prefix=st.text(max_size=20), number=st.integers(0, 2**31 - 1))
def test_ordinal_must_come_back_from_a_name(prefix: str, number: int) -> None:
    assert ordinal(f"{prefix}-{number}") == number


@given(name=st.text(max_size=40))
def test_ordinal_must_never_raise(name: str) -> None:
    assert ordinal(name) >= -1
