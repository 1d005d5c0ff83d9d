"""The store as the debug port shows it: a snapshot taken on the loop, made into JSON elsewhere.

The composition root hands a `Dump` to debugport/port.py. `snapshot` copies maps of references on the event
loop; everything that costs, telling states and encoding, is done by the worker thread that takes pieces from
`chunks`. That thread sees only immutable objects (INV-2) and holds no lock, so nothing it does can stop a
reconcile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from isthmus.api.names import group_name, ordinal
from isthmus.clock import Clock
from isthmus.modelserving.dto import RoleInstanceDTO, ServingGroupDTO, encode_pieces
from isthmus.modelserving.plan.model import NOTHING_REMEMBERED, Group
from isthmus.modelserving.plan.observe import observe
from isthmus.modelserving.store import Part, Store


class Dump:
    """A DumpSource over a store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def incomplete(self) -> tuple[str, ...]:
        """See DumpSource."""
        return self._store.incomplete()

    def snapshot(self) -> Snapshot:
        """See DumpSource."""
        return Snapshot(self._store.snapshot(), self._clock.now())


class Snapshot:
    """One instant of the store; `now` is that instant, in seconds since the epoch."""

    def __init__(self, parts: list[Part], now: float) -> None:
        self._parts = parts
        self._now = now

    def chunks(self, namespace: str | None, name: str | None) -> Iterator[bytes]:
        """The document of MS-47, in pieces; see debugport.sources.Snapshot."""
        chosen = [
            part
            for part in self._parts
            if (namespace is None or part.key[0] == namespace) and (name is None or part.key[1] == name)
        ]
        chosen.sort(key=lambda part: part.key)
        return encode_pieces(("/".join(part.key), self._groups(part)) for part in chosen)

    def _groups(self, part: Part) -> Iterable[ServingGroupDTO]:
        wanted = part.desired()
        names = sorted(
            (name for name in part.facts if name == group_name(part.key[1], ordinal(name))), key=ordinal
        )
        past = {each.group: each for each in part.serving.status.recoveries}
        groups = (
            observe(
                name,
                part.facts[name],
                wanted,
                part.memory.get(name, NOTHING_REMEMBERED),
                self._now,
                past.get(name),
            )
            for name in names
        )
        return (_group(group) for group in groups if group.exists)


def _group(group: Group) -> ServingGroupDTO:
    running = [
        pod.metadata.name
        for instance in group.each()
        for pod in instance.live.values()
        if pod.status.phase == "Running" and pod.ready
    ]
    return ServingGroupDTO(
        name=group.name,
        running_pods=sorted(running),
        revision=group.revision,
        status=str(group.state),
        roles={
            role: {
                instance.id: RoleInstanceDTO(
                    name=instance.id,
                    revision=instance.revision,
                    role_template_hash=instance.hash,
                    status=str(instance.state),
                )
                for _, instance in sorted(by_ordinal.items())
            }
            for role, by_ordinal in sorted(group.instances.items())
        },
    )
