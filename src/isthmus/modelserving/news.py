"""States of role replicas as they change -> what to tell people of one ModelServing, and when.

Called by controller.py after each plan. A state is told at once where nothing of it was told for SPACING_S;
else it waits that long, or until nothing is creating or deleting any more, since each of hundreds of replicas
that are rolled is no message of its own (MS-106). What waits says the last state of a replica alone. Pure:
time is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from isthmus.modelserving.plan.model import State

SPACING_S: Final = 30.0
"""Seconds between two events of one reason about one ModelServing while it is changing."""
MAX_CHARS: Final = 900
"""Of one note; an event's may have 1,024 bytes."""

Replica = tuple[str, str]
"""A role replica: (group, role ID)."""


class Message(NamedTuple):
    """What to tell: these replicas, at least one, are now in `state`."""

    state: State
    replicas: tuple[Replica, ...]

    @property
    def note(self) -> str:
        """For people; each replica by role, ID and group, as many as fit."""
        if len(self.replicas) == 1:
            return f"Role {_named(self.replicas[0])} is now {self.state}"
        shown = [_named(self.replicas[0])]
        for replica in self.replicas[1:]:
            if sum(len(each) + 2 for each in shown) + len(_named(replica)) > MAX_CHARS:
                break
            shown.append(_named(replica))
        left = len(self.replicas) - len(shown)
        more = f", and {left} more" if left else ""
        return f"Roles {', '.join(shown)}{more} are now {self.state}"


class News:
    """What people have not been told yet of one ModelServing."""

    __slots__ = ("_told_at", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[Replica, State] = {}
        self._told_at: dict[State, float] = {}

    def note(self, changes: Mapping[Replica, State]) -> None:
        """These replicas have come to be in these states."""
        for replica, state in changes.items():
            self._waiting.pop(replica, None)  # so that it is listed where it changed last
            self._waiting[replica] = state

    def take(self, states: Iterable[State], now: float) -> list[Message]:
        """What to tell at `now` (monotonic seconds), where all replicas are in these `states`."""
        settled = all(state is State.RUNNING for state in states)
        messages = []
        for state in (State.DELETING, State.CREATING, State.RUNNING):
            replicas = tuple(each for each, its in self._waiting.items() if its is state)
            if replicas and (settled or now >= self._due(state)):
                messages.append(Message(state, replicas))
                self._told_at[state] = now
                for each in replicas:
                    del self._waiting[each]
        return messages

    def remaining_s(self, now: float) -> float | None:
        """Seconds until something that waits is to be told; None where nothing does."""
        return min((max(0.0, self._due(state) - now) for state in self._waiting.values()), default=None)

    def _due(self, state: State) -> float:
        return self._told_at.get(state, float("-inf")) + SPACING_S


def _named(replica: Replica) -> str:
    group, role_id = replica
    return f"{role_id.rpartition('-')[0]}/{role_id} in ServingGroup {group}"
