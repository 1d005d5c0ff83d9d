"""A pool and its exports on a cluster of a sandbox, as somebody with kubectl sees and changes them.

The story of `isthmus sandbox demo-export` (cli/exportdemo.py) and its like call it. Everything blocks and is
plain JSON; the waits are bounded. It takes no part in what happens: the operator does that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from isthmus.api import crd
from isthmus.api.poolgraph import POOL_GRAPHS
from isthmus.errors import WorldError
from isthmus.sandbox import multicluster, places
from isthmus.sandbox.sandbox import Cluster

Raw = dict[str, Any]

EXAMPLE: Final = "examples/poolrelay/graph.yaml"
FIELD_MANAGER: Final = "isthmus-demo"
POLL_S: Final = 0.1
WAIT_S: Final = 60.0
PROPERTY: Final = "cluster.clusterset.k8s.io"
GRAPHS: Final = "/apis/nvidia.com/v1beta1/namespaces/{}/dynamographdeployments"
RELAYS: Final = "/apis/nvidia.com/v1alpha1/namespaces/{}/dynamopoolrelays"
EXPORTS: Final = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{}/serviceexports"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{}/events"
PROPERTIES: Final = "/apis/about.k8s.io/v1beta1/clusterproperties"


class Told(NamedTuple):
    """An event about a relay. `times` grows while the same happens again."""

    type: str
    reason: str
    about: str
    note: str
    times: int


class Pools:
    """See the module. Collections are those above, in one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self._told: dict[str, int] = {}

    def apply(self, collection: str, obj: Raw) -> None:
        """Server-side apply, as a person who owns the whole object does it."""
        self.cluster.request(
            f"{self._path(collection)}/{obj['metadata']['name']}?fieldManager={FIELD_MANAGER}&force=true",
            method="PATCH",
            body=obj,
            content_type="application/apply-patch+yaml",
        )

    def merge(self, collection: str, name: str, patch: Raw) -> None:
        """A merge patch, as `kubectl patch --type merge` sends it."""
        self.cluster.request(
            f"{self._path(collection)}/{name}",
            method="PATCH",
            body=patch,
            content_type="application/merge-patch+json",
        )

    def delete(self, collection: str, name: str) -> None:
        """Ask for the end of one object."""
        self.cluster.request(f"{self._path(collection)}/{name}", method="DELETE")

    def get(self, collection: str, name: str) -> Raw:
        """One object. Raises NotFound."""
        found: Raw = self.cluster.request(f"{self._path(collection)}/{name}")
        return found

    def exports(self) -> dict[str, str]:
        """The exports by name, and who controls each: the relay's name, or nothing."""
        return {
            each["metadata"]["name"]: next(
                (o["name"] for o in each["metadata"].get("ownerReferences", ()) if o.get("controller")), ""
            )
            for each in self.cluster.request(self._path(EXPORTS))["items"]
        }

    def condition(self, collection: str, name: str) -> Raw:
        """The condition Ready of an object; empty where there is none, and of an older generation."""
        found = self.get(collection, name)
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return {}
        return next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})

    def news(self, relay: str) -> list[Told]:
        """What was told about a relay since this was asked last, in its order."""
        found = sorted(self._events(relay), key=lambda each: each[0])
        fresh = [(key, told) for _, key, told in found if self._told.get(key) != told.times]
        self._told |= {key: told.times for key, told in fresh}
        return [told for _, told in fresh]

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Return once it holds. Raises WorldError with `what` where it does not in time."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            if time.monotonic() > deadline:
                raise WorldError(f"not within {WAIT_S:.0f} s: {what}")
            time.sleep(POLL_S)

    def _events(self, relay: str) -> Iterator[tuple[str, str, Told]]:
        for each in self.cluster.request(self._path(EVENTS))["items"]:
            regarding, series = each.get("regarding", {}), each.get("series") or {}
            if regarding.get("kind") != "DynamoPoolRelay" or regarding.get("name") != relay:
                continue
            about = each.get("related", {})
            told = Told(
                each["type"],
                each["reason"],
                f"{about.get('kind', '')} {about.get('name', '')}",
                each["note"],
                series.get("count", 1),
            )
            yield series.get("lastObservedTime") or each["eventTime"], each["metadata"]["name"], told

    def _path(self, collection: str) -> str:
        return collection.format(self.namespace)


def graph_definition() -> Raw:
    """The CRD of graphs as another operator may have it: both versions and no schema, so that the relays'
    controller is shown to need nothing of ours."""
    whole = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    best = POOL_GRAPHS[0]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": best.name},
        "spec": {
            "group": best.group,
            "scope": "Namespaced",
            "names": {"plural": best.plural, "singular": best.kind.lower(), "kind": best.kind},
            "versions": [
                {
                    "name": each.version,
                    "served": True,
                    "storage": each.version == best.version,
                    "schema": {"openAPIV3Schema": whole},
                    "subresources": {"status": {}},
                }
                for each in POOL_GRAPHS
            ],
        },
    }


def definitions(versions: Sequence[str] = multicluster.BOTH) -> list[Raw]:
    """All CRDs that pools have to do with: ours, where we have one, and those of other projects, in these
    versions where they are the Multi-Cluster Services or the About API's."""
    names = {each["metadata"]["name"]: each for each in [graph_definition(), *crd.definitions()]}
    return [*names.values(), *multicluster.definitions(versions)]


def example() -> tuple[Raw, Raw]:
    """The graph and the relay of EXAMPLE."""
    import yaml

    graph, relay = yaml.safe_load_all((places.clone() / EXAMPLE).read_text("utf-8"))
    return graph, relay


def configuration(implementation: str) -> Raw:
    """The operator's configuration file, with exports turned on."""
    return {
        "apiVersion": "operator.config.dynamo.nvidia.com/v1alpha1",
        "kind": "OperatorConfiguration",
        "logging": {"format": "text"},
        "multiCluster": {"mcsImplementation": implementation},
        "relay": {"image": "example.invalid/isthmus:dev"},
    }


def write_configuration(folder: Path, implementation: str) -> Path:
    """The file, written into a folder; JSON, which costs the operator no YAML library."""
    path = folder / "operator-config.json"
    path.write_text(json.dumps(configuration(implementation), indent=1))
    return path
