"""Clusters that a real implementation of the Multi-Cluster Services API joins, with a discovery service.

`start_cilium` and `start_karmada` bring up a sandbox with the workload clusters EAST and WEST and a third,
`home`, whose imports a real discovery process reads. A ClusterSet does what people, operators and relays do
in it. Registrations of scripted relays are renewed with each look at the list, so no lease ends by itself.
Everything blocks; `eventually` here is for plain functions.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from isthmus.api import crd
from isthmus.api.pools import Frontend, Model, Registration, RelayRun
from isthmus.errors import UserError
from isthmus.kube.errors import AlreadyExists, NotFound
from isthmus.sandbox import Cluster, NodeSettings, Sandbox, cilium, karmada, multicluster, pools
from isthmus.sandbox.manifest import IMAGE
from isthmus.sandbox.scene import operator_command
from isthmus.sandbox.settings import OPERATOR
from tests.support.controlplane import start_sandbox
from tests.support.ports import free_port

Raw = dict[str, Any]
T = TypeVar("T")

EAST: Final = "east"
WEST: Final = "west"
WORKLOADS: Final = (EAST, WEST)
CILIUM: Final = "cilium"
KARMADA: Final = "karmada"
EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "multicluster"
LEASE_S: Final = 4
NEVER_S: Final = 4.0
"""Some times what it takes Karmada to collect an export that it sees."""
ROUTES: Final = {
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "Event": "/api/v1/namespaces/{}/events",
    "ServiceExport": "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{}/serviceexports",
    "ServiceImport": "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/{}/serviceimports",
    "ClusterPropagationPolicy": "/apis/policy.karmada.io/v1alpha1/clusterpropagationpolicies",
    "DynamoGraphDeployment": "/apis/nvidia.com/v1beta1/namespaces/{}/dynamographdeployments",
    "DynamoPoolRelay": "/apis/nvidia.com/v1alpha1/namespaces/{}/dynamopoolrelays",
}
PORTS: Final = {"grpc": 5561, "http": 8000}


def eventually(check: Callable[[], T], *, within_s: float = 30.0) -> T:
    """What `check` returns once it raises no AssertionError or LookupError; its last one where it does not in
    time."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return check()
        except (AssertionError, LookupError, NotFound):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


class ClusterSet:
    """See the module."""

    def __init__(
        self, sandbox: Sandbox, *, implementation: str, home: int, members: Mapping[str, int]
    ) -> None:
        self.sandbox = sandbox
        self.implementation = implementation
        self.home = sandbox.cluster(home)
        self._members = {name: sandbox.cluster(index) for name, index in members.items()}
        self._registered: list[Registration] = []
        self._namespaces = 0
        self.collected_before_the_example: set[str] = set()
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def __getitem__(self, name: str) -> Cluster:
        """A workload cluster."""
        return self._members[name]

    # What people do

    def namespace(self) -> str:
        """A namespace of the test's own in all clusters."""
        self._namespaces += 1
        name = f"test-{self._namespaces}"
        ensure_namespace(self.home, name)
        for cluster in self._members.values():
            if self.implementation == CILIUM:
                ensure_namespace(cluster, name)
            eventually(partial(cluster.request, f"/api/v1/namespaces/{name}/serviceaccounts/default"))
        return name

    def service(
        self,
        at: str,
        namespace: str,
        name: str,
        *,
        port: str = "http",
        headless: bool = False,
        number: int = 0,
    ) -> str:
        """A Service with one pod; returns the pod's address."""
        spec: Raw = {"selector": {"app": name}, "ports": [{"name": port, "port": number or PORTS[port]}]}
        if headless:
            spec["clusterIP"] = "None"
        create(self[at], "Service", namespace, name, spec=spec)
        pod = {"containers": [{"name": "main", "image": "registry.example/any:1"}]}
        create(self[at], "Pod", namespace, name, spec=pod, labels={"app": name})

        def address() -> str:
            found: str = get(self[at], "Pod", namespace, name)["status"]["podIP"]
            return found

        return eventually(address)

    def export(
        self, at: str, namespace: str, *names: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Export Services as the operator does with the implementation's example of a configuration."""
        if annotations is None:
            annotations = configuration(self.implementation)["multiCluster"].get("exportedAnnotations", {})
        for name in names:
            spec = {"exportedAnnotations": dict(annotations)} if annotations else {}
            create(self[at], "ServiceExport", namespace, name, spec=spec)

    def unexport(self, at: str, namespace: str, *names: str) -> None:
        """Withdraw them."""
        for name in names:
            delete(self[at], "ServiceExport", namespace, name)

    def pool(self, at: str, namespace: str, name: str, **how: Any) -> tuple[str, str]:
        """Relay and frontend as Services with a pod each, both exported, and the registration that a relay
        would send; returns the URLs."""
        relay = self.service(at, namespace, f"{name}-pool-relay", port="grpc")
        frontend = self.service(at, namespace, f"{name}-frontend")
        self.export(at, namespace, f"{name}-pool-relay", f"{name}-frontend", **how)
        self.register(at, namespace, name)
        return f"http://{relay}:{PORTS['grpc']}", f"http://{frontend}:{PORTS['http']}"

    # What relays and routers do

    def register(self, cluster: str, namespace: str, name: str) -> None:
        """Register a pool from now on."""
        run = RelayRun(url="http://127.0.0.1:1", incarnation="scripted")
        self._registered.append(
            Registration(
                cluster_id=cluster,
                namespace=namespace,
                name=name,
                relay=run,
                models=(Model(id="example/tiny"),),
                frontends=(Frontend(url="http://127.0.0.1:1"),),
            )
        )

    def listed(self, namespace: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Of each pool in a namespace, as `cluster/name`, the URLs of relays and of frontends."""
        return {
            f"{each['cluster_id']}/{each['name']}": (tuple(each["relay_urls"]), tuple(each["frontend_urls"]))
            for each in self._ask(namespace, "/pools")["pools"]
            if each["namespace"] == namespace
        }

    def imported(self, namespace: str) -> set[str]:
        """The names of EndpointSlices with endpoints that the home cluster has in a namespace."""
        found = find(self.home, "EndpointSlice", namespace)
        return {each["metadata"]["name"] for each in found if each.get("endpoints")}

    def unmatched(self, namespace: str) -> dict[str, str]:
        """Of each registration that is no pool, as `cluster/name`, why."""
        return {
            f"{each['cluster_id']}/{each['name']}": each["reason"]
            for each in self._ask(namespace, "/pools/unmatched")["unmatched"]
            if each["namespace"] == namespace and each["kind"] == "registration"
        }

    def _ask(self, namespace: str, path: str) -> Any:
        for each in self._registered:
            if each.namespace == namespace:
                self._call("POST", "/pools", msgspec.json.encode(each))
        return self._call("GET", path)

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
        except OSError as error:
            raise AssertionError(f"the discovery service does not answer: {error}") from error
        finally:
            connection.close()
        assert answer.status < 300, text
        return json.loads(text)

    # What is there all along

    def start_discovery(self) -> None:
        """The discovery service, over what the home cluster has."""
        mode = "karmada" if self.implementation == KARMADA else "mcs"
        argv = [
            *(sys.executable, "-P", "-m", "isthmus.cli.main", "discovery"),
            f"--listen=127.0.0.1:{self._port}",
            f"--pool-discovery={mode}",
            f"--kubeconfig={self.home.kubeconfig()}",
            "--heartbeat-interval-secs=1",
            f"--lease-duration-secs={LEASE_S}",
        ]
        self.sandbox.run("discovery", argv)
        eventually(lambda: self._call("GET", "/pools"))

    def start_operators(self) -> None:
        """An operator in each workload cluster, configured as the example says."""
        path = self.sandbox.folder.path / "operator-config.json"
        path.write_text(json.dumps(configuration(self.implementation)))
        for name, cluster in self._members.items():
            argv = [
                *operator_command(),
                f"--kubeconfig={cluster.kubeconfig(OPERATOR)}",
                f"--config={path}",
                "--controllers=graph,poolrelay",
                "--health-probe-bind-address=0",
                "--metrics-bind-address=0",
            ]
            self.sandbox.run(f"operator-{name}", argv, cluster=cluster.index)

    def apply_real_pool(self, at: str, namespace: str, name: str) -> None:
        """A graph whose frontend is a process, and the relay that the operator makes a process of."""
        create(self[at], "DynamoGraphDeployment", namespace, name, spec=_graph(at))
        env = [
            {"name": "ISTHMUS_DISCOVERY_URL", "value": self.url},
            {"name": "NO_PROXY", "value": "127.0.0.1"},
        ]
        create(self[at], "DynamoPoolRelay", namespace, name, spec={"clusterId": at, "env": env})


@contextmanager
def start_cilium() -> Iterator[ClusterSet]:
    """EAST serves both versions of the API, WEST the older alone."""
    with start_sandbox(clusters=3, crds=_own(), node=NodeSettings(ready_delay_s=0.05)) as sandbox:
        sandbox.cluster(1).install_crds(_mcs(("v1alpha1",)))
        _or_fail(lambda: cilium.start(sandbox, (*WORKLOADS, "hub")))
        yield _ready(ClusterSet(sandbox, implementation=CILIUM, home=2, members={EAST: 0, WEST: 1}))


@contextmanager
def start_karmada() -> Iterator[ClusterSet]:
    """Control plane and EAST have Karmada's CRDs, which serve the older version alone; WEST serves both."""
    with start_sandbox(clusters=3, inert=(0,), crds=_own(), node=NodeSettings(ready_delay_s=0.05)) as sandbox:
        sandbox.cluster(2).install_crds(_mcs(multicluster.BOTH))
        _or_fail(lambda: karmada.start(sandbox, WORKLOADS))
        clusters = ClusterSet(sandbox, implementation=KARMADA, home=0, members={EAST: 1, WEST: 2})
        _see_what_is_not_collected(clusters)
        yield _ready(clusters)


def _see_what_is_not_collected(clusters: ClusterSet) -> None:
    """Export something in a member, see that it is not collected, and that it is after the example."""
    namespace = clusters.namespace()
    address = clusters.service(EAST, namespace, "early")
    clusters.export(EAST, namespace, "early")
    deadline = time.monotonic() + NEVER_S
    while time.monotonic() < deadline:
        clusters.collected_before_the_example |= addresses(clusters.home, namespace, "derived-early")
        time.sleep(0.1)
    apply_example(clusters.home, "karmada.yaml")

    def collected() -> None:
        assert addresses(clusters.home, namespace, "derived-early") == {address}

    eventually(collected)


def create(
    cluster: Cluster, kind: str, namespace: str, name: str, *, spec: Raw, labels: Raw | None = None
) -> None:
    """Make an object."""
    route = ROUTES[kind]
    version = "v1" if route.startswith("/api/") else "/".join(route.split("/")[2:4])
    metadata = {"name": name, "labels": labels or {}} | ({"namespace": namespace} if namespace else {})
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    cluster.request(route.format(namespace), method="POST", body=body)


def apply_example(cluster: Cluster, name: str, namespace: str = "") -> None:
    """What a file of EXAMPLES has, in another namespace where one is given."""
    for body in yaml.safe_load_all((EXAMPLES / name).read_text("utf-8")):
        where = namespace or body["metadata"].get("namespace", "")
        body["metadata"] |= {"namespace": where} if where else {}
        cluster.request(ROUTES[body["kind"]].format(where), method="POST", body=body)


def get(cluster: Cluster, kind: str, namespace: str, name: str) -> Raw:
    """One object. Raises NotFound."""
    found: Raw = cluster.request(f"{ROUTES[kind].format(namespace)}/{name}")
    return found


def find(cluster: Cluster, kind: str, namespace: str) -> list[Raw]:
    """All objects of a kind in a namespace."""
    found: list[Raw] = cluster.request(ROUTES[kind].format(namespace))["items"]
    return found


def delete(cluster: Cluster, kind: str, namespace: str, name: str) -> None:
    """Ask for the end of one."""
    cluster.request(f"{ROUTES[kind].format(namespace)}/{name}", method="DELETE")


def addresses(cluster: Cluster, namespace: str, service: str) -> set[str]:
    """The addresses that a cluster's slices have for a Service of that name, imported ones too."""
    names = {"kubernetes.io/service-name", "multicluster.kubernetes.io/service-name"}
    return {
        address
        for each in find(cluster, "EndpointSlice", namespace)
        if service in {each["metadata"].get("labels", {}).get(label) for label in names}
        for endpoint in each.get("endpoints") or ()
        for address in endpoint["addresses"]
    }


def conditions(cluster: Cluster, namespace: str, name: str) -> dict[str, str]:
    """What the implementation says of an export: type to status."""
    status = get(cluster, "ServiceExport", namespace, name).get("status") or {}
    return {each["type"]: each["status"] for each in status.get("conditions", ())}


def configuration(implementation: str) -> Raw:
    """The example of the operator's configuration, with an image that the sandbox runs."""
    found: Raw = yaml.safe_load((EXAMPLES / f"operator-{implementation}.yaml").read_text("utf-8"))
    return found | {"relay": {"image": f"{IMAGE}:dev"}}


def ensure_namespace(cluster: Cluster, name: str) -> None:
    """Make a namespace unless it is there."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        cluster.request("/api/v1/namespaces", method="POST", body=body)
    except AlreadyExists:
        return


def _own() -> list[Raw]:
    """CRDs of graphs and relays; none of the Multi-Cluster Services API."""
    names = {each["metadata"]["name"]: each for each in [pools.graph_definition(), *crd.definitions()]}
    return list(names.values())


def _mcs(versions: Sequence[str]) -> list[Raw]:
    return [multicluster.service_exports(versions), multicluster.service_imports(versions)]


def _or_fail(start: Callable[[], None]) -> None:
    import pytest

    try:
        start()
    except UserError as error:
        pytest.fail(f"{error}\n{error.hint}", pytrace=False)


def _ready(clusters: ClusterSet) -> ClusterSet:
    clusters.start_discovery()
    clusters.start_operators()
    return clusters


def _graph(name: str) -> Raw:
    frontend = {
        "name": "main",
        "image": f"{IMAGE}:dev",
        "command": ["python", "-m", "isthmus.sandbox.openai"],
        "args": ["--model=example/tiny", f"--name={name}"],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    }
    worker = {"name": "main", "image": "registry.example/dynamo-vllm:1.0", "command": ["python3"]}
    parts = (("Frontend", "frontend", frontend), ("Engine", "worker", worker))
    return {
        "backendFramework": "vllm",
        "components": [
            {"name": title, "type": kind, "replicas": 1, "podTemplate": {"spec": {"containers": [container]}}}
            for title, kind, container in parts
        ],
    }
