"""Where the global demo plays: two workload clusters and a router cluster, all real control planes.

cli/globaldemo.py tells the story and calls this, and so do the tests of the whole. In `east` and `west` a
graph with real frontends (openai.py) and a relay, each made by an operator of its own; in `router` the
discovery service and the router, as in the examples. Everything here blocks and is what a person with
kubectl does; the waits are bounded. What carries exports from cluster to cluster is not ours (cilium.py).
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from isthmus.errors import WorldError
from isthmus.kube.errors import NotFound
from isthmus.sandbox import cilium, places
from isthmus.sandbox.control import ControlFailed
from isthmus.sandbox.manifest import IMAGE
from isthmus.sandbox.pools import definitions
from isthmus.sandbox.sandbox import Cluster, Sandbox
from isthmus.sandbox.scene import operator_command
from isthmus.sandbox.settings import OPERATOR

Raw = dict[str, Any]

EAST: Final = "east"
WEST: Final = "west"
ROUTER: Final = "router"
NAMES: Final = (EAST, WEST, ROUTER)
WORKLOADS: Final = (EAST, WEST)
SERVING: Final = "serving"
SYSTEM: Final = "isthmus-system"
POOL: Final = "chat"
MODEL: Final = "example/tiny"
MANIFESTS: Final = ("examples/discovery/mcs.yaml", "examples/router/deployment.yaml")
PORTS: Final = {"discovery": 8080, "router": 8000}
HEARTBEAT_S: Final = 1
LEASE_S: Final = 4
FIELD_MANAGER: Final = "isthmus-demo"
WAIT_S: Final = 60.0
POLL_S: Final = 0.1
COLLECTIONS: Final = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Service": "/api/v1/namespaces/{}/services",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "DynamoGraphDeployment": "/apis/nvidia.com/v1beta1/namespaces/{}/dynamographdeployments",
    "DynamoPoolRelay": "/apis/nvidia.com/v1alpha1/namespaces/{}/dynamopoolrelays",
}


class GlobalScene:
    """See the module. `sandbox` has a cluster for each of NAMES, with the CRDs of `crds()`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._discovery = ""

    def cluster(self, name: str) -> Cluster:
        """The cluster of that name."""
        return self.sandbox.cluster(NAMES.index(name))

    def apply(self, name: str, obj: Raw) -> None:
        """Server-side apply in a cluster; fields that it does not know are refused."""
        meta = obj["metadata"]
        path = COLLECTIONS[obj["kind"]].format(meta.get("namespace", ""))
        self.cluster(name).request(
            f"{path}/{meta['name']}?fieldManager={FIELD_MANAGER}&force=true&fieldValidation=Strict",
            method="PATCH",
            body=obj,
            content_type="application/apply-patch+yaml",
        )

    def wait(self, what: str, holds: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
        """Return once it holds. Raises WorldError with `what` where it does not in time."""
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline:
                raise WorldError(f"not within {within_s:.0f} s: {what}")
            time.sleep(POLL_S)

    def start_mesh(self) -> None:
        """Cilium's controllers in every cluster; they carry exports over."""
        cilium.start(self.sandbox, NAMES)

    # The router cluster

    def apply_router_cluster(self) -> None:
        """Discovery service and router, as in MANIFESTS, with an image that the sandbox runs; and the pools'
        namespace, without which nothing is imported."""
        self.apply(ROUTER, namespace(SERVING))
        for obj in router_cluster():
            self.apply(ROUTER, obj)

    def service_url(self, name: str) -> str:
        """The cluster IP of `discovery` or `router` as a URL; real pods of all clusters reach it."""
        path = COLLECTIONS["Service"].format(SYSTEM)
        spec = self.cluster(ROUTER).request(f"{path}/isthmus-{name}")["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"

    def local_url(self, name: str) -> str:
        """The address on this machine of the pod of `discovery` or `router`, once it runs."""
        found = ""

        def runs() -> bool:
            nonlocal found
            addresses = self.pods(ROUTER, SYSTEM, f"app.kubernetes.io/name=isthmus-{name}")
            try:
                port = self.cluster(ROUTER).local_port(addresses[0], PORTS[name])
            except (ControlFailed, IndexError):
                return False
            found = f"http://127.0.0.1:{port}"
            return True

        self.wait(f"the pod of {name} runs", runs)
        return found

    def pods(self, name: str, namespace: str, selector: str, *, ready: bool = False) -> list[str]:
        """The addresses of a cluster's pods with these labels, or of the ready ones."""
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector.replace('=', '%3D')}"
        return [
            each["status"]["podIP"]
            for each in self.cluster(name).request(path)["items"]
            if each["status"].get("podIP") and (not ready or _is_ready(each))
        ]

    def pools(self) -> list[Raw]:
        """What the discovery service lists; nothing where it does not answer."""
        found: list[Raw] = self._ask_discovery("/pools").get("pools", [])
        return found

    def troubles(self) -> str:
        """Why pools have not arrived, as far as the discovery service knows; a line each."""
        rows = self._ask_discovery("/pools/unmatched").get("unmatched", [])
        return "".join(f"\n    {each['cluster_id']}: {each['reason']}: {each['message']}" for each in rows)

    def _ask_discovery(self, path: str) -> Raw:
        if not self._discovery:
            self._discovery = self.local_url("discovery")
        connection = http.client.HTTPConnection(self._discovery.removeprefix("http://"), timeout=5)
        try:
            connection.request("GET", path)
            found: Raw = json.load(connection.getresponse())
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        finally:
            connection.close()
        return found

    def listed(self) -> set[str]:
        """The clusters whose pools are listed."""
        return {each["cluster_id"] for each in self.pools()}

    def serving(self) -> set[str]:
        """The clusters whose pools are listed with frontends and a model."""
        return {each["cluster_id"] for each in self.pools() if each["frontend_urls"] and each["models"]}

    def router_is_ready(self) -> bool:
        """Whether the router's pod is: it has heard of pools that it can route to."""
        return bool(self.pods(ROUTER, SYSTEM, "app.kubernetes.io/name=isthmus-router", ready=True))

    def keep_asking(self, url: str) -> None:
        """A few requests for as long as the sandbox is there, so that there is something to see."""
        self.sandbox.run("traffic", [sys.executable, "-P", "-m", "isthmus.sandbox.traffic", url])

    # The workload clusters

    def start_operator(self, name: str) -> None:
        """An operator that exports the pools of a workload cluster."""
        path = self.sandbox.folder.path / f"operator-{name}.json"
        path.write_text(json.dumps(operator_configuration(), indent=1))
        argv = [
            *operator_command(),
            f"--kubeconfig={self.cluster(name).kubeconfig(OPERATOR)}",
            f"--config={path}",
            "--controllers=graph,poolrelay",
            "--health-probe-bind-address=0",
            "--metrics-bind-address=0",
        ]
        self.sandbox.run(f"operator-{name}", argv, cluster=NAMES.index(name))

    def apply_pool(self, name: str, discovery: str) -> None:
        """The graph and the relay of a workload cluster."""
        self.apply(name, namespace(SERVING))
        for obj in (graph(name), relay(name, discovery)):
            self.apply(name, obj)

    def delete_graph(self, name: str) -> None:
        """Delete a workload cluster's graph; its relay stays."""
        path = COLLECTIONS["DynamoGraphDeployment"].format(SERVING)
        self.cluster(name).request(f"{path}/{POOL}", method="DELETE")

    def pool_is_ready(self, name: str) -> bool:
        """Whether the relay of a workload cluster says that its pool is ready and exported."""
        path = COLLECTIONS["DynamoPoolRelay"].format(SERVING)
        try:
            status = self.cluster(name).request(f"{path}/{POOL}").get("status", {})
        except NotFound:
            return False
        return _is_ready({"status": status})


def crds() -> list[Raw]:
    """What all three clusters serve besides Kubernetes' own."""
    return definitions()


def router_cluster() -> list[Raw]:
    """The objects of MANIFESTS for the demo: its image, and leases short enough to be watched."""
    import yaml

    texts = [(places.clone() / path).read_text("utf-8") for path in MANIFESTS]
    objects: list[Raw] = [each for text in texts for each in yaml.safe_load_all(text) if each]
    for obj in objects:
        if obj["kind"] != "Deployment":
            continue
        (container,) = obj["spec"]["template"]["spec"]["containers"]
        container["image"] = f"{IMAGE}:dev"
        if container["name"] == "discovery":
            leases = {"heartbeat-interval": HEARTBEAT_S, "lease-duration": LEASE_S}
            container["args"] += [f"--{flag}-secs={seconds}" for flag, seconds in leases.items()]
    return objects


def namespace(name: str) -> Raw:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def operator_configuration() -> Raw:
    """The configuration file of the operators. Cilium writes endpoints of imports only where the export asks
    for that."""
    return {
        "apiVersion": "operator.config.dynamo.nvidia.com/v1alpha1",
        "kind": "OperatorConfiguration",
        "logging": {"format": "text"},
        "multiCluster": {
            "mcsImplementation": "mcs",
            "exportedAnnotations": dict(cilium.SYNC_SLICES),
        },
        "relay": {"image": f"{IMAGE}:dev"},
    }


def graph(cluster: str) -> Raw:
    """Two frontends, which are real, and a worker, which is not."""
    frontend = {
        "name": "main",
        "image": f"{IMAGE}:dev",
        "command": ["python", "-m", "isthmus.sandbox.openai"],
        "args": [f"--model={MODEL}", f"--name={cluster}", "--token-delay-ms=20"],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    }
    worker = {
        "name": "main",
        "image": "registry.example/dynamo-vllm:1.0",
        "command": ["python3", "-m", "dynamo.vllm"],
        "args": ["--model", MODEL],
    }
    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": POOL, "namespace": SERVING},
        "spec": {
            "backendFramework": "vllm",
            "components": [
                _component("Frontend", "frontend", frontend, replicas=2),
                _component("Engine", "worker", worker, replicas=1),
            ],
        },
    }


def relay(cluster: str, discovery: str) -> Raw:
    """The relay beside it, which registers with the discovery service at `discovery`."""
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoPoolRelay",
        "metadata": {"name": POOL, "namespace": SERVING},
        "spec": {
            "clusterId": cluster,
            "env": [{"name": "ISTHMUS_DISCOVERY_URL", "value": discovery}],
        },
    }


def _component(name: str, kind: str, container: Raw, *, replicas: int) -> Raw:
    template = {"spec": {"containers": [container]}}
    return {"name": name, "type": kind, "replicas": replicas, "podTemplate": template}


def _is_ready(obj: Raw) -> bool:
    conditions = obj["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
