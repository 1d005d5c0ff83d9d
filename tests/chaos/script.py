"""A seed -> what happens to a cluster, step by step: specs, updates, faults of pods, kills and restarts.

Called by run.py, which carries the steps out. Pure: the same seed and number of steps give the same script
on every machine, so that a seed is all that a report needs. Steps name no pod: which one is hit is told by
`pick` among those that are there, in the order of their names.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Any, Final, NamedTuple

from tests.support.world import serving, team

NAMES: Final = ("a", "b", "c")
FAULTS: Final = ("fail", "evict", "restart:200ms", "unready", "crashloop:200ms", "never-ready", "slow:1s")
IMAGES: Final = ("engine:1", "engine:2", "engine:3")
MAX_REPLICAS: Final = 4
Raw = dict[str, Any]


class Kind(StrEnum):
    """What a step does."""

    CREATE = "create"
    DELETE = "delete"
    IMAGE = "image"
    SCALE = "scale"
    SCALE_ROLE = "scale-role"
    STRATEGY = "strategy"
    FAULT = "fault"
    HEAL = "heal"
    DELETE_POD = "delete-pod"
    FORCE_DELETE_POD = "force-delete-pod"
    DELETE_SERVICE = "delete-service"
    KILL_LEADER = "kill-leader"
    KILL_ALL = "kill-all"
    STOP_LEADER = "stop-leader"
    RESTART_APISERVER = "restart-apiserver"
    CALM_RESTART = "calm-restart"


_WEIGHTS: Final = {
    Kind.CREATE: 6,
    Kind.DELETE: 2,
    Kind.IMAGE: 12,
    Kind.SCALE: 10,
    Kind.SCALE_ROLE: 5,
    Kind.STRATEGY: 4,
    Kind.FAULT: 14,
    Kind.HEAL: 6,
    Kind.DELETE_POD: 8,
    Kind.FORCE_DELETE_POD: 4,
    Kind.DELETE_SERVICE: 3,
    Kind.KILL_LEADER: 6,
    Kind.KILL_ALL: 3,
    Kind.STOP_LEADER: 3,
    Kind.RESTART_APISERVER: 2,
    Kind.CALM_RESTART: 1,
}


class Step(NamedTuple):
    """One thing that happens. `value` is what the kind needs: a manifest, an image, a count, a fault; `pick`
    chooses among what is there; `pause_s` passes before the next."""

    kind: Kind
    name: str
    value: Any
    pick: int
    pause_s: float

    def __str__(self) -> str:
        value = "" if self.value is None else f" {self.value}"
        if self.kind is Kind.CREATE:
            spec = self.value["spec"]
            roles = [
                (role["name"], role["replicas"], role["workerReplicas"]) for role in spec["template"]["roles"]
            ]
            policy, strategy = spec["recoveryPolicy"], spec["rolloutStrategy"]
            value = f" {spec['replicas']} groups of (role, replicas, workers) {roles}, {policy}, {strategy}"
        return f"{self.kind} {self.name}{value} (pick {self.pick}), then {self.pause_s} s"


def script(seed: int, steps: int) -> tuple[Step, ...]:
    """The first `steps` steps of a seed: a longer script begins with the shorter one."""
    chance = random.Random(seed)
    first = tuple(_step(chance, Kind.CREATE, name) for name in NAMES[:2])
    kinds, weights = list(_WEIGHTS), list(_WEIGHTS.values())
    rest = (
        _step(chance, chance.choices(kinds, weights)[0], chance.choice(NAMES))
        for _ in range(len(first), steps)
    )
    return (*first, *rest)[:steps]


def _step(chance: random.Random, kind: Kind, name: str) -> Step:
    value: Any = None
    match kind:
        case Kind.CREATE:
            value = _manifest(chance, name)
        case Kind.IMAGE:
            value = chance.choice(IMAGES)
        case Kind.SCALE:
            value = chance.randint(0, MAX_REPLICAS)
        case Kind.SCALE_ROLE:
            value = chance.randint(0, 3)
        case Kind.STRATEGY:
            value = _strategy(chance)
        case Kind.FAULT:
            value = chance.choice(FAULTS)
    return Step(kind, name, value, chance.randrange(1000), round(chance.choice((0.0, 0.1, 0.5, 1.5)), 1))


def _manifest(chance: random.Random, name: str) -> Raw:
    roles = [team("p", chance.randint(1, 2), chance.randint(0, 2), grace=1)]
    if chance.random() < 0.5:
        roles.append(team("d", chance.randint(1, 2), 0, grace=1))
    by_role = chance.random() < 0.25
    policy = chance.choice(
        ("RoleRecreate", "RoleRecreate", "None") + (() if by_role else ("ServingGroupRecreate",))
    )
    spec: Raw = {"recoveryPolicy": policy}
    spec["rolloutStrategy"] = {"type": "RoleRollingUpdate"} if by_role else _strategy(chance)
    return serving(name, chance.randint(1, MAX_REPLICAS), *roles, **spec)


def _strategy(chance: random.Random) -> Raw:
    allowed = chance.choice((1, 1, 2, 3))
    return {
        "type": "ServingGroupRollingUpdate",
        "rollingUpdateConfiguration": {"maxUnavailable": allowed},
    }
