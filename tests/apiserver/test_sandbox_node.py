"""The simulated node takes pods through their lives, and does what its faults say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from isthmus.api.meta import Raw
from isthmus.kube.client import Client
from isthmus.kube.errors import NotFound
from isthmus.sandbox import Cluster, NodeSettings, Sandbox
from isthmus.sandbox.faults import ANNOTATION
from isthmus.sandbox.inject import inject
from isthmus.sandbox.resources import PODS


class Kubelet:
    """What a test sees of the node: pods of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name: str = "p", fault: str = "", **spec: Any) -> Raw:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {ANNOTATION: fault} if fault else {}},
            "spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}], **spec},
        }
        raw_pod: Raw = self.cluster.request(self.path, method="POST", body=body)
        return raw_pod

    def get(self, name: str = "p") -> Raw:
        raw_pod: Raw = self.cluster.request(f"{self.path}/{name}")
        return raw_pod

    def delete(self, name: str = "p") -> None:
        self.cluster.request(f"{self.path}/{name}", method="DELETE")

    def inject(self, fault: str, name: str = "p") -> None:
        inject(self.cluster, name, fault, namespace=self.namespace)

    def wait(self, holds: Callable[[Raw], bool], name: str = "p", within_s: float = 10) -> Raw:
        """The pod once it is as wanted."""
        deadline = time.monotonic() + within_s
        while not holds(raw_pod := self.get(name)):
            assert time.monotonic() < deadline, raw_pod["status"]
            time.sleep(0.02)
        return raw_pod

    def wait_gone(self, name: str = "p", within_s: float = 10) -> None:
        deadline = time.monotonic() + within_s
        while True:
            try:
                self.get(name)
            except NotFound:
                return
            assert time.monotonic() < deadline, "the pod is still there"
            time.sleep(0.02)


@pytest.fixture
def kubelet(cluster: Cluster, namespace: str) -> Kubelet:
    return Kubelet(cluster, namespace)


@pytest.fixture
def slowly(controlplane: Sandbox) -> Iterator[Callable[..., None]]:
    """Sets the node's delays for one test."""
    yield lambda **delays: controlplane.set_node(NodeSettings(**delays))
    controlplane.set_node(NodeSettings())


def ready(raw_pod: Raw) -> bool:
    conditions = raw_pod["status"].get("conditions", [])
    return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions)


def running(raw_pod: Raw) -> bool:
    return bool(raw_pod["status"]["phase"] == "Running")


def failed(raw_pod: Raw) -> bool:
    return bool(raw_pod["status"]["phase"] == "Failed")


def restarts(raw_pod: Raw) -> int:
    return max(
        (int(each["restartCount"]) for each in raw_pod["status"].get("containerStatuses", [])), default=0
    )


def test_pod_of_any_scheduler_must_become_ready_with_an_address(kubelet: Kubelet) -> None:
    kubelet.create(schedulerName="volcano", initContainers=[{"name": "init", "image": "i"}])
    raw_pod = kubelet.wait(ready)
    assert raw_pod["spec"]["nodeName"].startswith("sandbox-")
    assert raw_pod["status"]["podIP"].startswith("198.1")
    assert [c["ready"] for c in raw_pod["status"]["initContainerStatuses"]] == [True]


def test_pods_must_be_spread_over_the_nodes_and_have_distinct_addresses(kubelet: Kubelet) -> None:
    for index in range(6):
        kubelet.create(f"p{index}")
    raw_pods = [kubelet.wait(ready, f"p{index}") for index in range(6)]
    assert {raw_pod["spec"]["nodeName"] for raw_pod in raw_pods} == {"sandbox-0", "sandbox-1"}
    assert len({raw_pod["status"]["podIP"] for raw_pod in raw_pods}) == 6


def test_service_must_get_endpoint_slices_with_the_pods_addresses(kubelet: Kubelet) -> None:
    services = f"/api/v1/namespaces/{kubelet.namespace}/services"
    port = {"name": "http", "port": 80}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    body["spec"] = {"selector": {"app": "x"}, "ports": [port]}
    kubelet.cluster.request(services, method="POST", body=body)
    raw_pod = kubelet.create()
    labels = {"metadata": {"labels": {"app": "x"}}}
    kubelet.cluster.request(
        f"{kubelet.path}/p", method="PATCH", body=labels, content_type="application/merge-patch+json"
    )
    raw_pod = kubelet.wait(ready)
    path = f"/apis/discovery.k8s.io/v1/namespaces/{kubelet.namespace}/endpointslices"
    deadline = time.monotonic() + 10
    while True:
        slices = kubelet.cluster.request(path)["items"]
        found = [e["addresses"] for s in slices for e in s["endpoints"] or () if e["conditions"]["ready"]]
        if found == [[raw_pod["status"]["podIP"]]]:
            return
        assert time.monotonic() < deadline, slices
        time.sleep(0.05)


def test_pod_must_be_pending_until_its_delay_is_over(kubelet: Kubelet, slowly: Callable[..., None]) -> None:
    slowly(ready_delay_s=1.0)
    began = time.monotonic()
    kubelet.create()
    raw_pod = kubelet.wait(lambda raw_pod: "nodeName" in raw_pod["spec"])
    assert raw_pod["status"]["phase"] == "Pending"
    kubelet.wait(ready)
    assert time.monotonic() - began > 0.95


def test_deleted_pod_must_stay_for_its_delay(kubelet: Kubelet, slowly: Callable[..., None]) -> None:
    slowly(delete_delay_s=1.0)
    kubelet.create()
    kubelet.wait(ready)
    kubelet.delete()
    assert "deletionTimestamp" in kubelet.get()["metadata"]
    kubelet.wait_gone()


def test_deleted_pod_never_stays_longer_than_its_grace(kubelet: Kubelet, slowly: Callable[..., None]) -> None:
    slowly(delete_delay_s=300.0)
    kubelet.create(terminationGracePeriodSeconds=1)
    kubelet.wait(ready)
    kubelet.delete()
    kubelet.wait_gone()


def test_successor_of_a_deleted_pod_must_live_its_own_life(kubelet: Kubelet) -> None:
    for _ in range(5):
        kubelet.create()
        kubelet.wait(ready)
        kubelet.delete()
        kubelet.wait_gone()


def test_never_ready_pod_must_run_and_become_ready_when_the_fault_is_taken_back(kubelet: Kubelet) -> None:
    kubelet.create(fault="never-ready")
    assert not ready(kubelet.wait(running))
    kubelet.inject("none")
    kubelet.wait(ready)


def test_slow_pod_must_run_before_it_is_ready(kubelet: Kubelet) -> None:
    kubelet.create(fault="slow:700ms")
    assert not ready(kubelet.wait(running))
    kubelet.wait(ready)


def test_unready_pod_must_run_on_and_be_ready_again_when_the_fault_is_taken_back(kubelet: Kubelet) -> None:
    kubelet.create()
    kubelet.wait(ready)
    kubelet.inject("unready")
    assert running(kubelet.wait(lambda raw_pod: not ready(raw_pod)))
    kubelet.inject("none")
    kubelet.wait(ready)


def test_restarted_container_must_be_counted_and_be_ready_again(kubelet: Kubelet) -> None:
    kubelet.create()
    uid = kubelet.wait(ready)["metadata"]["uid"]
    kubelet.inject("restart:500ms")
    raw_pod = kubelet.wait(lambda raw_pod: restarts(raw_pod) == 1)
    assert not ready(raw_pod)
    ended = raw_pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (1, "Error")
    assert ended["finishedAt"]
    assert kubelet.wait(ready)["metadata"]["uid"] == uid
    kubelet.inject("restart:100ms")
    kubelet.inject("restart:100ms")
    kubelet.wait(lambda raw_pod: restarts(raw_pod) == 3 and ready(raw_pod))


def test_container_in_a_crash_loop_must_keep_restarting(kubelet: Kubelet) -> None:
    kubelet.create(fault="crashloop:50ms")
    kubelet.wait(lambda raw_pod: restarts(raw_pod) >= 3 and not ready(raw_pod))
    kubelet.wait(
        lambda raw_pod: any(
            each["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff"
            for each in raw_pod["status"]["containerStatuses"]
        )
    )
    kubelet.inject("none")
    kubelet.wait(ready)


@pytest.mark.parametrize(("fault", "reason"), [("fail", None), ("evict", "Evicted")])
@pytest.mark.parametrize("when", ["created", "later"])
def test_pod_must_fail(kubelet: Kubelet, fault: str, reason: str | None, when: str) -> None:
    kubelet.create(fault=fault if when == "created" else "")
    if when == "later":
        kubelet.wait(ready)
        kubelet.inject(fault)
    raw_pod = kubelet.wait(failed)
    assert raw_pod["status"].get("reason") == reason
    assert not ready(raw_pod)
    kubelet.delete()
    kubelet.wait_gone()


def test_pod_that_hangs_must_stay_until_the_fault_is_taken_back(kubelet: Kubelet) -> None:
    kubelet.create(fault="hang-termination:300s", terminationGracePeriodSeconds=1)
    kubelet.wait(ready)
    kubelet.delete()
    time.sleep(1.5)
    assert "deletionTimestamp" in kubelet.get()["metadata"]
    kubelet.inject("none")
    kubelet.wait_gone()


def test_lost_node_must_leave_its_pods_unready_and_without_end_until_it_is_found(kubelet: Kubelet) -> None:
    kubelet.create("here")
    kubelet.create("there")
    node = kubelet.wait(ready, "here")["spec"]["nodeName"]
    assert kubelet.wait(ready, "there")["spec"]["nodeName"] != node
    kubelet.inject("node-lost", "here")
    try:
        kubelet.wait(lambda raw_pod: not ready(raw_pod), "here")
        (condition,) = kubelet.cluster.request(f"/api/v1/nodes/{node}")["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Ready", "Unknown")
        assert ready(kubelet.get("there"))
        for index in range(3):
            kubelet.create(f"p{index}")
            assert kubelet.wait(ready, f"p{index}")["spec"]["nodeName"] != node
        kubelet.delete("here")
        time.sleep(0.5)
        assert "deletionTimestamp" in kubelet.get("here")["metadata"]
    finally:
        inject(kubelet.cluster, f"node/{node}", "none")
    kubelet.wait_gone("here")


def test_wrong_annotation_must_be_as_none(kubelet: Kubelet) -> None:
    kubelet.create(fault="bogus")
    kubelet.wait(ready)


def test_faults_of_one_pod_must_leave_others_alone(kubelet: Kubelet) -> None:
    kubelet.create("sick", fault="fail")
    kubelet.create("well")
    kubelet.wait(failed, "sick")
    assert restarts(kubelet.wait(ready, "well")) == 0


async def test_pod_must_cost_two_writes(admin: Client, namespace: str) -> None:
    """A binding and a status, so that the node is no part of what a benchmark measures."""
    page = await admin.list_page(PODS, namespace)
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a", "image": "i"}]},
    }
    await admin.create(PODS, namespace, body)
    seen = []
    async with admin.watch(PODS, namespace, resource_version=page.resource_version, timeout_s=2) as stream:
        async for lines in stream.batches():
            seen += [msgspec.json.decode(line) for line in lines]
    events = [
        (event["type"], event["object"]["status"]["phase"]) for event in seen if event["type"] != "BOOKMARK"
    ]
    assert events == [("ADDED", "Pending"), ("MODIFIED", "Pending"), ("MODIFIED", "Running")]
