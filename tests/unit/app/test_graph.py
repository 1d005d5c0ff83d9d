"""How the controller of graphs is built: which version it watches, and when it leaves graphs to another."""

from __future__ import annotations

from typing import Any, cast

import pytest

from isthmus.api.configuration import Discovery, Infrastructure, OperatorConfiguration
from isthmus.api.meta import Resource
from isthmus.app import graph
from isthmus.app.building import Building
from isthmus.app.options import OperatorOptions
from isthmus.graph.plan.model import GraphSettings
from isthmus.kube.client import Client
from isthmus.kube.config import ClusterConfig
from isthmus.runtime.metrics import Metrics
from tests.support.clock import FakeClock

GRAPHS = "dynamographdeployments"
UPSTREAM = "dynamocomponentdeployments"


class Serving:
    """A client of a cluster that serves these plurals at these versions."""

    def __init__(self, *there: tuple[str, str]) -> None:
        self._there = there

    async def served(self, resource: Resource[Any]) -> bool:
        return (resource.plural, resource.version) in self._there


async def built(*there: tuple[str, str], **options: Any) -> list[tuple[str, str]]:
    """What is watched, as (plural, version)."""
    chosen = OperatorOptions(config=ClusterConfig(server="https://127.0.0.1:1"), **options)
    building = Building(chosen, cast(Client, Serving(*there)), FakeClock(), Metrics())
    await graph.build(building)
    return [(each.resource.plural, each.resource.version) for each in building.watched]


@pytest.mark.covers("GD-6", "GD-29")
async def test_graphs_must_be_watched_in_the_best_version_that_is_served() -> None:
    both = await built((GRAPHS, "v1beta1"), (GRAPHS, "v1alpha1"))
    assert both[0] == (GRAPHS, "v1beta1")
    assert {plural for plural, _ in both[1:]} == {
        "deployments",
        "services",
        "serviceaccounts",
        "roles",
        "rolebindings",
    }
    assert (await built((GRAPHS, "v1alpha1")))[0] == (GRAPHS, "v1alpha1")


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
async def test_graphs_of_another_operator_must_be_left_to_it_unless_asked_for(version: str) -> None:
    there = ((GRAPHS, "v1beta1"), (UPSTREAM, version))
    assert await built(*there) == []
    assert await built(*there, required=frozenset({"graph"}))


@pytest.mark.covers("GD-24", "GD-36")
def test_settings_must_be_those_of_the_configuration() -> None:
    addresses = Infrastructure(
        nats_address="n", etcd_address="e", model_express_url="m", prometheus_endpoint="p"
    )
    found = graph.settings_of(
        OperatorConfiguration(discovery=Discovery(backend="etcd"), infrastructure=addresses)
    )
    assert found == GraphSettings(
        discovery_backend="etcd",
        nats_address="n",
        etcd_address="e",
        model_express_url="m",
        prometheus_endpoint="p",
    )
