"""What is rendered and what is there -> what to create, repair and delete (GD-17, GD-38, GD-39).

A child is right when it carries the hash of what was rendered and still has all of it; what the API server or
others add is theirs. A repair makes what we own of the child exactly what was rendered: what an earlier
rendering left in it goes. Objects of others are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from isthmus.api.drift import covers, replacing
from isthmus.api.dynamo.children import DEPLOYMENTS, HASH_ANNOTATION, SERVICES, GraphChild
from isthmus.api.meta import Raw
from isthmus.graph.plan.model import Action, ChildName, CreateChild, DeleteChild, Observed, RepairChild
from isthmus.graph.plan.render import Rendered

_PARTS: Final = ("spec", "rules", "subjects")
_DELETED: Final = (SERVICES, DEPLOYMENTS)
"""Kinds of which a child goes that is not wanted any more. The rights of pods stay as long as the graph,
since pods of an earlier rollout may still use them."""


def is_ours(child: GraphChild, uid: str) -> bool:
    """Whether the graph with this UID controls it."""
    owner = child.metadata.controller()
    return owner is not None and owner.uid == uid


def owner_text(child: GraphChild) -> str:
    """Whose it is, for people."""
    owner = child.metadata.controller()
    return "controlled by nobody" if owner is None else f"controlled by {owner.kind} {owner.name}"


def changes(observed: Observed, wanted: Mapping[ChildName, Rendered]) -> Iterator[Action]:
    """What to create and repair, in the order of `wanted`. Names that strangers hold are left out."""
    for name, rendered in wanted.items():
        if name in observed.strangers:
            continue
        child = observed.children.get(name)
        if child is None:
            yield CreateChild(rendered.resource, rendered.body)
        elif not child.metadata.terminating and not _is_right(child, rendered.body, observed):
            yield RepairChild(rendered.resource, child, _repair(child, rendered.body))


def leftovers(observed: Observed, kept: Iterable[ChildName]) -> Iterator[Action]:
    """What is ours and has none of these names (GD-38, GD-28)."""
    names = frozenset(kept)
    for resource in _DELETED:
        for name, child in observed.children.items():
            if name.kind == resource.kind and name not in names and not child.metadata.terminating:
                yield DeleteChild(resource, child)


def _is_right(child: GraphChild, raw_wanted: Raw, observed: Observed) -> bool:
    meta = child.metadata
    if (meta.uid, meta.resource_version) in observed.futile:
        return True
    raw_metadata = raw_wanted["metadata"]
    return (
        meta.annotations.hash == raw_metadata["annotations"][HASH_ANNOTATION]
        and meta.labels.graph == observed.graph.metadata.name
        and all(covers(_part(child, part), raw_wanted[part]) for part in _PARTS if part in raw_wanted)
    )


def _part(child: GraphChild, part: str) -> Any:
    raw: msgspec.Raw | None = getattr(child, part)
    return None if raw is None else msgspec.json.decode(raw)


def _repair(child: GraphChild, raw_wanted: Raw) -> Raw:
    """The merge patch. In the parts that are wholly ours, what is not rendered is taken out; the API server
    puts its own defaults back."""
    raw_metadata = raw_wanted["metadata"]
    identity = {"uid": child.metadata.uid, "resourceVersion": child.metadata.resource_version}
    patch: Raw = {"metadata": {key: raw_metadata[key] for key in ("labels", "annotations")} | identity}
    for part in _PARTS:
        if part in raw_wanted:
            live, wanted = _part(child, part), raw_wanted[part]
            patch[part] = (
                {key: replacing(live.get(key), value) for key, value in wanted.items()}
                if isinstance(live, dict)
                else wanted
            )
    return patch
