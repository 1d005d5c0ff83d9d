"""What may be added to a cluster of a sandbox, and what it may lack."""

from __future__ import annotations

import sys

from isthmus.sandbox import Sandbox
from tests.support.clusterset import eventually
from tests.support.controlplane import StartSandbox, make_namespace

FOREVER = [sys.executable, "-c", "import time; time.sleep(1000)"]


def test_part_of_a_cluster_must_go_and_come_back_with_it_alone(
    private_controlplane: StartSandbox,
) -> None:
    sandbox = private_controlplane(clusters=2)
    for index in (0, 1):
        sandbox.run(f"part-{index}", FOREVER, cluster=index)
    sandbox.run("guest", FOREVER)

    def states(*expected: str) -> None:
        components = sandbox.record.components
        assert [components[name].state for name in ("part-0", "part-1", "guest")] == list(expected)

    eventually(lambda: states("running", "running", "running"))
    sandbox.cluster(0).take_away()
    states("stopped", "running", "running")
    sandbox.cluster(0).bring_back()
    eventually(lambda: states("running", "running", "running"))
    assert sandbox.record.components["part-0"].restarts == 0


def test_inert_cluster_must_keep_its_objects_as_they_are(private_controlplane: StartSandbox) -> None:
    sandbox = private_controlplane(clusters=2, inert=(1,))
    namespaces = [make_namespace(each) for each in sandbox.clusters]
    for cluster, namespace in zip(sandbox.clusters, namespaces, strict=True):
        labels = {"app": "x"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        body = {"metadata": {"name": "x"}, "spec": spec}
        cluster.request(f"/apis/apps/v1/namespaces/{namespace}/deployments", method="POST", body=body)

    def pods(index: int) -> int:
        path = f"/api/v1/namespaces/{namespaces[index]}/pods"
        return len(sandbox.cluster(index).request(path)["items"])

    def made() -> None:
        assert pods(0) == 1

    eventually(made)
    assert pods(1) == 0


def test_reserved_ports_must_be_held_each_for_one(controlplane: Sandbox) -> None:
    assert len({controlplane.reserve_port() for _ in range(20)}) == 20
