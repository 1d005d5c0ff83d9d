"""What the simulated node keeps of each pod, and how it is fed by the watches.

node.py has one Life per pod and decides what becomes of it; `real_changes` says what a real pod's process and
faults mean for its status. Pure but for the task that a Life refers to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from isthmus.api.meta import Key, Object
from isthmus.api.times import format_time
from isthmus.sandbox import faults
from isthmus.sandbox.faults import Fault, Kind
from isthmus.sandbox.podstatus import OVER, Aspect, Shape
from isthmus.sandbox.resources import Pod
from isthmus.sandbox.workload import State, Workload

T = TypeVar("T", bound=Object)


class Life:
    """One pod: what was seen of it last, what was asked of it, and what its status should say.

    `written` is False from when `aspect` changes until the API server has it. `workload` is the process of a
    real pod.
    """

    __slots__ = ("aspect", "faults", "node", "pending", "pod", "task", "workload", "written")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.node = pod.spec.node_name
        self.faults: tuple[Fault, ...] = ()
        self.pending: list[Fault] = []
        self.aspect: Aspect | None = None
        self.written = True
        self.task: asyncio.Task[None] | None = None
        self.workload: Workload | None = None

    @property
    def over(self) -> bool:
        """Whether it has Failed or Succeeded, after which nothing but its deletion can happen."""
        return self.aspect is not None and self.aspect.shape in OVER

    def ask(self, wanted: tuple[Fault, ...]) -> None:
        """Take note of the faults that its annotation asks for now."""
        self.pending += faults.fresh(self.faults, wanted)
        self.faults = wanted


def real_changes(aspect: Aspect, state: State, asked: tuple[Fault, ...]) -> dict[str, Any]:
    """What has to change in the status of a real pod; nothing where it says so already. Faults can take its
    readiness away, never give it."""
    if not state.running and state.exit_code is None:
        return {}
    held = faults.has(asked, Kind.NEVER_READY, Kind.UNREADY)
    changes: dict[str, Any] = {
        "shape": Shape.RUNNING if state.running else Shape.BACKING_OFF,
        "ready": state.running and state.ready and not held,
        "restarts": state.restarts,
        "exit_code": 1 if state.exit_code is None else state.exit_code,
        "crashed": format_time(state.ended_at) if state.ended_at else "",
    }
    if state.over:
        changes["shape"] = Shape.FAILED if state.exit_code else Shape.SUCCEEDED
    return {} if msgspec.structs.replace(aspect, **changes) == aspect else changes


class Feed(Generic[T]):
    """A sink that hands everything on: each object that is there, each that went, all keys after a list."""

    def __init__(
        self,
        see: Callable[[T], None],
        lose: Callable[[T], None] = lambda obj: None,
        keep: Callable[[set[Key]], None] = lambda keys: None,
    ) -> None:
        self._see = see
        self._lose = lose
        self._keep = keep

    def replace(self, source: str, items: list[T], resource_version: str) -> None:
        self._keep({item.key for item in items})
        for item in items:
            self._see(item)

    def upsert(self, source: str, obj: T) -> None:
        self._see(obj)

    def remove(self, source: str, obj: T) -> None:
        self._lose(obj)

    def progress(self, source: str, resource_version: str) -> None:
        pass
