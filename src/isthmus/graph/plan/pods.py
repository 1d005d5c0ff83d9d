"""A component -> the pod template of its Deployment: the user's template over the defaults of its type
(GD-31 to GD-37).

render.py calls `pod_template`. The user wins field by field; variables merge by name, ports by name, and a
probe of the user's replaces the default as a whole (G-10). Other containers than `main` pass through, except
the one that is named as frontend sidecar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from isthmus.api.dynamo.analysis import CONTAINER_MODE, EPP, FRONTEND, PLANNER, WORKERS
from isthmus.api.dynamo.model import MAIN, Graph, GraphComponent
from isthmus.api.dynamo.names import component_namespace, discovery_account
from isthmus.api.meta import Key, Raw
from isthmus.graph.plan.env import from_field, merged, plain
from isthmus.graph.plan.model import GraphSettings

GRACE_S: Final = 60
FS_GROUP: Final = 1000
MEMORY_VOLUME: Final = "shared-memory"
MEMORY_PATH: Final = "/dev/shm"
HTTP_PORT: Final = 8000
SYSTEM_PORT: Final = 9090
NIXL_PORT: Final = 19090
METRICS_PORT: Final = 9085
GRPC_PORT: Final = 9002
ACCOUNTS: Final = {PLANNER: "planner-serviceaccount", EPP: "epp-serviceaccount"}
"""ServiceAccounts that must be there already (GD-32)."""


class Pods:
    """See the module. `discovery` is the backend in effect, `mode` the discovery mode."""

    def __init__(self, key: Key, graph: Graph, settings: GraphSettings, *, discovery: str, mode: str) -> None:
        self._key = key
        self._graph = graph
        self._settings = settings
        self._discovery = discovery
        self._mode = mode

    def pod_template(self, component: GraphComponent, labels: Mapping[str, str]) -> Raw:
        """The whole template; `labels` win over the user's."""
        raw_user = component.raw_template
        raw_metadata = raw_user.get("metadata", {})
        annotations = {**self._graph.annotations, **raw_metadata.get("annotations", {})}
        metadata: Raw = {
            "labels": {**self._graph.labels, **raw_metadata.get("labels", {}), **labels},
            "annotations": annotations,
        }
        return {"metadata": metadata, "spec": self._pod(component, raw_user.get("spec", {}))}

    def _pod(self, component: GraphComponent, raw_user: Raw) -> Raw:
        raw_pod: Raw = {
            "terminationGracePeriodSeconds": GRACE_S,
            "restartPolicy": "Always",
            "securityContext": {"fsGroup": FS_GROUP},
            **raw_user,
        }
        account = ACCOUNTS.get(component.type, "")
        if not account and self._discovery:
            account = discovery_account(self._key[1])
        if account and not raw_pod.get("serviceAccountName"):
            raw_pod["serviceAccountName"] = account
        if self._graph.priority_class and not raw_pod.get("priorityClassName"):
            raw_pod["priorityClassName"] = self._graph.priority_class
        raw_pod["containers"] = [self._container(component, each) for each in raw_user["containers"]]
        return _with_memory(raw_pod, component.shared_memory)

    def _container(self, component: GraphComponent, raw_user: Raw) -> Raw:
        if raw_user["name"] == MAIN:
            kind = component.type
        elif raw_user["name"] == component.frontend_sidecar:
            kind = FRONTEND
        else:
            return raw_user
        raw_container = {**_defaults(kind), **raw_user}
        raw_container.update(_command(kind, raw_user))
        ports = _ports(_PORTS.get(_class(kind), ()), raw_user.get("ports") or [])
        if ports:
            raw_container["ports"] = ports
        raw_container["env"] = merged(
            self._env(component, kind, raw_user["name"]),
            plain(
                {
                    "NATS_SERVER": self._settings.nats_address,
                    "ETCD_ENDPOINTS": self._settings.etcd_address,
                    "MODEL_EXPRESS_URL": self._settings.model_express_url,
                    "PROMETHEUS_ENDPOINT": self._settings.prometheus_endpoint,
                }
            ),
            self._graph.env,
            raw_user.get("env") or [],
        )
        return raw_container

    def _env(self, component: GraphComponent, kind: str, container: str) -> list[Raw]:
        namespace, name = self._key
        base = component_namespace(namespace, name, shared=component.global_dynamo_namespace)
        values = {
            "DYN_NAMESPACE": base,
            "DYN_COMPONENT": kind,
            "DYN_PARENT_DGD_K8S_NAME": name,
            "DYN_PARENT_DGD_K8S_NAMESPACE": namespace,
            "DYN_DISCOVERY_BACKEND": self._discovery,
        }
        if self._discovery and self._mode == CONTAINER_MODE:
            values |= {"CONTAINER_NAME": container, "DYN_KUBE_DISCOVERY_MODE": CONTAINER_MODE}
        if kind == FRONTEND:
            values |= _FRONTEND_ENV | {"DYN_NAMESPACE_PREFIX": base}
        elif kind in WORKERS:
            values |= _WORKER_ENV
        fields = [
            from_field("POD_NAME", "metadata.name"),
            from_field("POD_NAMESPACE", "metadata.namespace"),
            from_field("POD_UID", "metadata.uid"),
        ]
        return [*plain(values), *fields]


_FRONTEND_ENV: Final = {
    "DYNAMO_PORT": str(HTTP_PORT),
    "DYN_HTTP_PORT": str(HTTP_PORT),
    "DYN_NAMESPACE_PREFIX_STRICT": "true",
}
_WORKER_ENV: Final = {
    "DYN_SYSTEM_ENABLED": "true",
    "DYN_SYSTEM_PORT": str(SYSTEM_PORT),
    "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
    "DYN_HEALTH_CHECK_ENABLED": "false",
    "NIXL_TELEMETRY_ENABLE": "n",
    "NIXL_TELEMETRY_EXPORTER": "prometheus",
    "NIXL_TELEMETRY_PROMETHEUS_PORT": str(NIXL_PORT),
}
_PORTS: Final = {
    FRONTEND: (("http", HTTP_PORT),),
    WORKERS[0]: (("system", SYSTEM_PORT), ("nixl", NIXL_PORT)),
    PLANNER: (("metrics", METRICS_PORT),),
    EPP: (("grpc", GRPC_PORT),),
}


def _class(kind: str) -> str:
    return WORKERS[0] if kind in WORKERS else kind


def _probe(path: str, port: str, *numbers: int) -> Raw:
    delay_s, period_s, timeout_s, failures = numbers
    return {
        "httpGet": {"path": path, "port": port},
        "initialDelaySeconds": delay_s,
        "periodSeconds": period_s,
        "timeoutSeconds": timeout_s,
        "failureThreshold": failures,
    }


def _defaults(kind: str) -> Raw:
    """Probes of a type (GD-33, GD-34)."""
    if kind == FRONTEND:
        return {
            "livenessProbe": _probe("/live", "http", 15, 10, 1, 3),
            "readinessProbe": _probe("/health", "http", 10, 10, 3, 3),
        }
    if kind in WORKERS:
        return {
            "livenessProbe": _probe("/live", "system", 0, 5, 4, 1),
            "readinessProbe": _probe("/health", "system", 0, 10, 4, 3),
            "startupProbe": _probe("/live", "system", 0, 10, 5, 720),
        }
    return {}


def _command(kind: str, raw_user: Raw) -> Raw:
    """A shell needs something to run: where there are no arguments the image's own entrypoint stays."""
    if raw_user.get("command"):
        return {}
    if kind == FRONTEND:
        return {"command": ["python3"], "args": raw_user.get("args") or ["-m", "dynamo.frontend"]}
    return {"command": ["/bin/sh", "-c"]} if raw_user.get("args") else {}


def _ports(defaults: tuple[tuple[str, int], ...], given: list[Raw]) -> list[Raw]:
    named = {port.get("name") for port in given}
    ours = [
        {"name": name, "containerPort": port, "protocol": "TCP"}
        for name, port in defaults
        if name not in named
    ]
    return [*given, *ours]


def _with_memory(raw_pod: Raw, size: str) -> Raw:
    """Memory-backed /dev/shm in the main container, unless it is not wanted or something is mounted there."""
    containers: list[Raw] = raw_pod["containers"]
    main = next(each for each in containers if each["name"] == MAIN)
    mounts: list[Any] = list(main.get("volumeMounts") or [])
    volumes: list[Any] = list(raw_pod.get("volumes") or [])
    taken = any(mount["mountPath"].rstrip("/") == MEMORY_PATH for mount in mounts)
    if size in ("0", "") or taken or any(volume["name"] == MEMORY_VOLUME for volume in volumes):
        return raw_pod
    mounted = {**main, "volumeMounts": [*mounts, {"name": MEMORY_VOLUME, "mountPath": MEMORY_PATH}]}
    memory = {"name": MEMORY_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    return {
        **raw_pod,
        "containers": [mounted if each is main else each for each in containers],
        "volumes": [*volumes, memory],
    }
