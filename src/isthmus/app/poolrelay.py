"""How the controller of DynamoPoolRelays is built: the gate, its caches, store and controller, and the sweep.

operator.py calls `build` before anything has started. The cluster is asked here, once, in which version it
serves exports (PR-7) and graphs; the About API and ModelServings may come and go. With exporting off, exports
are neither watched nor written, apart from one sweep as the workers start (PR-4, PR-110).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from isthmus import logs
from isthmus.api import labels
from isthmus.api.configuration import OperatorConfiguration
from isthmus.api.meta import Key, Resource
from isthmus.api.pods import SERVING_SERVICES
from isthmus.api.poolgraph import POOL_GRAPHS, PoolGraph
from isthmus.api.poolrelay import (
    CLUSTER_PROPERTIES,
    POOL_RELAYS,
    RELAY_CHILDREN,
    RELAY_LABEL,
    SERVING_TARGETS,
    service_exports,
)
from isthmus.app.building import Building
from isthmus.app.preflight import is_served
from isthmus.kube.client import Client
from isthmus.poolrelay import gate
from isthmus.poolrelay.controller import PoolRelayController
from isthmus.poolrelay.graphs import GraphPools
from isthmus.poolrelay.plan.model import RelaySettings
from isthmus.poolrelay.store import Caches, Store
from isthmus.poolrelay.sweep import sweep
from isthmus.runtime.controller import DONE, Outcome
from isthmus.runtime.expect import Expectations

log = logs.get(__name__)

NAME: Final = "poolrelay"
NEEDS: Final[Sequence[Resource[Any]]] = (POOL_RELAYS, *POOL_GRAPHS)
"""Without relays and graphs, in one of their versions, there is nothing to control."""
SWEEP: Final = ""
"""The name in a key that stands for the sweep of a namespace; no relay has it."""
EPHEMERAL: Final = "ephemeral"


async def build(building: Building) -> None:
    """Add the controller of relays. Raises UserError where exports are wanted and not served."""
    options = building.options
    settings = await _settings(building)
    caches = _caches(building, settings, await _graphs(building.client))
    sweeps = not settings.implementation and options.configuration.multi_cluster.sweep_on_clear
    store: Store

    def begin() -> Iterable[Key]:
        """Workers start: every relay is looked at once, and the namespaces of relays are swept before."""
        keys = store.keys()
        namespaces = dict.fromkeys(namespace for namespace, _ in keys)
        return [*((namespace, SWEEP) for namespace in namespaces), *keys] if sweeps else keys

    def skips(namespace: str) -> bool:
        """As upstream, an operator of the whole cluster leaves namespaces alone that are called ephemeral."""
        return not options.namespaces and EPHEMERAL in namespace

    queue = building.queue(NAME, begin)
    store = Store(caches, settings, queue.add, skips=skips)
    controller = PoolRelayController(
        building.client,
        caches,
        store,
        Expectations(building.clock, building.metrics, controller=NAME),
        building.recorder("isthmus.dev/poolrelay-controller"),
        building.clock,
        settings,
    )

    async def reconcile(key: Key) -> Outcome:
        if key[1] == SWEEP:
            await sweep(building.client, caches.relays.values(), key[0])
            return DONE
        return await controller.reconcile(key)

    building.control(NAME, reconcile, queue)


async def _settings(building: Building) -> RelaySettings:
    """What the configuration says, with the gate resolved and logged (PR-13)."""
    configuration = building.options.configuration
    version = await gate.export_version(building.client, configuration.multi_cluster.mcs_implementation)
    log.info("feature gate", **{gate.NAME: version or "off"})
    return settings_of(configuration, version)


def settings_of(configuration: OperatorConfiguration, export_version: str = "") -> RelaySettings:
    """What the configuration says about relays; exports are in `export_version`."""
    multi_cluster = configuration.multi_cluster
    return RelaySettings(
        implementation=multi_cluster.mcs_implementation,
        export_version=export_version,
        exported_labels=multi_cluster.exported_labels,
        exported_annotations=multi_cluster.exported_annotations,
        discovery_backend=configuration.discovery.backend,
        image=configuration.relay.image,
        command=configuration.relay.command,
        metadata_rights=configuration.relay.metadata_rights,
        discovery=configuration.relay.discovery,
        location=configuration.relay.location,
    )


async def _graphs(client: Client) -> Resource[PoolGraph]:
    """Graphs in the best version that is served; one is, since `NEEDS` has been asked for."""
    for resource in POOL_GRAPHS[:-1]:
        if await is_served(client, resource):
            return resource
    return POOL_GRAPHS[-1]


def _caches(building: Building, settings: RelaySettings, graphs: Resource[PoolGraph]) -> Caches:
    """Children and graphs are watched under names of their own, since others watch more or less of them."""
    properties = None
    if settings.checks_cluster_id:
        properties = building.optional(CLUSTER_PROPERTIES)
    exports = None
    if settings.export_version:
        exports = building.cache(service_exports(settings.export_version))
    return Caches(
        relays=building.cache(POOL_RELAYS),
        graphs=GraphPools(building.cache(graphs, name=f"{graphs.name} (relays)"), settings.discovery_backend),
        children={
            resource.kind: building.cache(resource, selector=RELAY_LABEL, name=f"{resource.name} (relays)")
            for resource in RELAY_CHILDREN
        },
        servings=building.optional((SERVING_TARGETS,), name=f"{SERVING_TARGETS.name} (relays)").cache,
        serving_services=building.cache(SERVING_SERVICES, selector=labels.GROUP_NAME),
        exports=exports,
        properties=properties,
    )
