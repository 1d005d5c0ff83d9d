from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.meta import Raw
from isthmus.graph.plan.model import GraphSettings
from tests.support.graphs import (
    BACKEND,
    MODE,
    UID,
    alpha,
    beta,
    bodies,
    component,
    env,
    example,
    look,
    made,
    main,
    pod,
    steps,
    then,
)

ETCD = {BACKEND: "etcd"}
PREFIX = "nvidia.com/"


@pytest.mark.covers("GD-15", "GD-27", "GD-29", "GD-30", "GD-32")
def test_graph_must_become_deployments_services_and_rights() -> None:
    assert steps(look(beta())) == [
        "Create ServiceAccount chat-k8s-service-discovery",
        "Create Role chat-k8s-service-discovery-role",
        "Create RoleBinding chat-k8s-service-discovery-binding",
        "Create Service chat-frontend",
        "Create Service chat-engine",
        "Create Deployment chat-frontend",
        "Create Deployment chat-engine",
    ]


@pytest.mark.covers("GD-15", "GD-27")
def test_rights_must_be_those_that_discovery_needs() -> None:
    found = bodies(look(beta()))
    role = found["Role chat-k8s-service-discovery-role"]
    rules = {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    read = {"get", "list", "watch"}
    assert rules == {
        ("", "endpoints"): read,
        ("", "pods"): read,
        ("discovery.k8s.io", "endpointslices"): read,
        ("nvidia.com", "dynamoworkermetadatas"): read | {"create", "update", "patch", "delete"},
    }
    binding = found["RoleBinding chat-k8s-service-discovery-binding"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    account = {"kind": "ServiceAccount", "name": "chat-k8s-service-discovery", "namespace": "serving"}
    assert binding["subjects"] == [account]


@pytest.mark.covers("GD-16", "GD-30", "GD-36")
@pytest.mark.parametrize(
    ("kind", "name", "number"),
    [
        ("frontend", "http", 8000),
        ("epp", "grpc", 9002),
        ("worker", "system", 9090),
        ("planner", "system", 9090),
        ("", "system", 9090),
    ],
)
def test_service_must_select_its_component_and_offer_its_port(kind: str, name: str, number: int) -> None:
    service = bodies(look(beta("chat", component("Engine", kind))))["Service chat-engine"]
    wanted = {PREFIX + "dynamo-component": "Engine", PREFIX + "dynamo-namespace": "serving-chat"}
    if kind:
        wanted[PREFIX + "dynamo-component-type"] = kind
    assert service["spec"]["selector"] == wanted
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"], port["targetPort"]) == (name, number, name)
    assert port.get("appProtocol", "") == ("http2" if kind == "epp" else "")
    labels = pod(look(beta("chat", component("Engine", kind))), "chat-engine")["metadata"]["labels"]
    assert wanted.items() <= labels.items()
    assert service["metadata"]["labels"][PREFIX + "dynamo-discovery-enabled"] == "true"


@pytest.mark.covers("GD-17", "GD-16", "GD-25")
def test_labels_must_be_those_of_upstream() -> None:
    planned = look(beta("chat", component("Engine", "prefill"), annotations={MODE: "container"}))
    template = pod(planned, "chat-engine")
    assert template["metadata"] == {
        "labels": {
            PREFIX + "dynamo-component": "Engine",
            PREFIX + "dynamo-component-class": "worker",
            PREFIX + "dynamo-component-type": "prefill",
            PREFIX + "dynamo-discovery-backend": "kubernetes",
            PREFIX + "dynamo-discovery-enabled": "true",
            PREFIX + "dynamo-graph-deployment-name": "chat",
            PREFIX + "dynamo-namespace": "serving-chat",
            PREFIX + "metrics-enabled": "true",
            PREFIX + "selector": "chat-engine",
        },
        "annotations": {MODE: "container"},
    }
    deployment = bodies(planned)["Deployment chat-engine"]
    frontend = pod(look(beta()), "chat-frontend")["metadata"]["labels"]
    assert PREFIX + "dynamo-component-class" not in frontend
    assert deployment["spec"]["selector"] == {"matchLabels": {PREFIX + "selector": "chat-engine"}}
    for body in bodies(planned).values():
        assert body["metadata"]["labels"][PREFIX + "dynamo-graph-deployment-name"] == "chat"
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["kind"], owner["controller"]) == (UID, "DynamoGraphDeployment", True)


def test_labels_of_the_user_must_be_carried_and_never_win() -> None:
    template = {"metadata": {"labels": {"a": "pod", PREFIX + "selector": "x"}, "annotations": {"n": "1"}}}
    manifest = beta(
        "chat",
        component("Engine", template=template),
        labels={"a": "graph", "b": "graph", PREFIX + "dynamo-component": "x"},
        annotations=None,
    )
    manifest["spec"]["annotations"] = {"n": "0", "o": "0"}
    found = pod(look(manifest), "chat-engine")["metadata"]
    assert (found["labels"]["a"], found["labels"]["b"]) == ("pod", "graph")
    assert found["labels"][PREFIX + "selector"] == "chat-engine"
    assert found["labels"][PREFIX + "dynamo-component"] == "Engine"
    assert found["annotations"] == {"n": "1", "o": "0"}
    service = bodies(look(manifest))["Service chat-engine"]["metadata"]
    assert (service["labels"]["b"], service["annotations"]["o"]) == ("graph", "0")


def test_metrics_must_be_switched_off_by_the_annotation() -> None:
    planned = look(beta(annotations={PREFIX + "enable-metrics": "false"}))
    assert PREFIX + "metrics-enabled" not in pod(planned, "chat-engine")["metadata"]["labels"]


@pytest.mark.covers("GD-31", "GD-32")
def test_pod_must_have_defaults_that_the_user_can_replace() -> None:
    spec = pod(look(beta()), "chat-engine")["spec"]
    assert spec["terminationGracePeriodSeconds"] == 60
    assert spec["restartPolicy"] == "Always"
    assert spec["securityContext"] == {"fsGroup": 1000}
    assert spec["serviceAccountName"] == "chat-k8s-service-discovery"
    assert "priorityClassName" not in spec
    memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    assert spec["volumes"] == [memory]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "shared-memory", "mountPath": "/dev/shm"}]
    own = {
        "terminationGracePeriodSeconds": 5,
        "securityContext": {"runAsUser": 5},
        "serviceAccountName": "mine",
        "priorityClassName": "low",
    }
    changed = component("Engine", "worker", pod=own, sharedMemorySize="1Gi")
    spec = pod(look(beta("chat", changed, priorityClassName="high")), "chat-engine")["spec"]
    assert {key: spec[key] for key in own} == own
    assert spec["volumes"][0]["emptyDir"]["sizeLimit"] == "1Gi"
    spec = pod(look(beta(priorityClassName="high")), "chat-engine")["spec"]
    assert spec["priorityClassName"] == "high"


@pytest.mark.covers("GD-32")
@pytest.mark.parametrize(
    "fields",
    [
        {"sharedMemorySize": "0"},
        {"main": {"volumeMounts": [{"name": "mine", "mountPath": "/dev/shm/"}]}},
        {"pod": {"volumes": [{"name": "shared-memory", "emptyDir": {}}]}},
    ],
    ids=["none", "mounted", "named"],
)
def test_shared_memory_must_not_be_added_where_it_is_not_wanted(fields: Raw) -> None:
    spec = pod(look(beta("chat", component("Engine", **fields))), "chat-engine")["spec"]
    assert not any("sizeLimit" in volume.get("emptyDir", {}) for volume in spec.get("volumes", ()))


def test_shared_memory_must_be_that_of_the_main_container_wherever_it_is() -> None:
    containers = [{"name": "side", "image": "s"}, {"name": "main", "image": "x"}]
    side, found = pod(look(beta("chat", component("E", pod={"containers": containers}))), "chat-e")["spec"][
        "containers"
    ]
    assert side == containers[0]
    assert [each["mountPath"] for each in found["volumeMounts"]] == ["/dev/shm"]


@pytest.mark.covers("GD-9", "GD-32", "GD-35")
@pytest.mark.parametrize(
    ("kind", "account", "port"),
    [("planner", "planner-serviceaccount", ("metrics", 9085)), ("epp", "epp-serviceaccount", ("grpc", 9002))],
)
def test_planner_and_picker_must_have_their_accounts_and_ports(
    kind: str, account: str, port: tuple[str, int]
) -> None:
    planned = look(beta("chat", component("P", kind)))
    assert pod(planned, "chat-p")["spec"]["serviceAccountName"] == account
    ports = [(each["name"], each["containerPort"]) for each in main(planned, "chat-p")["ports"]]
    assert ports == [port]
    assert "livenessProbe" not in main(planned, "chat-p")


def probe(path: str, port: str, *numbers: int) -> Raw:
    names = ("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold")
    return {"httpGet": {"path": path, "port": port}, **dict(zip(names, numbers, strict=True))}


@pytest.mark.covers("GD-33")
def test_frontend_must_have_its_command_port_probes_and_environment() -> None:
    planned = look(beta())
    found = main(planned, "chat-frontend")
    assert (found["command"], found["args"]) == (["python3"], ["-m", "dynamo.frontend"])
    assert found["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]
    assert found["livenessProbe"] == probe("/live", "http", 15, 10, 1, 3)
    assert found["readinessProbe"] == probe("/health", "http", 10, 10, 3, 3)
    variables = env(planned, "chat-frontend")
    assert (variables["DYNAMO_PORT"], variables["DYN_HTTP_PORT"]) == ("8000", "8000")
    assert variables["DYN_NAMESPACE_PREFIX"] == "serving-chat"


@pytest.mark.covers("GD-34")
@pytest.mark.parametrize("kind", ["worker", "prefill", "decode"])
def test_worker_must_have_its_ports_probes_and_environment(kind: str) -> None:
    planned = look(beta("chat", component("Engine", kind)))
    found = main(planned, "chat-engine")
    assert "command" not in found
    assert [(each["name"], each["containerPort"]) for each in found["ports"]] == [
        ("system", 9090),
        ("nixl", 19090),
    ]
    assert found["livenessProbe"] == probe("/live", "system", 0, 5, 4, 1)
    assert found["readinessProbe"] == probe("/health", "system", 0, 10, 4, 3)
    assert found["startupProbe"] == probe("/live", "system", 0, 10, 5, 720)
    variables = env(planned, "chat-engine")
    wanted = {
        "DYN_SYSTEM_ENABLED": "true",
        "DYN_SYSTEM_PORT": "9090",
        "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
        "DYN_HEALTH_CHECK_ENABLED": "false",
        "NIXL_TELEMETRY_ENABLE": "n",
        "NIXL_TELEMETRY_EXPORTER": "prometheus",
        "NIXL_TELEMETRY_PROMETHEUS_PORT": "19090",
    }
    assert wanted.items() <= variables.items()


@pytest.mark.covers("GD-12", "GD-20", "GD-21", "GD-36")
def test_every_component_must_know_who_it_is() -> None:
    planned = look(beta("chat", component("E", "decode")))
    variables = env(planned, "chat-e")
    wanted = {
        "DYN_NAMESPACE": "serving-chat",
        "DYN_COMPONENT": "decode",
        "DYN_PARENT_DGD_K8S_NAME": "chat",
        "DYN_PARENT_DGD_K8S_NAMESPACE": "serving",
        "DYN_DISCOVERY_BACKEND": "kubernetes",
    }
    assert wanted.items() <= variables.items()
    assert "DYN_NAMESPACE_WORKER_SUFFIX" not in variables
    fields = {
        each["name"]: each["valueFrom"] for each in main(planned, "chat-e")["env"] if "valueFrom" in each
    }
    assert {name: each["fieldRef"]["fieldPath"] for name, each in fields.items()} == {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
    }
    shared = look(beta("chat", component("E", "frontend", globalDynamoNamespace=True)))
    assert env(shared, "chat-e")["DYN_NAMESPACE"] == "dynamo"
    assert env(shared, "chat-e")["DYN_NAMESPACE_PREFIX"] == "dynamo"


@pytest.mark.covers("GD-36", "GD-37", "G-9")
def test_component_must_win_over_graph_over_configuration_over_default() -> None:
    settings = GraphSettings(
        nats_address="nats://c", etcd_address="e:c", model_express_url="m", prometheus_endpoint="p"
    )
    own = {"env": [{"name": "C", "value": "own"}, {"name": "DYN_LOG", "value": "own"}]}
    shared = [
        {"name": "NATS_SERVER", "value": "graph"},
        {"name": "DYN_LOG", "value": "graph"},
        {"name": "DYN_NAMESPACE", "value": "graph"},
    ]
    planned = look(beta("chat", component("E", "worker", main=own), env=shared), settings)
    variables = env(planned, "chat-e")
    assert variables["C"] == variables["DYN_LOG"] == "own"
    assert variables["NATS_SERVER"] == variables["DYN_NAMESPACE"] == "graph"
    assert (variables["ETCD_ENDPOINTS"], variables["MODEL_EXPRESS_URL"]) == ("e:c", "m")
    assert variables["PROMETHEUS_ENDPOINT"] == "p"
    names = [each["name"] for each in main(planned, "chat-e")["env"]]
    assert names == sorted(names)
    swapped = beta("chat", component("E", "worker", main={"env": own["env"][::-1]}), env=shared[::-1])
    assert bodies(look(swapped, settings)) == bodies(planned)


@pytest.mark.covers("G-10")
def test_probe_of_the_user_must_replace_the_default_as_a_whole() -> None:
    own = {"livenessProbe": {"exec": {"command": ["a"]}}}
    assert (
        main(look(beta("chat", component("E", "worker", main=own))), "chat-e")["livenessProbe"]
        == own["livenessProbe"]
    )


@pytest.mark.covers("GD-31")
@pytest.mark.parametrize(
    ("kind", "given", "command", "args"),
    [
        ("frontend", {"args": ["--x"]}, ["python3"], ["--x"]),
        ("frontend", {"command": ["a"]}, ["a"], None),
        ("worker", {"args": ["run me"]}, ["/bin/sh", "-c"], ["run me"]),
        ("worker", {}, None, None),
        ("", {"command": ["a"], "args": ["b"]}, ["a"], ["b"]),
    ],
)
def test_command_of_the_user_must_win(kind: str, given: Raw, command: Any, args: Any) -> None:
    found = main(look(beta("chat", component("E", kind, main=given))), "chat-e")
    assert (found.get("command"), found.get("args")) == (command, args)


@pytest.mark.covers("GD-31")
def test_port_of_the_user_must_win_by_name() -> None:
    own = {"ports": [{"name": "http", "containerPort": 9999}, {"name": "more", "containerPort": 1}]}
    found = main(look(beta("chat", component("E", "frontend", main=own))), "chat-e")
    assert found["ports"] == own["ports"]


def test_sidecars_must_pass_through_except_the_frontend() -> None:
    sides: list[Raw] = [{"name": "side", "image": "s"}, {"name": "front", "image": "f"}]
    planned = look(beta("chat", component("E", "worker", sidecars=sides, frontendSidecar="front")))
    _, side, front = pod(planned, "chat-e")["spec"]["containers"]
    assert side == sides[0]
    assert front["ports"] == [{"name": "http", "containerPort": 8000, "protocol": "TCP"}]
    assert {"name": "DYN_COMPONENT", "value": "frontend"} in front["env"]


@pytest.mark.covers("GD-26", "GD-28", "G-7")
def test_graph_of_etcd_must_have_services_of_frontends_only() -> None:
    planned = look(example("etcd"))
    assert steps(planned) == [
        "Create Service lab-frontend",
        "Create Deployment lab-frontend",
        "Create Deployment lab-engine",
    ]
    labels = bodies(planned)["Service lab-frontend"]["metadata"]["labels"]
    assert PREFIX + "dynamo-discovery-enabled" not in labels
    assert "DYN_DISCOVERY_BACKEND" not in env(planned, "lab-engine")
    assert "serviceAccountName" not in pod(planned, "lab-engine")["spec"]
    assert PREFIX + "dynamo-discovery-enabled" not in pod(planned, "lab-engine")["metadata"]["labels"]


@pytest.mark.covers("GD-24", "GD-28", "G-7", "G-8")
def test_services_must_come_and_go_with_the_backend() -> None:
    by_etcd = GraphSettings(discovery_backend="etcd", etcd_address="e")
    seen = made(beta())
    assert "Delete Service chat-engine" in steps(then(seen, beta(annotations=ETCD)))
    assert "Delete Service chat-frontend" not in steps(then(seen, beta(annotations=ETCD)))
    assert "Delete Service chat-engine" in steps(then(seen, beta(), by_etcd))
    own = beta(annotations={BACKEND: "kubernetes"})
    assert "Create Service chat-engine" in steps(look(own, by_etcd))
    assert "Create Service chat-engine" in steps(then(made(beta(annotations=ETCD)), beta()))


@pytest.mark.covers("GD-26")
@pytest.mark.parametrize("annotations", [{}, {MODE: "pod"}, {MODE: "container"}, {MODE: "container", **ETCD}])
def test_container_mode_must_be_told_with_kubernetes_discovery(annotations: Raw) -> None:
    variables = env(look(beta(annotations=annotations)), "chat-engine")
    told = (variables.get("CONTAINER_NAME"), variables.get("DYN_KUBE_DISCOVERY_MODE"))
    assert told == (("main", "container") if annotations == {MODE: "container"} else (None, None))


@pytest.mark.covers("GD-25", "GD-26")
@pytest.mark.parametrize(
    ("annotations", "paths"),
    [
        ({BACKEND: "zookeeper"}, [f"metadata.annotations[{BACKEND}]"]),
        ({MODE: "room"}, [f"metadata.annotations[{MODE}]"]),
        (ETCD, ["spec.env"]),
        ({}, []),
    ],
)
def test_odd_discovery_must_be_a_warning_and_count_as_the_default(annotations: Raw, paths: list[str]) -> None:
    planned = look(beta(annotations=annotations))
    assert [each.path for each in planned.warnings] == paths
    if annotations != ETCD:
        assert env(planned, "chat-engine")["DYN_DISCOVERY_BACKEND"] == "kubernetes"


def test_etcd_with_its_address_must_be_no_warning() -> None:
    assert not look(beta(annotations=ETCD), GraphSettings(etcd_address="e")).warnings
    assert not look(example("etcd")).warnings


@pytest.mark.covers("GD-4")
def test_alpha_graph_must_have_native_types() -> None:
    labels = pod(
        look(
            alpha(
                services={
                    "E": {
                        **component("E")["podTemplate"],
                        "extraPodSpec": {"mainContainer": {"image": "x"}},
                        "componentType": "worker",
                        "subComponentType": "decode",
                    }
                }
            )
        ),
        "chat-e",
    )["metadata"]["labels"]
    assert labels[PREFIX + "dynamo-component-type"] == "decode"
    assert PREFIX + "dynamo-sub-component-type" not in labels
