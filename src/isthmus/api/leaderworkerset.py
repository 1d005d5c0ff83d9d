"""LeaderWorkerSet (leaderworkerset.x-k8s.io/v1), cut down to what is carried over to a ModelServing (MS-111).

kube/ decodes into these where the API is served. Templates are kept as the JSON that the API server gave;
its schema has checked them. Everything else of the API is not read, since nothing is made of it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from isthmus.api.decode import OptionalRaw, own_raw
from isthmus.api.meta import Frozen, Object, Resource


class LeaderWorkerTemplate(Frozen, frozen=True, kw_only=True):
    """spec.leaderWorkerTemplate. `size` is pods of a group, the leader included."""

    leader_template: OptionalRaw = None
    worker_template: msgspec.Raw = msgspec.Raw(b"{}")
    size: int | None = None

    def __post_init__(self) -> None:
        own_raw(self, "leader_template", "worker_template")


class LwsSpec(Frozen, frozen=True, kw_only=True):
    """spec. `replicas` is groups."""

    replicas: int | None = None
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LwsStatus(Frozen, frozen=True, kw_only=True):
    """What is written of status."""

    replicas: int = 0
    ready_replicas: int = 0


class LeaderWorkerSet(Object, frozen=True, kw_only=True):
    """A LeaderWorkerSet."""

    spec: LwsSpec = LwsSpec()
    status: LwsStatus = LwsStatus()


LEADER_WORKER_SETS: Final = Resource(
    group="leaderworkerset.x-k8s.io",
    version="v1",
    plural="leaderworkersets",
    kind="LeaderWorkerSet",
    type=LeaderWorkerSet,
)
LEADER_WORKER_SET_VERSIONS: Final = (LEADER_WORKER_SETS,)
