"""What a kubelet would write about a pod: the status as JSON for each state that the simulated node knows.

node.py keeps an `Aspect` per pod and writes `status_of` it whenever it changes; `binding`, `node` and the
taint-free Node objects are here too. Pure: times are texts that the caller made. The lists in a status are
written whole, since a merge patch replaces them.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

from isthmus.sandbox.resources import Container, Pod

Raw = dict[str, Any]

HOST_ADDRESS: Final = "198.18.0.1"


class Shape(enum.Enum):
    """What the pod's first container does. The others run unless the pod is over."""

    RUNNING = "running"
    BACKING_OFF = "backing-off"
    BLOCKED = "blocked"
    """Cannot be started at all; only real pods (manifest.CannotStart)."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"


OVER: Final = (Shape.SUCCEEDED, Shape.FAILED, Shape.EVICTED)
"""After these nothing but the pod's deletion can happen."""


class Aspect(msgspec.Struct, frozen=True, kw_only=True):
    """All that a pod's status says. `started` and `changed` (of readiness) are metav1.Times; `crashed` is
    when the first container ended last, "" for never, with `exit_code`; `lost` says that its node no longer
    reports; `why` is (reason, message) of a container that is BLOCKED."""

    address: str
    started: str
    changed: str
    shape: Shape = Shape.RUNNING
    ready: bool = False
    restarts: int = 0
    crashed: str = ""
    exit_code: int = 1
    lost: bool = False
    why: tuple[str, str] = ("", "")


def status_of(pod: Pod, aspect: Aspect) -> Raw:
    """`status` for a merge patch."""
    raw_status: Raw = {
        "phase": _phase(aspect.shape),
        "reason": _reason(aspect),
        "message": "The node was low on resource: memory." if aspect.shape is Shape.EVICTED else None,
        "conditions": _conditions(aspect),
        "hostIP": HOST_ADDRESS,
        "hostIPs": [{"ip": HOST_ADDRESS}],
        "podIP": aspect.address,
        "podIPs": [{"ip": aspect.address}],
        "startTime": aspect.started,
        "containerStatuses": [
            _container(pod, container, aspect, first=index == 0)
            for index, container in enumerate(pod.spec.containers)
        ],
    }
    if pod.spec.init_containers:
        raw_status["initContainerStatuses"] = [
            _init_container(pod, container, aspect) for container in pod.spec.init_containers
        ]
    return raw_status


def binding(pod: Pod, node: str) -> Raw:
    """The Binding that gives a pod its node."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def node(name: str, now: str) -> Raw:
    """A Node that reports to be ready and has room for everything."""
    capacity = {
        "cpu": "100k",
        "memory": "1Pi",
        "ephemeral-storage": "1Pi",
        "pods": "1M",
        "nvidia.com/gpu": "1M",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "sandbox.isthmus.dev/simulated": "true",
            },
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": HOST_ADDRESS},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [node_condition(lost=False, now=now)],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "simulated",
                "osImage": "simulated",
                "kernelVersion": "",
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "containerRuntimeVersion": "simulated://",
                "kubeProxyVersion": "",
            },
        },
    }


def node_condition(*, lost: bool, now: str) -> Raw:
    """The Ready condition of a Node: True, or Unknown as the node lifecycle controller makes it."""
    return {
        "type": "Ready",
        "status": "Unknown" if lost else "True",
        "reason": "NodeStatusUnknown" if lost else "KubeletReady",
        "message": "Kubelet stopped posting node status." if lost else "simulated node is ready",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def _phase(shape: Shape) -> str:
    phases = {Shape.BLOCKED: "Pending", Shape.SUCCEEDED: "Succeeded"}
    return phases.get(shape, "Failed" if shape in OVER else "Running")


def _reason(aspect: Aspect) -> str | None:
    if aspect.shape is Shape.EVICTED:
        return "Evicted"
    return "NodeLost" if aspect.lost else None


def _conditions(aspect: Aspect) -> list[Raw]:
    ready = aspect.ready and not aspect.lost
    unready = {"reason": "PodFailed" if aspect.shape in OVER else "ContainersNotReady"}
    if aspect.shape is Shape.SUCCEEDED:
        unready = {"reason": "PodCompleted"}
    rows: list[Raw] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": aspect.started},
        {"type": "Initialized", "status": "True", "lastTransitionTime": aspect.started},
        {"type": "ContainersReady", "status": str(aspect.ready), "lastTransitionTime": aspect.changed},
        {"type": "Ready", "status": str(ready), "lastTransitionTime": aspect.changed},
    ]
    for row in rows:
        if row["status"] == "False":
            row.update(unready)
    if aspect.shape is Shape.EVICTED:
        rows.append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "TerminationByKubelet",
                "lastTransitionTime": aspect.changed,
            }
        )
    return rows


def _container(pod: Pod, container: Container, aspect: Aspect, *, first: bool) -> Raw:
    crashed = aspect.crashed if first else ""
    restarts = aspect.restarts if first else 0
    raw_status: Raw = _identity(pod, container, restarts)
    raw_status |= {"ready": aspect.ready or (not first and aspect.shape is Shape.BACKING_OFF)}
    raw_status |= {"started": True, "state": {"running": {"startedAt": crashed or aspect.started}}}
    if crashed and restarts:
        raw_status["lastState"] = {"terminated": _terminated(aspect.started, crashed, aspect.exit_code)}
    match aspect.shape:
        case Shape.RUNNING:
            pass
        case Shape.BACKING_OFF:
            if first:
                reason, message = "CrashLoopBackOff", f"back-off restarting failed container={container.name}"
                raw_status |= {"started": False, "state": _waiting(reason, message)}
        case Shape.BLOCKED:
            reason, message = aspect.why if first else ("PodInitializing", "")
            raw_status |= {"ready": False, "started": False, "state": _waiting(reason, message)}
        case Shape.SUCCEEDED | Shape.FAILED | Shape.EVICTED:
            code = 137 if aspect.shape is Shape.EVICTED else aspect.exit_code
            raw_status |= {"ready": False, "started": False}
            raw_status["state"] = {"terminated": _terminated(aspect.started, aspect.changed, code)}
    return raw_status


def _init_container(pod: Pod, container: Container, aspect: Aspect) -> Raw:
    raw_status = _identity(pod, container, 0)
    raw_status |= {"ready": True, "started": False}
    raw_status["state"] = {"terminated": _terminated(aspect.started, aspect.started, 0)}
    return raw_status


def _identity(pod: Pod, container: Container, restarts: int) -> Raw:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "containerID": f"simulated://{pod.metadata.uid}/{container.name}/{restarts}",
        "restartCount": restarts,
    }


def _waiting(reason: str, message: str) -> Raw:
    return {"waiting": {"reason": reason, "message": message}}


def _terminated(started: str, finished: str, exit_code: int) -> Raw:
    reason = "Error" if exit_code else "Completed"
    return {"startedAt": started, "finishedAt": finished, "reason": reason, "exitCode": exit_code}
