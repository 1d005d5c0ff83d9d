"""DynamoGraphDeployments as far as their relays read them: which components there are, and how they find each
other.

poolrelay/ watches graphs as these, so that it needs neither the graphs' controller nor the memory that their
pod templates take. Both forms of the spec are read, whatever version it comes in: `components`, a list of
v1beta1, and `services`, a map of v1alpha1 (R36). Decoding never raises because of one object; what cannot be
read is said in `problem`. Nothing of the status is read (PR-77).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from isthmus.api.decode import settle
from isthmus.api.dynamo.analysis import GraphMeta
from isthmus.api.meta import Frozen, Object, Resource


class GraphComponent(Frozen, frozen=True, kw_only=True):
    """spec.components[] of v1beta1."""

    name: str = ""
    type: str = ""
    global_dynamo_namespace: bool = False


class GraphService(Frozen, frozen=True, kw_only=True):
    """spec.services{} of v1alpha1, keyed by the component's name."""

    component_type: str = ""
    sub_component_type: str = ""
    global_dynamo_namespace: bool = False


class GraphSpec(Frozen, frozen=True, kw_only=True):
    """spec: the components in either form, those of the map sorted by name. `problem` says why there are
    none."""

    components: tuple[GraphComponent, ...] = ()
    services: dict[str, GraphService] = {}
    problem: str = ""

    @property
    def all(self) -> tuple[GraphComponent, ...]:
        """The components in one form: what the map calls a worker for prefill or decode is of that type."""
        mapped = tuple(
            GraphComponent(
                name=name,
                type=_type_of(each),
                global_dynamo_namespace=each.global_dynamo_namespace,
            )
            for name, each in sorted(self.services.items())
        )
        return self.components or mapped


def _type_of(service: GraphService) -> str:
    if service.component_type == "worker" and service.sub_component_type in ("prefill", "decode"):
        return service.sub_component_type
    return service.component_type


_decode_spec: Final = msgspec.json.Decoder(GraphSpec)


class PoolGraph(Object, frozen=True, kw_only=True):
    """A DynamoGraphDeployment, in either version: `api_version` says in which it was read."""

    api_version: str = ""
    metadata: GraphMeta
    if TYPE_CHECKING:
        spec: GraphSpec = GraphSpec()
    else:
        spec: msgspec.Raw = GraphSpec()

    def __post_init__(self) -> None:
        spec: object = self.spec
        if isinstance(spec, msgspec.Raw):
            try:
                settle(self, "spec", _decode_spec.decode(spec))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                settle(self, "spec", GraphSpec(problem=str(error).replace("$", "spec", 1)))


POOL_GRAPHS: Final = tuple(
    Resource(
        group="nvidia.com",
        version=version,
        plural="dynamographdeployments",
        kind="DynamoGraphDeployment",
        type=PoolGraph,
    )
    for version in ("v1beta1", "v1alpha1")
)
"""Graphs in the versions that can be read, the best one first."""
