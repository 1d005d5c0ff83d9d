"""How the controller of LeaderWorkerSets is built, which runs beside that of ModelServings (MS-110).

modelserving.py calls `add` unless --no-leader-worker-sets was given. Their API need not be served, now or
ever.
"""

from __future__ import annotations

from typing import Final

from isthmus.api.leaderworkerset import LEADER_WORKER_SET_VERSIONS
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.app.building import Building
from isthmus.lws.controller import Caches, LwsController
from isthmus.runtime.expect import Expectations

NAME: Final = "leaderworkerset"


def add(building: Building) -> None:
    """Add the controller of LeaderWorkerSets."""
    sets = building.optional(LEADER_WORKER_SET_VERSIONS)
    controller = LwsController(
        building.client,
        Caches(sets=sets.cache, servings=building.cache(MODEL_SERVINGS)),
        Expectations(building.clock, building.metrics, controller=NAME),
        building.recorder("isthmus.dev/leaderworkerset-controller"),
    )
    queue = building.queue(NAME, controller.keys)
    controller.wake_on(queue.add)
    building.control(NAME, controller.reconcile, queue)
