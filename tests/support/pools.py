"""Pools and relays on a real API server, as a person with kubectl sees and changes them.

`PoolWorld` is one namespace with a graph and a relay of one name in it. Everything is plain JSON from the API
server.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from isthmus.api.meta import Key, Object, Raw, Resource
from isthmus.api.poolgraph import POOL_GRAPHS
from isthmus.api.poolrelay import (
    CLUSTER_PROPERTIES,
    POOL_RELAYS,
    PROPERTY_NAME,
    RELAY_DEPLOYMENTS,
    RELAY_SERVICES,
    service_exports,
)
from isthmus.sandbox import multicluster, pools
from tests.support.eventually import eventually
from tests.support.rawapi import RawApi
from tests.support.world import World

EXPORTS: Final = service_exports("v1beta1")
GRAPHS: Final = POOL_GRAPHS[0]
CONFIG_MAPS: Final = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", type=Object)
CONFIG: Final = """\
apiVersion: operator.config.dynamo.nvidia.com/v1alpha1
kind: OperatorConfiguration
relay: {{image: "registry.example/relay:1"}}
multiCluster: {{mcsImplementation: "{implementation}"{more}}}
"""
FLAGS: Final = ("--controllers=poolrelay", "--debug-port=0", "--api-probe-interval=1")


def definitions(versions: Sequence[str] = multicluster.BOTH) -> list[Raw]:
    """The CRDs of `sandbox.pools`, but that of graphs is another operator's, whatever ours says."""
    others = [each for each in pools.definitions(versions) if each["metadata"]["name"] != GRAPHS.name]
    return [pools.graph_definition(), *others]


def configure(folder: Path, implementation: str = "mcs", more: str = "") -> str:
    """The flag that names a configuration file with this setting."""
    path = folder / f"{implementation or 'off'}.yaml"
    path.write_text(CONFIG.format(implementation=implementation, more=f", {more}" if more else ""))
    return f"--config={path}"


def graph(name: str, *components: tuple[str, str], **metadata: Any) -> Raw:
    """A v1beta1 graph of (name, type); of a frontend and a worker where none are named."""
    chosen = components or (("Frontend", "frontend"), ("Engine", "worker"))
    return {
        "apiVersion": GRAPHS.api_version,
        "kind": GRAPHS.kind,
        "metadata": {"name": name, **metadata},
        "spec": {"components": [{"name": each, "type": kind} for each, kind in chosen]},
    }


def relay(name: str, **spec: Any) -> Raw:
    """A relay of cluster `one`."""
    return {
        "apiVersion": POOL_RELAYS.api_version,
        "kind": POOL_RELAYS.kind,
        "metadata": {"name": name},
        "spec": {"clusterId": "one"} | spec,
    }


class PoolWorld(World):
    """See the module. `name` is the graph's and the relay's unless told."""

    def __init__(self, api: RawApi, namespace: str, name: str = "east") -> None:
        super().__init__(api, namespace)
        self.name = name

    def put(self, resource: Resource[Any], manifest: Raw) -> Raw:
        """Create it in this namespace."""
        namespace = self.namespace if resource.namespaced else None
        place = {"namespace": namespace} if namespace else {}
        answer = self.api.create(resource, {**manifest, "metadata": {**manifest["metadata"], **place}})
        assert answer.code == 201, answer.body
        created: Raw = answer.body
        return created

    def start(self, *components: tuple[str, str], **spec: Any) -> Raw:
        """A graph and its relay; returns the relay."""
        self.put(GRAPHS, graph(self.name, *components))
        return self.put(POOL_RELAYS, relay(self.name, **spec))

    def reshape(self, *components: tuple[str, str]) -> None:
        """Give the graph these components."""
        self.merge(GRAPHS, self.name, {"spec": graph(self.name, *components)["spec"]})

    def touch_status(self, name: str = "") -> None:
        """A status update of the graph, as its own operator makes all the time."""
        path = GRAPHS.path(self.namespace, name or self.name, "status")
        body = {
            "status": {
                "state": "pending",
                "seen": self.api.call("GET", path).body["metadata"]["resourceVersion"],
            }
        }
        answer = self.api.call("PATCH", path, body, content_type="application/merge-patch+json")
        assert answer.code == 200, answer.body

    def export(self, name: str) -> Raw:
        """One export; AssertionError where it is not there."""
        return self.get(EXPORTS, name)

    def exports(self) -> set[str]:
        """The names of all exports of the namespace."""
        return set(self.find(EXPORTS))

    def ready(self, name: str = "") -> Key:
        """Status and reason of the relay's condition."""
        status = self.get(POOL_RELAYS, name or self.name).get("status", {})
        found = [(c["status"], c["reason"]) for c in status.get("conditions", []) if c["type"] == "Ready"]
        return found[0] if found else ("", "")

    async def until(self, exports: set[str], reason: str = "Available") -> None:
        """Return once the exports are these and the relay says so."""

        async def check() -> None:
            assert (self.exports(), self.ready()[1]) == (exports, reason), self.reasons()

        await eventually(check)

    def reasons(self) -> list[str]:
        """The reasons of the events about the relay."""
        return sorted(event["reason"] for event in self.events(self.name))

    def related(self, reason: str) -> list[Raw]:
        """The related objects of its events of one reason."""
        return [event["related"] for event in self.events(self.name, reason)]

    def take(self, resource: Resource[Any], name: str, **metadata: Any) -> None:
        """Change an object's metadata."""
        self.merge(resource, name, {"metadata": metadata})

    @property
    def somebody(self) -> Raw:
        """A reference to an object that is there and has nothing to do with relays."""
        uid = self.get(CONFIG_MAPS, "kube-root-ca.crt")["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": uid}

    @property
    def service(self) -> Raw:
        """The relay's Service."""
        return self.get(RELAY_SERVICES, f"{self.name}-pool-relay")

    @property
    def deployment(self) -> Raw:
        """The relay's Deployment."""
        return self.get(RELAY_DEPLOYMENTS, f"{self.name}-pool-relay")

    def set_property(self, value: str | None) -> None:
        """The cluster's ID is this; None for no property at all."""
        resource = CLUSTER_PROPERTIES[0]
        path = resource.path("", PROPERTY_NAME)
        if value is None:
            self.api.call("DELETE", path)
            return
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": PROPERTY_NAME},
            "spec": {"value": value},
        }
        answer = self.api.call(
            "PATCH",
            path,
            body,
            content_type="application/apply-patch+yaml",
            fieldManager="test",
            force="true",
        )
        assert answer.code in (200, 201), answer.body


def named(relay: Raw) -> list[Raw]:
    """The owner references that an export of the relay has."""
    return [
        {
            "apiVersion": POOL_RELAYS.api_version,
            "kind": POOL_RELAYS.kind,
            "name": relay["metadata"]["name"],
            "uid": relay["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
