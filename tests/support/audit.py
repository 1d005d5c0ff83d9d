"""What the API server's audit log says of one user in one namespace."""

from __future__ import annotations

from typing import NamedTuple

from isthmus.api.meta import Raw
from isthmus.api.times import parse_time
from isthmus.sandbox import Cluster

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class Row(NamedTuple):
    """One answered request: the verb, the resource with its subresource, the object, the status code, and
    when it came in (seconds since the epoch)."""

    verb: str
    resource: str
    name: str
    code: int
    at: float


def requests_in(cluster: Cluster, user: str, namespace: str) -> list[Row]:
    """The requests of a user in a namespace, in order of completion; a watch once, when it began."""
    return [_row(event) for event in cluster.audit_events(user) if _counts(event, namespace)]


def writes_in(cluster: Cluster, user: str, namespace: str) -> list[Row]:
    """Those of them that change something."""
    return [row for row in requests_in(cluster, user, namespace) if row.verb in WRITES]


def _counts(event: Raw, namespace: str) -> bool:
    if event.get("objectRef", {}).get("namespace") != namespace:
        return False
    stage: str = event["stage"]
    return stage == ("ResponseStarted" if event["verb"] == "watch" else "ResponseComplete")


def _row(event: Raw) -> Row:
    target = event["objectRef"]
    resource = "/".join(filter(None, (target["resource"], target.get("subresource", ""))))
    code = event["responseStatus"]["code"]
    at = parse_time(event["requestReceivedTimestamp"])
    return Row(event["verb"], resource, target.get("name", ""), code, at)
