"""Names of the objects that a ModelServing makes, and how long its own name may be (MS-12, MS-22, MS-23).

The planner builds every name here and never takes one apart except for its ordinal: role names may hold
hyphens, so the owner and the role of a pod are read from labels. The CRD's CEL rule computes the same budget
as `name_budget`, and tests hold the two together against a real API server. Pure functions, no settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

LABEL_LIMIT: Final = 63
"""Characters of a DNS label: of pod hostnames, Service names and label values."""

_DNS_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ORDINAL: Final = re.compile(r".*-([0-9]+)", re.DOTALL)
INT32_MAX: Final = 2**31 - 1
"""The largest count, and the largest ordinal, that there can be."""


class RoleSize(NamedTuple):
    """What of a role its names depend on: its own name and two counts."""

    name: str
    replicas: int
    worker_replicas: int


def group_name(serving: str, group: int) -> str:
    """Name of a ServingGroup, and of its PodGroup."""
    return f"{serving}-{group}"


def role_id(role: str, replica: int) -> str:
    """ID of a role replica, unique in its group."""
    return f"{role}-{replica}"


def pod_name(group: str, role_id: str, index: int) -> str:
    """Name of a pod of a role replica of the group so named: index 0 is the entry, workers count from 1."""
    return f"{group}-{role_id}-{index}"


def service_name(group: str, role_id: str) -> str:
    """Name of the headless Service of a role replica: that of its entry pod."""
    return pod_name(group, role_id, 0)


def revision_name(serving: str, revision: str) -> str:
    """Name of the ControllerRevision that holds a revision."""
    return f"{serving}-{revision}"


def ordinal(name: str) -> int:
    """The number after the last hyphen; -1 where there is none or it does not fit 32 bits (MS-23)."""
    match = _ORDINAL.fullmatch(name)
    if match is None:
        return -1
    number = int(match[1])
    return number if number <= INT32_MAX else -1


def is_dns_label(name: str) -> bool:
    """Whether this is a DNS-1035 label: what a Service's name must be."""
    return len(name) <= LABEL_LIMIT and _DNS_1035.fullmatch(name) is not None


def name_budget(replicas: int, roles: Iterable[RoleSize]) -> int:
    """The most characters that metadata.name may have with these counts; it may be less than 1.

    The tightest limit is a pod's name, which is its hostname, and that of the Service beside it: group names
    and label values are parts of it, and ControllerRevisions and PodGroups may have 253 characters. Counts
    stand for ordinals as MS-12 says, so that going from 9 to 10 replicas is noticed one replica early.
    """
    longest = max((len(f"-{role.name}-{role.replicas}-{role.worker_replicas}") for role in roles), default=0)
    return LABEL_LIMIT - len(f"-{replicas}") - longest
