"""Objects of no particular kind, for tests of machinery that knows none."""

from __future__ import annotations

from isthmus.api.meta import Object, ObjectMeta, Resource

THINGS = Resource(group="test.isthmus.dev", version="v1", plural="things", kind="Thing", type=Object)


def thing(
    name: str,
    version: int | str = "",
    *,
    uid: str = "",
    namespace: str = "ns",
    dying: bool = False,
    **labels: str,
) -> Object:
    """A Thing; its UID is its name unless given."""
    return Object(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or name,
            resource_version=str(version),
            labels=labels,
            deletion_timestamp="2026-11-30T22:00:00Z" if dying else None,
        )
    )
