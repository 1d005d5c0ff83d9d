"""The configuration file, typed: what is accepted, what is refused and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.configcheck import InvalidConfiguration, decode, parse_duration, without_effect
from isthmus.api.configuration import API_VERSION, KIND, OperatorConfiguration

HEAD = {"apiVersion": API_VERSION, "kind": KIND}


def problems(**sections: Any) -> dict[str, str]:
    """Path to text of everything that is wrong."""
    with pytest.raises(InvalidConfiguration) as caught:
        decode({**HEAD, **sections})
    return {problem.path: problem.text for problem in caught.value.problems}


def multi_cluster(**settings: Any) -> OperatorConfiguration:
    return decode({**HEAD, "multiCluster": settings})


@pytest.mark.covers("PR-1", "T-57", "T-58", "T-59")
@pytest.mark.parametrize("value", ["", "mcs", "karmada"])
def test_implementation_must_be_one_of_three(value: str) -> None:
    assert multi_cluster(mcsImplementation=value).multi_cluster.mcs_implementation == value


@pytest.mark.covers("PR-2", "T-60")
@pytest.mark.parametrize("value", ["Karmada", "mcs ", " mcs", "MCS", "none", 1, True, ["mcs"]])
def test_other_implementation_must_be_refused_with_its_path_and_the_allowed_ones(value: object) -> None:
    (text,) = problems(multiCluster={"mcsImplementation": value}).values()
    assert text.startswith('must be one of "", "mcs", "karmada"; is ')
    assert list(problems(multiCluster={"mcsImplementation": value})) == ["multiCluster.mcsImplementation"]


@pytest.mark.covers("PR-1", "T-61")
@pytest.mark.parametrize("raw", [{}, {"multiCluster": None}, {"multiCluster": {}}])
def test_absent_implementation_must_be_off(raw: dict[str, Any]) -> None:
    assert decode({**HEAD, **raw}) == OperatorConfiguration()
    assert OperatorConfiguration().multi_cluster.mcs_implementation == ""


@pytest.mark.covers("T-62", "GD-50")
@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"multiCluster": {"mcsImplementaton": "mcs"}}, "multiCluster.mcsImplementaton"),
        ({"multicluster": {}}, "multicluster"),
        ({"server": {"metrics": {"addr": ""}}}, "server.metrics.addr"),
        ({"orchestrators": {"lws": {"on": True}}}, "orchestrators.lws.on"),
    ],
)
def test_unknown_key_must_be_refused_with_its_path(raw: dict[str, Any], path: str) -> None:
    assert "unknown key; there are: " in problems(**raw)[path]


@pytest.mark.covers("GD-50")
def test_problems_must_all_be_told_at_once() -> None:
    found = problems(
        server={
            "metrics": {"port": 70000},
            "healthProbe": {"port": -1, "bindAddress": "here"},
            "webhook": {"port": "8"},
        },
        leaderElection={"enabled": True, "namespace": "a/b"},
        discovery={"backend": "consul"},
        logging={"level": "loud", "format": "xml"},
        namespace={"restricted": "Team A"},
        multiCluster={"mcsImplementation": "x"},
        relay={"command": []},
        dra={"enabled": "yes"},
    )
    assert set(found) == {
        "server.metrics.port",
        "server.healthProbe.port",
        "server.healthProbe.bindAddress",
        "server.webhook.port",
        "leaderElection.namespace",
        "leaderElection.id",
        "discovery.backend",
        "logging.level",
        "logging.format",
        "namespace.restricted",
        "multiCluster.mcsImplementation",
        "relay.command",
        "dra.enabled",
    }


@pytest.mark.covers("GD-50")
@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ({"leaseDuration": "0s"}, "namespace.scope.leaseDuration"),
        ({"leaseRenewInterval": "-1s"}, "namespace.scope.leaseRenewInterval"),
        ({"leaseDuration": "10s", "leaseRenewInterval": "10s"}, "namespace.scope.leaseRenewInterval"),
        ({"leaseDuration": "soon"}, "namespace.scope.leaseDuration"),
    ],
)
def test_marker_lease_must_be_renewed_before_it_runs_out(scope: dict[str, str], path: str) -> None:
    assert path in problems(namespace={"restricted": "team-a", "scope": scope})


@pytest.mark.covers("GD-50")
def test_delay_of_an_orchestrator_must_not_be_negative() -> None:
    path = "orchestrators.grove.terminationDelay"
    assert path in problems(orchestrators={"grove": {"terminationDelay": "-1s"}})
    decode({**HEAD, "orchestrators": {"grove": {"terminationDelay": "0s"}}})


@pytest.mark.covers("GD-50")
def test_marker_lease_must_be_allowed_to_be_short() -> None:
    scope = {"leaseDuration": "1s", "leaseRenewInterval": "500ms"}
    decode({**HEAD, "namespace": {"restricted": "team-a", "scope": scope}})


@pytest.mark.covers("GD-50")
def test_marker_lease_must_not_matter_without_a_restriction() -> None:
    decode({**HEAD, "namespace": {"scope": {"leaseDuration": "5s", "leaseRenewInterval": "10s"}}})


@pytest.mark.covers("GD-50")
@pytest.mark.parametrize(("port", "fits"), [(1, True), (65535, True), (65536, False), (-1, False)])
def test_port_must_be_one_that_there_is(port: int, fits: bool) -> None:
    raw = {"server": {"healthProbe": {"port": port}}}
    if fits:
        assert decode({**HEAD, **raw}).server.health_probe.port == port
    else:
        assert problems(**raw) == {"server.healthProbe.port": f"must be 0 to 65535; is {port}"}


@pytest.mark.covers("RL-18")
@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ({"discovery": {"url": "hub:8080"}}, "relay.discovery.url"),
        ({"discovery": {"url": "http://u:p@hub"}}, "relay.discovery.url"),
        ({"discovery": {"url": "http://hub", "tokenSecret": "a/b"}}, "relay.discovery.tokenSecret"),
        ({"discovery": {"url": "http://hub", "caConfigMap": "A"}}, "relay.discovery.caConfigMap"),
        ({"discovery": {"tokenSecret": "a"}}, "relay.discovery.tokenSecret"),
        ({"discovery": {"path": "x"}}, "relay.discovery.path"),
        ({"location": {"region": " x"}}, "relay.location.region"),
        ({"location": {"zone": "x" * 254}}, "relay.location.zone"),
        ({"metadataRights": "yes"}, "relay.metadataRights"),
    ],
)
def test_relays_section_must_be_right(raw: dict[str, Any], path: str) -> None:
    assert set(problems(relay=raw)) == {path}


def test_relays_section_must_be_read() -> None:
    found = decode(
        {
            **HEAD,
            "relay": {
                "discovery": {"url": "https://hub/x", "tokenSecret": "a.b", "caConfigMap": "c"},
                "location": {"region": "r"},
                "metadataRights": True,
            },
        }
    )
    discovery = found.relay.discovery
    assert (discovery.url, discovery.token_secret, discovery.ca_config_map) == ("https://hub/x", "a.b", "c")
    assert (found.relay.location.region, found.relay.metadata_rights) == ("r", True)
    assert without_effect(found) == ()


def test_text_that_is_missing_its_quotes_must_be_told_so() -> None:
    found = problems(relay={"image": 5}, multiCluster={"exportedLabels": {"a": True, "b": ["x"]}})
    assert found == {
        "relay.image": "must be text; is 5; put it in quotes",
        "multiCluster.exportedLabels[a]": "must be text; is true; put it in quotes",
        "multiCluster.exportedLabels[b]": 'must be text; is ["x"]',
    }
    assert problems(relay={"command": "isthmus"}) == {
        "relay.command": 'must be a list of texts; is "isthmus"'
    }


def test_nothing_and_zero_must_mean_the_default_as_in_go() -> None:
    raw = {
        "server": {"metrics": {"bindAddress": "", "port": 0}, "healthProbe": None},
        "discovery": {"backend": ""},
        "logging": {"level": None, "format": ""},
    }
    assert decode({**HEAD, **raw}) == OperatorConfiguration()


def test_false_must_not_mean_the_default() -> None:
    assert multi_cluster(sweepOnClear=False).multi_cluster.sweep_on_clear is False


@pytest.mark.parametrize("key", ["apiVersion", "kind"])
@pytest.mark.parametrize("value", [None, "", "v1"])
def test_other_kind_of_file_must_be_refused(key: str, value: object) -> None:
    assert key in problems(**{key: value})


@pytest.mark.parametrize("document", [None, [], "text", 3])
def test_document_that_is_no_mapping_must_be_refused(document: object) -> None:
    with pytest.raises(InvalidConfiguration, match="must be a mapping"):
        decode(document)


@pytest.mark.parametrize("value", [[1], "text", 3, True])
def test_section_that_is_no_mapping_must_be_refused(value: object) -> None:
    assert problems(server={"metrics": value})["server.metrics"].startswith("must be a mapping; is ")


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"exportedLabels": {"a b": "c"}}, "multiCluster.exportedLabels[a b]"),
        ({"exportedLabels": {"example.com/a": "-"}}, "multiCluster.exportedLabels[example.com/a]"),
        ({"exportedLabels": {"a": "x" * 64}}, "multiCluster.exportedLabels[a]"),
        ({"exportedLabels": {"a": True}}, "multiCluster.exportedLabels[a]"),
        ({"exportedLabels": ["a"]}, "multiCluster.exportedLabels"),
        ({"exportedAnnotations": {"/a": "c"}}, "multiCluster.exportedAnnotations[/a]"),
        ({"exportedAnnotations": {"a": 1}}, "multiCluster.exportedAnnotations[a]"),
        ({"exportedAnnotations": {"a": "x" * (256 << 10)}}, "multiCluster.exportedAnnotations"),
    ],
)
def test_exported_metadata_must_have_the_apis_syntax(settings: dict[str, Any], path: str) -> None:
    assert list(problems(multiCluster=settings)) == [path]


def test_exported_metadata_must_be_kept_as_it_is() -> None:
    labels = {"team": "", "example.com/tier": "a_b.c-1"}
    annotations = {"service.cilium.io/global-sync-endpoint-slices": "true", "x": "any text: ü"}
    found = multi_cluster(exportedLabels=labels, exportedAnnotations=annotations).multi_cluster
    assert (found.exported_labels, found.exported_annotations) == (labels, annotations)


@pytest.mark.covers("GD-50", "GD-51", "PR-6")
def test_file_with_every_key_of_upstream_must_load() -> None:
    raw: dict[str, Any] = {
        "server": {
            "metrics": {"bindAddress": "0.0.0.0", "port": 8080, "secure": True},
            "healthProbe": {"bindAddress": "0.0.0.0", "port": 8081},
            "webhook": {
                "bindAddress": "",
                "host": "0.0.0.0",
                "port": 9443,
                "certDir": "/certs",
                "certProvisionMode": "auto",
                "secretName": "webhook-server-cert",
                "serviceName": "webhook",
            },
        },
        "leaderElection": {"enabled": True, "id": "dynamo.nvidia.com", "namespace": "kube-system"},
        "namespace": {"restricted": "", "scope": {"leaseDuration": "30s", "leaseRenewInterval": "10s"}},
        "orchestrators": {
            "grove": {"enabled": True, "terminationDelay": "15m"},
            "lws": {"enabled": False},
            "kaiScheduler": {},
            "volcanoScheduler": {"enabled": None},
        },
        "dra": {"enabled": False},
        "infrastructure": {
            "natsAddress": "nats://nats:4222",
            "etcdAddress": "etcd:2379",
            "modelExpressURL": "http://mx",
            "prometheusEndpoint": "http://prometheus:9090",
            **{f"natsTLS{end}": "/x" for end in ("CAPath", "ClientCertPath", "ClientKeyPath")},
            **{f"tcpTLS{end}": "/x" for end in ("CertPath", "KeyPath", "CAPath", "ClientCertPath")},
            **{f"tcpTLS{end}": "/x" for end in ("ClientKeyPath", "ClientCAPath", "ServerName")},
        },
        "ingress": {"virtualServiceGateway": "", "hostSuffix": "example.com"},
        "serviceMesh": {"provider": "istio", "enabled": True, "istio": {"tlsMode": "SIMPLE"}},
        "rbac": {
            "plannerClusterRoleName": "planner",
            "dgdrProfilingClusterRoleName": "profiling",
            "eppClusterRoleName": "epp",
        },
        "mpi": {"sshSecretName": "mpi", "sshSecretNamespace": "default"},
        "checkpoint": {"enabled": False, "storage": {"type": "pvc"}},
        "lpx": {"enabled": False},
        "discovery": {"backend": "etcd"},
        "gpu": {"discoveryEnabled": True},
        "logging": {"level": "debug", "format": "text"},
        "security": {"enableHTTP2": False},
        "multiCluster": {"mcsImplementation": "karmada"},
    }
    found = decode({**HEAD, **raw})
    assert found.infrastructure.model_express_url == "http://mx"
    assert found.leader_election.id == "dynamo.nvidia.com"
    assert found.discovery.backend == "etcd"
    idle = without_effect(found)
    assert "server.metrics.secure" in idle
    assert "infrastructure.tcpTLSServerName" in idle
    assert "orchestrators.grove.enabled" in idle
    assert not {path for path in idle if path.startswith(("multiCluster", "logging", "leaderElection"))}


def test_defaults_must_be_said_to_have_no_effect_nowhere() -> None:
    assert without_effect(OperatorConfiguration()) == ()


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1m30s", 90), ("1h", 3600), ("1.5s", 1.5), ("0", 0), ("-2m", -120)]
)
def test_duration_must_be_read_as_go_does(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "s", "1m x", "1d", " 1s"])
def test_text_that_is_no_duration_must_be_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)
