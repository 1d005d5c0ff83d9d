"""A pod of Isthmus' own image runs as a process: ready when it says so, reached at its address, drained."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from isthmus.api.meta import Raw
from isthmus.kube.errors import NotFound, Unreachable
from isthmus.sandbox import Cluster, Sandbox, entrypoint, processes
from isthmus.sandbox.control import ControlFailed
from isthmus.sandbox.inject import inject
from isthmus.sandbox.manifest import IMAGE
from isthmus.sandbox.report import describe
from tests.support.controlplane import StartSandbox, make_namespace, start_sandbox

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(60)]

PROBE = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1}
MODELS = "/v1/models"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with start_sandbox(crds=(), clusters=2) as started:
        yield started


@pytest.fixture
def pods(sandbox: Sandbox) -> Pods:
    return Pods(sandbox.cluster(0))


class Pods:
    """Pods of one namespace, and requests to them as another pod would send them."""

    def __init__(self, cluster: Cluster, namespace: str = "") -> None:
        self.cluster = cluster
        self.namespace = make_namespace(cluster, name=namespace)
        self.path = f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, name: str = "p", *arguments: str, label: str = "", **changes: Any) -> None:
        container = {
            "name": "main",
            "image": f"{IMAGE}:dev",
            "command": ["python", "-m", "isthmus.sandbox.openai", *arguments],
            "ports": [{"name": "http", "containerPort": 8000}],
            "readinessProbe": PROBE,
        }
        spec = {"containers": [container | changes], "terminationGracePeriodSeconds": 20}
        labels = {"app": label or name}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
        self.cluster.request(self.path, method="POST", body=body)

    def get(self, name: str = "p") -> Raw:
        found: Raw = self.cluster.request(f"{self.path}/{name}")
        return found

    def wait(self, holds: Callable[[Raw], bool], name: str = "p", within_s: float = 20) -> Raw:
        deadline = time.monotonic() + within_s
        while not holds(found := self.get(name)):
            assert time.monotonic() < deadline, found["status"]
            time.sleep(0.05)
        return found

    def until(self, holds: Callable[[], bool], within_s: float = 20) -> None:
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def wait_gone(self, name: str = "p", within_s: float = 20) -> None:
        deadline = time.monotonic() + within_s
        while True:
            try:
                found = self.get(name)
            except NotFound:
                return
            assert time.monotonic() < deadline, found["status"]
            time.sleep(0.05)

    def runs(self, name: str) -> bool:
        """Whether the pod has a process."""
        supervisor = self.cluster.sandbox.record.supervisor.pid
        running = processes.children(supervisor, entrypoint.__name__).values()
        return f"{self.cluster.index}.{self.namespace}.{name}" in running

    def expose(self, name: str = "p") -> str:
        """A Service in front of the pod; its cluster IP."""
        port = {"name": "http", "port": 80, "targetPort": "http"}
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [port]},
        }
        path = f"/api/v1/namespaces/{self.namespace}/services"
        found: str = self.cluster.request(path, method="POST", body=body)["spec"]["clusterIP"]
        return found


def ready(raw_pod: Raw) -> bool:
    conditions = raw_pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def main_container(raw_pod: Raw) -> Raw:
    found: Raw = (raw_pod["status"].get("containerStatuses") or [{}])[0]
    return found


class Got(NamedTuple):
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.contextmanager
def asking(cluster: Cluster, url: str, body: Raw | None = None) -> Iterator[http.client.HTTPResponse]:
    """An answer of which the head is there, through the proxy, as a process with HTTP_PROXY asks."""
    with contextlib.closing(through(cluster)) as connection:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json", "Host": url.split("/")[2]}
        connection.request("GET" if body is None else "POST", url, content, headers)
        with connection.getresponse() as answer:
            yield answer


def through(cluster: Cluster) -> http.client.HTTPConnection:
    host, _, port = cluster.proxy.removeprefix("http://").partition(":")
    return http.client.HTTPConnection(host, int(port), timeout=10)


def ask(cluster: Cluster, url: str, body: Raw | None = None) -> Got:
    with asking(cluster, url, body) as answer:
        return Got(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())


def steer(cluster: Cluster, *words: str) -> str:
    """What a command of `isthmus sandbox` about a cluster prints."""
    command = [sys.executable, "-m", "isthmus.cli.main", "sandbox", *words]
    which = ["--name", cluster.sandbox.name, "--cluster", str(cluster.index)]
    return subprocess.run([*command, *which], capture_output=True, text=True, check=True).stdout.strip()


def chat(tokens: int) -> Raw:
    messages = [{"role": "user", "content": "hello"}]
    return {"model": "example/tiny", "stream": True, "max_tokens": tokens, "messages": messages}


def test_pod_of_the_image_must_be_ready_and_answer_at_its_address(pods: Pods) -> None:
    pods.create("p", "--model", "example/tiny=tiny", "--name", "me")
    address = pods.wait(ready)["status"]["podIP"]
    answer = ask(pods.cluster, f"http://{address}:8000{MODELS}")
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    assert [each["id"] for each in json.loads(answer.body)["data"]] == ["example/tiny", "tiny"]


def test_proxy_must_open_tunnels_to_pods(pods: Pods) -> None:
    pods.create()
    address = pods.wait(ready)["status"]["podIP"]
    with contextlib.closing(through(pods.cluster)) as tunnel:
        tunnel.set_tunnel(address, 8000)
        for _ in range(2):  # a tunnel keeps its connection
            tunnel.request("GET", MODELS)
            answer = tunnel.getresponse()
            answer.read()
            assert answer.status == 200


def test_proxy_must_pass_a_stream_on_as_it_comes(pods: Pods) -> None:
    pods.create("p", "--token-delay-ms", "300")
    address = pods.wait(ready)["status"]["podIP"]
    began = time.monotonic()
    with asking(pods.cluster, f"http://{address}:8000/v1/chat/completions", chat(6)) as answer:
        answer.readline()
        first_s = time.monotonic() - began
        assert answer.read().endswith(b"data: [DONE]\n\n")
    assert first_s < 1.0 < time.monotonic() - began


def test_services_must_lead_to_ready_pods_by_address_from_any_cluster_and_by_name(
    pods: Pods, sandbox: Sandbox
) -> None:
    address = pods.expose()
    pods.create()
    pods.wait(ready)
    names = [f"p.{pods.namespace}", f"p.{pods.namespace}.svc", f"p.{pods.namespace}.svc.cluster.local"]
    for cluster, hosts in ((sandbox.cluster(0), [address, *names]), (sandbox.cluster(1), [address])):
        for host in hosts:
            deadline = time.monotonic() + 10
            while (status := ask(cluster, f"http://{host}{MODELS}").status) != 200:
                assert time.monotonic() < deadline, (host, status)
                time.sleep(0.05)
    assert ask(sandbox.cluster(1), f"http://{names[0]}{MODELS}").status == 502
    assert steer(sandbox.cluster(1), "proxy") == sandbox.cluster(1).proxy


def test_import_without_endpoints_must_lead_to_the_cluster_that_exports_it(
    pods: Pods, sandbox: Sandbox
) -> None:
    """Some implementations write no endpoint slices beside the Service that they derive from an import."""
    pods.expose("web")
    pods.create("one", "--name", "one", label="web")
    importer = Pods(sandbox.cluster(1), pods.namespace)
    owner = {
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceImport",
        "name": "web",
        "uid": "u",
    }
    derived = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "derived-x", "ownerReferences": [owner]},
        "spec": {"ports": [{"name": "http", "port": 80}]},
    }
    path = f"/api/v1/namespaces/{pods.namespace}/services"
    address = importer.cluster.request(path, method="POST", body=derived)["spec"]["clusterIP"]
    pods.wait(ready, "one")
    pods.until(lambda: ask(importer.cluster, f"http://{address}{MODELS}").status == 200)


def test_pods_of_a_service_must_take_turns(pods: Pods) -> None:
    address = pods.expose("web")
    for name in ("one", "two"):
        pods.create(name, "--name", name, label="web")
    for name in ("one", "two"):
        pods.wait(ready, name)

    def who() -> str:
        answer = ask(pods.cluster, f"http://{address}/v1/chat/completions", chat(1))
        return answer.headers.get("x-sandbox-server", "")

    pods.until(lambda: {who(), who()} == {"one", "two"})
    assert {who(), who()} == {"one", "two"}


def test_pod_must_be_reached_at_its_loopback_port_without_the_proxy(pods: Pods) -> None:
    pods.create()
    address = pods.wait(ready)["status"]["podIP"]
    port = pods.cluster.local_port(address, 8000)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", MODELS)
        with connection.getresponse() as answer:
            assert answer.status == 200
    with pytest.raises(ControlFailed, match="no port 1"):
        pods.cluster.local_port(address, 1)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("198.18.77.77:8000", "no process has the address 198.18.77.77"),
        ("10.100.99.99", "nobody in the sandbox has the address 10.100.99.99"),
        ("nobody.nowhere", "cluster 0 has no Service nobody in namespace nowhere"),
        ("nobody", "the sandbox knows no name nobody"),
    ],
)
def test_proxy_must_say_that_nobody_is_there(pods: Pods, host: str, reason: str) -> None:
    answer = ask(pods.cluster, f"http://{host}{MODELS}")
    assert (answer.status, answer.body.decode().strip()) == (502, reason)


def test_process_that_dies_must_come_back_at_the_same_address(pods: Pods) -> None:
    pods.create()
    before = pods.wait(ready)
    inject(pods.cluster, "p", "restart", namespace=pods.namespace)
    after = pods.wait(lambda pod: main_container(pod).get("restartCount") == 1 and ready(pod))
    assert after["status"]["podIP"] == before["status"]["podIP"]
    assert main_container(after)["lastState"]["terminated"]["exitCode"] == 137
    assert ask(pods.cluster, f"http://{after['status']['podIP']}:8000{MODELS}").status == 200


def test_command_that_fails_must_back_off(pods: Pods) -> None:
    pods.create("p", "--no-such-flag")
    found = pods.wait(lambda pod: main_container(pod).get("restartCount", 0) >= 2)
    assert not ready(found)
    found = pods.wait(lambda pod: "waiting" in main_container(pod)["state"])
    assert main_container(found)["state"]["waiting"]["reason"] == "CrashLoopBackOff"


def test_command_that_the_image_does_not_have_must_say_so(pods: Pods) -> None:
    pods.create(command=["vllm", "serve"])
    found = pods.wait(lambda pod: "waiting" in main_container(pod).get("state", {}))
    assert main_container(found)["state"]["waiting"]["reason"] == "RunContainerError"
    assert found["status"]["phase"] == "Pending"


def test_pod_that_never_answers_its_probe_must_not_be_ready(pods: Pods) -> None:
    probe = PROBE | {"httpGet": {"path": "/nothing", "port": "http"}}
    pods.create(readinessProbe=probe)
    address = pods.wait(lambda pod: "running" in main_container(pod).get("state", {}))["status"]["podIP"]
    deadline = time.monotonic() + 10
    while ask(pods.cluster, f"http://{address}:8000{MODELS}").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not ready(pods.get())


def test_deleted_pod_must_finish_what_it_answers(pods: Pods) -> None:
    pods.create("p", "--token-delay-ms", "100")
    address = pods.wait(ready)["status"]["podIP"]
    with asking(pods.cluster, f"http://{address}:8000/v1/chat/completions", chat(30)) as answer:
        answer.readline()
        pods.cluster.request(f"{pods.path}/p", method="DELETE")
        assert answer.read().count(b'"content"') == 29
    pods.wait_gone()
    reason = f"no process has the address {address}"
    pods.until(lambda: ask(pods.cluster, f"http://{address}:8000{MODELS}").body.decode().strip() == reason)


def test_pod_that_is_removed_at_once_must_be_killed(pods: Pods) -> None:
    pods.create()
    address = pods.wait(ready)["status"]["podIP"]
    assert pods.runs("p")
    pods.cluster.request(f"{pods.path}/p", method="DELETE", body={"gracePeriodSeconds": 0})
    pods.until(lambda: not pods.runs("p"), within_s=5)
    reason = f"no process has the address {address}"
    assert ask(pods.cluster, f"http://{address}:8000{MODELS}").body.decode().strip() == reason


def test_pod_must_know_itself_by_its_environment(pods: Pods) -> None:
    fields = {"WHO": "metadata.name", "WHERE": "status.podIP", "ACCOUNT": "spec.serviceAccountName"}
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    pods.create("p", "--name", "$(WHO)/$(ACCOUNT)/$(WHERE)", env=env)
    address = pods.wait(ready)["status"]["podIP"]
    answer = ask(pods.cluster, f"http://{address}:8000/v1/chat/completions", chat(1))
    assert answer.headers["x-sandbox-server"] == f"p/default/{address}"


def test_cluster_that_is_taken_away_must_take_its_processes_with_it(pods: Pods, sandbox: Sandbox) -> None:
    pods.create()
    address = pods.wait(ready)["status"]["podIP"]
    url, other = f"http://{address}:8000{MODELS}", sandbox.cluster(1)
    steer(pods.cluster, "take-away")
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:  # longer than a process that died stays away
        assert not pods.runs("p")
        time.sleep(0.05)
    assert ask(other, url).status == 502
    with pytest.raises(Unreachable):
        pods.get()
    steer(pods.cluster, "bring-back")
    found = pods.wait(lambda pod: main_container(pod).get("restartCount", 0) == 1 and ready(pod))
    assert found["status"]["podIP"] == address
    assert ask(other, url).status == 200


def test_supervisor_that_is_killed_must_take_its_pods_with_it(private_controlplane: StartSandbox) -> None:
    sandbox = private_controlplane(crds=(), ephemeral=False)
    pods = Pods(sandbox.cluster())
    pods.create()
    pods.wait(ready)
    record = sandbox.record
    (pid,) = processes.children(record.supervisor.pid, entrypoint.__name__)
    assert f"pod 0.{pods.namespace}.p" in describe(record, alive=True)
    pod = processes.identify(pid, entrypoint.__name__)
    assert pod is not None
    os.kill(record.supervisor.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while processes.is_alive(pod):
        assert time.monotonic() < deadline
        time.sleep(0.02)
