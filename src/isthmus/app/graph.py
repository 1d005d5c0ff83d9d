"""How the controller of DynamoGraphDeployments is built: its caches, store and controller.

operator.py calls `build` before anything has started. Graphs are watched in the best version that the cluster
serves; their children by the label that names their graph. Where the upstream operator's own kinds are
installed it runs the graphs, and two must not: there this controller stays off unless it is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from isthmus import logs
from isthmus.api.configuration import OperatorConfiguration
from isthmus.api.dynamo.children import GRAPH_CHILDREN
from isthmus.api.dynamo.graphs import GRAPHS
from isthmus.api.dynamo.names import GRAPH_LABEL
from isthmus.api.meta import Object, Resource
from isthmus.app.building import Building
from isthmus.app.preflight import is_served
from isthmus.graph.controller import GraphController
from isthmus.graph.plan.model import GraphSettings
from isthmus.graph.store import Caches, Store
from isthmus.runtime.expect import Expectations

log = logs.get(__name__)

NAME: Final = "graph"
NEEDS: Final[Sequence[Resource[Any]]] = GRAPHS
"""Without graphs, in one of their versions, there is nothing to control."""
UPSTREAM: Final = tuple(
    Resource(
        group=GRAPHS[0].group,
        version=version,
        plural="dynamocomponentdeployments",
        kind="DynamoComponentDeployment",
        type=Object,
    )
    for version in ("v1beta1", "v1alpha1")
)
"""What the upstream operator makes of graphs, and nobody else has."""
EPHEMERAL: Final = "ephemeral"


async def build(building: Building) -> None:
    """Add the controller of graphs, unless they are another operator's."""
    options = building.options
    if NAME not in options.required:
        for resource in UPSTREAM:
            if await is_served(building.client, resource):
                log.warning(
                    "graphs are left to another operator; to run them here, name this controller",
                    controller=NAME,
                    found=resource.name,
                )
                return
    graphs = GRAPHS[0] if await is_served(building.client, GRAPHS[0]) else GRAPHS[-1]
    caches = Caches(
        graphs=building.cache(graphs),
        children={
            resource.kind: building.cache(resource, selector=GRAPH_LABEL, name=f"{resource.name} (graphs)")
            for resource in GRAPH_CHILDREN
        },
    )

    def skips(namespace: str) -> bool:
        """As upstream, an operator of the whole cluster leaves namespaces alone that are called ephemeral."""
        return not options.namespaces and EPHEMERAL in namespace

    queue = building.queue(NAME, lambda: store.keys())
    store = Store(caches, queue.add, skips=skips)
    controller = GraphController(
        building.client,
        caches,
        store,
        Expectations(building.clock, building.metrics, controller=NAME),
        building.recorder("isthmus.dev/graph-controller"),
        building.clock,
        settings_of(options.configuration),
    )
    building.control(NAME, controller.reconcile, queue)


def settings_of(configuration: OperatorConfiguration) -> GraphSettings:
    """What the configuration says about graphs."""
    addresses = configuration.infrastructure
    return GraphSettings(
        discovery_backend=configuration.discovery.backend,
        nats_address=addresses.nats_address,
        etcd_address=addresses.etcd_address,
        model_express_url=addresses.model_express_url,
        prometheus_endpoint=addresses.prometheus_endpoint,
    )
