"""Synthetic dumps, and a DumpSource and DecisionSource that tests steer and that count what is asked of
them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from isthmus.modelserving.dto import Decision, RoleInstanceDTO, ServingGroupDTO, encode_pieces


def instance(name: str, status: str = "Running") -> RoleInstanceDTO:
    """A role instance of one revision."""
    return RoleInstanceDTO(name, "759bf7cf75", "5cc6fc8695", status)


def group(name: str, *, instances: int = 2, status: str = "Running") -> ServingGroupDTO:
    """A group with one role `prefill`, whose instances have one running pod each."""
    ids = [f"prefill-{index}" for index in range(instances)]
    pods = [f"{name}-{each}-0" for each in ids] if status == "Running" else []
    roles = {"prefill": {each: instance(each, status) for each in ids}}
    return ServingGroupDTO(name, pods, "759bf7cf75", status, roles)


def serving(key: str, groups: int = 2, instances: int = 2) -> tuple[str, list[ServingGroupDTO]]:
    """`namespace/name` with its groups, as encode_pieces takes them."""
    name = key.partition("/")[2]
    return key, [group(f"{name}-{index}", instances=instances) for index in range(groups)]


def decision(namespace: str = "default", name: str = "demo", outcome: str = "done") -> Decision:
    """A decision that planned nothing."""
    return Decision(namespace, name, "2026-11-30T22:02:10.000000Z", "2 groups", [], outcome, 0.25)


@dataclass
class Source:
    """A DumpSource, its Snapshot and a DecisionSource in one."""

    servings: list[tuple[str, list[ServingGroupDTO]]] = field(
        default_factory=lambda: [serving("default/demo")]
    )
    missing: tuple[str, ...] = ()
    kept: list[Decision] = field(default_factory=list)
    around: Callable[[Iterator[bytes]], Iterator[bytes]] = lambda pieces: pieces
    """What each iterator of pieces goes through; runs in worker threads."""
    asked: list[tuple[str | None, str | None]] = field(default_factory=list)
    snapshots: int = 0
    threads: set[int] = field(default_factory=set)
    running: int = 0
    most: int = 0
    """The most iterators that were begun and not ended at once."""

    def incomplete(self) -> tuple[str, ...]:
        """See DumpSource."""
        return self.missing

    def snapshot(self) -> Source:
        """See DumpSource."""
        self.snapshots += 1
        return self

    def chunks(self, namespace: str | None, name: str | None) -> Iterator[bytes]:
        """See Snapshot."""
        self.asked.append((namespace, name))
        return self._counted(self.around(encode_pieces(self.servings)))

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for piece in pieces:
                self.threads.add(threading.get_ident())
                yield piece
        finally:
            self.running -= 1

    def decisions(self, namespace: str | None, name: str | None) -> Sequence[Decision]:
        """See DecisionSource."""
        self.asked.append((namespace, name))
        return self.kept
