"""`isthmus pool check` on manifests: what it says, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from isthmus.cli.pool import command
from isthmus.errors import UserError

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "poolrelay" / "graph.yaml"
GRAPH: dict[str, Any]
RELAY: dict[str, Any]
GRAPH, RELAY = yaml.safe_load_all(EXAMPLE.read_text())
ETCD = {"nvidia.com/dynamo-discovery-backend": "etcd"}
CONFIG = "apiVersion: operator.config.dynamo.nvidia.com/v1alpha1\nkind: OperatorConfiguration\n"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(command, ["check", *arguments], catch_exceptions=True)
    if isinstance(result.exception, UserError):
        raise result.exception
    return result


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pool.yaml"


def checked(file: Path, *documents: Any, flags: tuple[str, ...] = ()) -> dict[str, Any]:
    file.write_text(yaml.safe_dump_all(documents))
    result = run("-f", str(file), "-o", "json", *flags)
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (1 if found["findings"] else 0)
    return found


def reasons(found: dict[str, Any]) -> list[str]:
    return [finding["reason"] for finding in found["findings"]]


def names(found: dict[str, Any]) -> dict[str, str]:
    return {export["name"]: export["state"] for export in found["exports"]}


def graph(*components: tuple[str, str], name: str = "chat", **meta: Any) -> dict[str, Any]:
    listed = [
        {"name": each, "type": kind, "podTemplate": GRAPH["spec"]["components"][0]["podTemplate"]}
        for each, kind in components
    ]
    return GRAPH | {"metadata": {"name": name, **meta}, "spec": {"components": listed}}


def relay(name: str = "chat", **spec: Any) -> dict[str, Any]:
    return RELAY | {"metadata": {"name": name}, "spec": RELAY["spec"] | spec}


def test_example_must_have_nothing_in_its_way() -> None:
    result = run("-f", str(EXAMPLE))
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "pool default/chat: published, cluster ID east",
        "  chat-pool-relay  will be exported  (relay)",
        "  chat-frontend    will be exported  (Frontend)",
        "nothing stands in the way",
    ]


def test_older_form_of_the_graph_must_come_to_the_same(file: Path) -> None:
    image = {"mainContainer": {"image": "registry.example/fe:1"}}
    older = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "chat"},
        "spec": {
            "services": {
                "Frontend": {"componentType": "frontend", "extraPodSpec": image},
                "Engine": {"componentType": "worker", "extraPodSpec": image},
            }
        },
    }
    assert checked(file, older, RELAY) == checked(file, GRAPH, RELAY)


@pytest.mark.parametrize(
    ("documents", "flags", "expected"),
    [
        ((GRAPH,), (), ["RelayNotFound"]),
        ((RELAY,), (), ["GraphNotFound"]),
        ((graph(("Engine", "worker")), RELAY), (), ["NoFrontend"]),
        ((graph(("Frontend", "frontend")), RELAY), (), ["NoWorkers"]),
        ((GRAPH, relay(clusterId="")), (), ["InvalidConfiguration"]),
        (
            (graph(("F" + "x" * 50, "frontend"), ("E", "worker")), RELAY),
            ("--implementation=karmada",),
            ["ServiceNameTooLong"],
        ),
        ((graph(("F" + "x" * 60, "frontend"), ("E", "worker")), RELAY), (), ["InvalidServiceName"]),
        (
            (
                GRAPH
                | {
                    "metadata": {
                        "name": "chat",
                        "annotations": {"nvidia.com/dynamo-discovery-backend": "etcd"},
                    }
                },
                RELAY,
            ),
            (),
            ["UnsupportedDiscovery"],
        ),
        (
            (
                GRAPH,
                RELAY,
                {
                    "apiVersion": "about.k8s.io/v1beta1",
                    "kind": "ClusterProperty",
                    "metadata": {"name": "cluster.clusterset.k8s.io"},
                    "spec": {"value": "west"},
                },
            ),
            (),
            ["ClusterIDMismatch"],
        ),
        (
            (
                GRAPH,
                RELAY,
                {
                    "apiVersion": "multicluster.x-k8s.io/v1beta1",
                    "kind": "ServiceExport",
                    "metadata": {"name": "chat-frontend"},
                },
            ),
            (),
            ["ForeignExport"],
        ),
    ],
)
def test_obstacle_must_be_found(
    file: Path, documents: tuple[Any, ...], flags: tuple[str, ...], expected: list[str]
) -> None:
    assert reasons(checked(file, *documents, flags=flags)) == expected


def test_names_must_be_shown_before_there_is_a_relay(file: Path) -> None:
    found = checked(file, GRAPH)
    assert list(names(found)) == ["chat-pool-relay", "chat-frontend"]
    assert not found["published"]


def test_relay_of_a_serving_must_export_the_services_that_it_has(file: Path) -> None:
    def service(name: str, serving: str) -> dict[str, Any]:
        owner = {"apiVersion": "x/v1", "kind": "ModelServing", "name": serving, "uid": f"{serving}-uid"}
        meta = {
            "name": name,
            "labels": {"modelserving.volcano.sh/name": serving},
            "ownerReferences": [owner | {"controller": True}],
        }
        return {"apiVersion": "v1", "kind": "Service", "metadata": meta}

    target = {"apiVersion": "workload.serving.volcano.sh/v1alpha1", "kind": "ModelServing", "name": "sample"}
    serving = {"apiVersion": target["apiVersion"], "kind": target["kind"]}
    found = checked(
        file,
        relay("east", targetRef=target),
        serving | {"metadata": {"name": "sample", "uid": "sample-uid"}},
        service("sample-0-p-0-0", "sample"),
        service("other-0-p-0-0", "other"),
    )
    assert list(names(found)) == ["east-pool-relay", "sample-0-p-0-0"]
    assert reasons(found) == []
    assert reasons(checked(file, relay("east", targetRef=target))) == ["TargetNotFound"]


def test_supposed_relay_must_have_the_id_that_is_known(file: Path) -> None:
    said = {"apiVersion": "about.k8s.io/v1beta1", "kind": "ClusterProperty", "spec": {"value": "west"}}
    of_cluster = said | {"metadata": {"name": "cluster.clusterset.k8s.io"}}
    assert checked(file, GRAPH, of_cluster)["clusterId"] == "west"
    found = checked(file, GRAPH, of_cluster, flags=("--cluster-id=east",))
    assert (found["clusterId"], reasons(found)) == ("east", ["RelayNotFound", "ClusterIDMismatch"])


def test_configuration_must_be_the_operators(file: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    assert "ExportsOff" in reasons(checked(file, GRAPH, RELAY, flags=(f"--config={config}",)))
    config.write_text(CONFIG + "multiCluster: {mcsImplementation: karmada}\ndiscovery: {backend: etcd}\n")
    assert reasons(checked(file, GRAPH, RELAY, flags=(f"--config={config}",))) == ["UnsupportedDiscovery"]
    with pytest.raises(UserError, match="--implementation mcs"):
        checked(file, GRAPH, RELAY, flags=(f"--config={config}", "--implementation=mcs"))


def test_other_namespaces_must_not_count(file: Path) -> None:
    there = relay() | {"metadata": {"name": "chat", "namespace": "there"}}
    assert reasons(checked(file, GRAPH, there)) == ["RelayNotFound"]
    assert reasons(checked(file, GRAPH, there, flags=("-n", "there"))) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "expected"),
        ("- 1\n", "no object of Kubernetes"),
        ("kind: Pod\nmetadata: {name: x}\napiVersion: v1\n", "neither a DynamoPoolRelay nor"),
        (yaml.safe_dump_all([relay("a"), relay("b")]), "several DynamoPoolRelays: a, b"),
        (yaml.safe_dump_all([GRAPH | {"metadata": {"name": "a", "uid": 5}}]), "DynamoGraphDeployment a: "),
    ],
)
def test_file_that_cannot_be_checked_must_be_a_usage_error(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match=words):
        run("-f", str(file))


def test_name_must_be_given_where_no_file_is() -> None:
    with pytest.raises(UserError, match="name the pool"):
        run()
