"""charts/isthmus, rendered: what the operator is told, what is refused, and what things are called."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts import generate_chart_crds

from isthmus.api.configcheck import without_effect
from isthmus.app import configfile
from isthmus.app.options import CONTROLLERS, choose_controllers
from isthmus.cli.operator import command
from isthmus.sandbox.programs import HELM
from tests.support.chart import CHART, Refused, config_text, of_kind, one, render


def config(values: dict[str, Any] | None = None) -> Any:
    return yaml.safe_load(config_text(render(values)))


@pytest.mark.covers("PR-3", "T-69")
def test_default_must_export_nothing() -> None:
    assert config()["multiCluster"]["mcsImplementation"] == ""


@pytest.mark.covers("PR-3", "T-70")
@pytest.mark.parametrize("value", ["mcs", "karmada"])
def test_implementation_must_reach_the_configuration(value: str) -> None:
    rendered = config({"dynamo": {"multiCluster": {"mcsImplementation": value}}})
    assert rendered["multiCluster"]["mcsImplementation"] == value


@pytest.mark.covers("PR-3", "T-71")
@pytest.mark.parametrize("value", ["MCS", "mcs ", "none", 1, True])
def test_unknown_implementation_must_be_refused_with_the_allowed_ones(value: object) -> None:
    with pytest.raises(Refused, match="'', 'mcs', 'karmada'"):
        render({"dynamo": {"multiCluster": {"mcsImplementation": value}}})


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    """A chart whose dependency `dynamo-operator` is this one, as upstream's platform chart has its own."""
    chart = tmp_path / "platform"
    (chart / "charts").mkdir(parents=True)
    shutil.copytree(CHART, chart / "charts" / "isthmus")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    dependency = {"name": "isthmus", "alias": "dynamo-operator", "version": version, "repository": ""}
    about = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (chart / "Chart.yaml").write_text(json.dumps(about))
    return chart


@pytest.mark.covers("PR-3", "T-70", "T-71")
def test_values_must_have_upstreams_path_below_an_alias(platform: Path) -> None:
    def values(implementation: str) -> dict[str, Any]:
        return {"dynamo-operator": {"dynamo": {"multiCluster": {"mcsImplementation": implementation}}}}

    text = config_text(render(values("karmada"), chart=platform))
    assert yaml.safe_load(text)["multiCluster"]["mcsImplementation"] == "karmada"
    with pytest.raises(Refused, match="'karmada'"):
        render(values("Karmada"), chart=platform)


EVERYTHING: dict[str, Any] = {
    "replicas": 3,
    "image": {"repository": "registry.example/isthmus", "tag": "1"},
    "imagePullSecrets": [{"name": "pull"}],
    "controllers": ["modelserving"],
    "namespaceRestriction": {"enabled": True, "targetNamespace": "team-a", "lease": {"duration": "1m"}},
    "controllerManager": {"leaderElection": {"id": "x", "namespace": "leases"}},
    "discoveryBackend": "etcd",
    "natsAddr": "nats://nats:4222",
    "etcdAddr": "etcd:2379",
    "modelExpressURL": "http://mx",
    "prometheusEndpoint": "http://prometheus:9090",
    "dynamo": {
        "multiCluster": {
            "mcsImplementation": "mcs",
            "exportedLabels": {"example.com/team": "a"},
            "exportedAnnotations": {"service.cilium.io/global-sync-endpoint-slices": "true", "x": "1: '2\""},
            "sweepOnClear": False,
        }
    },
    "relay": {
        "image": "registry.example/relay:1",
        "command": ["python", "-m", "relay"],
        "metadataRights": True,
        "discovery": {"url": "https://hub.example", "tokenSecret": "hub-token", "caConfigMap": "hub-ca"},
        "location": {"region": "r", "zone": "z", "datacenter": "d"},
    },
    "logging": {"level": "debug", "format": "text"},
    "metrics": {"port": 9100, "service": {"annotations": {"a": "b"}}},
    "health": {"port": 9101},
    "debugPort": 8070,
    "workers": 7,
    "extraArgs": ["--kube-api-qps=50"],
    "serviceAccount": {"name": "me", "annotations": {"a": "b"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"a": "b"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}


@pytest.mark.covers("PR-3", "PR-104")
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_configuration_must_load_and_have_nothing_idle(values: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(config_text(render(values)))
    loaded = configfile.read(file)
    idle = {path for path in without_effect(loaded) if not path.startswith("namespace.scope.")}
    assert not idle


def test_values_must_reach_the_configuration() -> None:
    told = config(EVERYTHING)
    given = EVERYTHING["dynamo"]["multiCluster"]
    assert told["multiCluster"] == given
    assert told["relay"] == EVERYTHING["relay"]
    assert told["namespace"] == {
        "restricted": "team-a",
        "scope": {"leaseDuration": "1m", "leaseRenewInterval": "10s"},
    }
    assert told["leaderElection"] == {"enabled": True, "id": "x", "namespace": "leases"}
    assert told["discovery"] == {"backend": "etcd"}
    assert told["infrastructure"]["modelExpressURL"] == "http://mx"
    assert (told["server"]["metrics"]["port"], told["server"]["healthProbe"]["port"]) == (9100, 9101)


def test_relays_must_run_the_operators_image_unless_told() -> None:
    objects = render({"image": {"repository": "registry.example/isthmus", "tag": "7"}})
    assert yaml.safe_load(config_text(objects))["relay"]["image"] == "registry.example/isthmus:7"


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_arguments_must_be_flags_that_there_are(values: dict[str, Any]) -> None:
    spec = one(render(values), "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    subcommand, *arguments = container["args"]
    assert subcommand == "operator"
    # The file is not there; everything but it is parsed.
    context = command.make_context(
        "operator", [each for each in arguments if not each.startswith("--config=")]
    )
    choose_controllers(context.params["controllers"])
    assert "--config=/etc/isthmus/config.yaml" in arguments
    (mount,) = container["volumeMounts"]
    (volume,) = spec["volumes"]
    assert (mount["name"], mount["mountPath"]) == (volume["name"], "/etc/isthmus")


def test_controllers_to_choose_from_must_be_those_that_there_are() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert tuple(schema["properties"]["controllers"]["items"]["enum"]) == CONTROLLERS


def test_pod_must_change_when_its_configuration_does() -> None:
    def checksum(**logging: str) -> str:
        template = one(render({"logging": logging}), "Deployment")["spec"]["template"]
        value: str = template["metadata"]["annotations"]["checksum/config"]
        return value

    assert checksum() != checksum(level="debug")


def test_service_and_budget_must_select_the_pods() -> None:
    objects = render(EVERYTHING)
    labels = one(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    service = one(objects, "Service")
    assert service["spec"]["selector"].items() <= labels
    assert service["spec"]["ports"][0]["port"] == 9100
    budget = one(objects, "PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"replica": 1}, "replica"),
        ({"controllers": ["modelservings"]}, "controllers"),
        ({"namespaceRestriction": {"enabled": "yes"}}, "boolean"),
        ({"namespaceRestriction": {"targetNamespace": "A b"}}, "targetNamespace"),
        ({"namespaceRestriction": {"lease": {"duration": "30"}}}, "duration"),
        ({"dynamo": {"multicluster": {}}}, "multicluster"),
        ({"dynamo": {"multiCluster": {"exportedLabels": {"a b": "c"}}}}, "exportedLabels"),
        ({"dynamo": {"multiCluster": {"exportedLabels": {"a": "-"}}}}, "exportedLabels"),
        ({"dynamo": {"multiCluster": {"exportedAnnotations": {"a": True}}}}, "exportedAnnotations"),
        ({"discoveryBackend": "consul"}, "discoveryBackend"),
        ({"relay": {"command": []}}, "command"),
        ({"relay": {"discovery": {"url": "hub:80"}}}, "url"),
        ({"relay": {"discovery": {"token": "x"}}}, "token"),
        ({"relay": {"metadataRights": "yes"}}, "metadataRights"),
        ({"metrics": {"port": 0}}, "port"),
        ({"image": {"repository": ""}}, "repository"),
        (
            {"controllerManager": {"leaderElection": {"enabled": False}}},
            "leaderElection.enabled must be true",
        ),
    ],
)
def test_value_that_cannot_be_must_be_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        render(values)


@pytest.mark.parametrize("release", ["a", "isthmus", "r" * 53])
@pytest.mark.parametrize("values", [{}, {"fullnameOverride": "f" * 63}, {"nameOverride": "n" * 63}])
def test_names_must_fit_and_be_unique(release: str, values: dict[str, Any]) -> None:
    objects = render(values, release=release, namespace="n" * 63)
    names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects]
    assert len(set(names)) == len(names)
    for kind, _, name in names:
        assert len(name) <= (63 if kind in ("Service", "Deployment", "ServiceAccount") else 253)
    for each in objects:
        for value in each["metadata"]["labels"].values():
            assert len(value) <= 63


def test_two_releases_must_share_no_cluster_scoped_name() -> None:
    def names(namespace: str) -> set[str]:
        kinds = ("ClusterRole", "ClusterRoleBinding")
        return {each["metadata"]["name"] for each in of_kind(render(namespace=namespace), *kinds)}

    assert names("one").isdisjoint(names("two"))


def test_helm_must_find_nothing_to_complain_of() -> None:
    command = [str(HELM.find()), "lint", "--strict", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15)
    assert done.returncode == 0, done.stdout


def test_crds_must_be_those_of_the_code() -> None:
    committed = {path.name: path.read_text("utf-8") for path in generate_chart_crds.FOLDER.iterdir()}
    assert committed == generate_chart_crds.files(), "run `make chart-crds`"
    rendered = of_kind(render(crds=True), "CustomResourceDefinition")
    assert len(rendered) == len(committed)
