"""How the ModelServing controller is built: its caches, store, controller, and routes on the debug port.

operator.py calls `build` where the controller is chosen and the cluster has ModelServings, before anything
has started.
"""

from __future__ import annotations

from typing import Final

from isthmus.api import labels
from isthmus.api.meta import Key
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.podgroups import POD_GROUP_VERSIONS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.app import lws
from isthmus.app.building import Building
from isthmus.debugport.port import DebugPort
from isthmus.modelserving.controller import ModelServingController
from isthmus.modelserving.dump import Dump
from isthmus.modelserving.gangapi import GangApi
from isthmus.modelserving.store import Caches, Store
from isthmus.runtime.expect import Expectations

NAME: Final = "modelserving"
NEEDS: Final = (MODEL_SERVINGS,)
"""Without these APIs there is nothing to control."""


async def build(building: Building) -> None:
    """Add the controller of ModelServings. Only what carries our labels is watched, whatever else a cluster
    holds (MS-48, R29). PodGroups need not be served, now or ever (R11)."""
    pod_groups = building.optional(POD_GROUP_VERSIONS, selector=labels.GROUP_NAME)
    caches = Caches(
        servings=building.cache(MODEL_SERVINGS),
        pods=building.cache(SERVING_PODS, selector=labels.GROUP_NAME),
        services=building.cache(SERVING_SERVICES, selector=labels.GROUP_NAME),
        revisions=building.cache(CONTROLLER_REVISIONS, selector=labels.NAME),
        pod_groups=pod_groups.cache,
    )
    store: Store

    def begin() -> list[Key]:
        """Workers start: from now on vanished pods are losses, and every ModelServing is looked at once."""
        store.remember(True)
        return store.keys()

    queue = building.queue(NAME, begin)
    store = Store(caches, queue.add)
    gang = GangApi(pod_groups, building.client, building.clock)

    def look_again() -> None:
        """PodGroups have come or gone: each ModelServing may be concerned (MS-441)."""
        for serving in caches.servings.values():
            queue.add(serving.key)

    pod_groups.subscribe(look_again)
    controller = ModelServingController(
        building.client,
        caches,
        store,
        Expectations(building.clock, building.metrics, controller=NAME),
        building.recorder("isthmus.dev/modelserving-controller"),
        building.clock,
        gang,
    )
    building.control(NAME, controller.reconcile, queue)
    if building.options.leader_worker_sets:
        lws.add(building)
    if building.options.debug_port:
        building.servers.append(
            DebugPort(
                building.options.debug_port,
                dump=Dump(store, building.clock),
                decisions=controller.decisions,
            )
        )
