"""The servers' command lines and files."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from isthmus.sandbox import build, cluster
from isthmus.sandbox.settings import Folder

FOLDER = Folder(Path("/s"))
PROGRAMS = build.single(Path("/controlplane"))
APISERVER = cluster.apiserver_argv(PROGRAMS, FOLDER, cluster=1, port=2, etcd_port=1, audit=False)
ETCD = cluster.etcd_argv(PROGRAMS, FOLDER, port=1, peer_port=3)


def test_servers_never_listen_beyond_loopback() -> None:
    addresses = re.findall(r"\d+\.\d+\.\d+\.\d+(?!/)", " ".join((*APISERVER, *ETCD)))
    assert set(addresses) <= {"127.0.0.1", "10.101.0.0"}
    assert "--bind-address=127.0.0.1" in APISERVER
    assert "--secure-port=0" in cluster.controller_manager_argv(PROGRAMS, FOLDER, cluster=0)


def test_servers_must_share_their_ports_with_the_reservation() -> None:
    assert "--permit-port-sharing" in APISERVER
    assert "--socket-reuse-port" in ETCD


def test_apiserver_must_authorise_and_admit_as_real_ones_do() -> None:
    assert "--authorization-mode=RBAC" in APISERVER
    assert not any("disable-admission" in word for word in APISERVER)


def test_clusters_must_not_share_keys_in_etcd_or_service_addresses() -> None:
    other = cluster.apiserver_argv(PROGRAMS, FOLDER, cluster=0, port=2, etcd_port=1, audit=False)
    differing = {word.partition("=")[0] for word in set(APISERVER) ^ set(other)}
    assert differing == {"--etcd-prefix", "--service-cluster-ip-range"}


def test_audit_must_be_exact_and_leave_out_the_sandbox_itself() -> None:
    argv = cluster.apiserver_argv(PROGRAMS, FOLDER, cluster=0, port=2, etcd_port=1, audit=True)
    assert "--audit-log-mode=blocking" in argv
    policy = msgspec.json.decode(cluster.audit_policy())
    assert policy["rules"][0] == {
        "level": "None",
        "users": ["controller-manager", "sandbox-node", "system:apiserver"],
    }


def test_kubeconfig_must_need_no_other_file() -> None:
    text = cluster.kubeconfig(server="https://x", ca_pem="PEM", user="u", credentials={"token": "t"})
    raw_config = msgspec.json.decode(text)
    assert raw_config["clusters"][0]["cluster"] == {
        "server": "https://x",
        "certificate-authority-data": "UEVN",
    }
    assert raw_config["users"] == [{"name": "u", "user": {"token": "t"}}]


def test_token_file_must_quote_groups() -> None:
    text = cluster.tokens_csv({"u": ("a", "b")}, {"u": "secret"})
    assert text == b'secret,u,u,"a,b"\n'


def test_servers_never_see_proxies_or_kubeconfigs_of_the_environment() -> None:
    env = {"PATH": "/bin", "HTTPS_PROXY": "http://p", "KUBECONFIG": "/k", "ETCD_NAME": "x"}
    assert cluster.environment(env) == {"PATH": "/bin"}


def test_inert_cluster_must_lack_the_controllers_of_workloads_and_no_other() -> None:
    def controllers(*, inert: bool) -> set[str]:
        argv = cluster.controller_manager_argv(PROGRAMS, FOLDER, cluster=0, inert=inert)
        (flag,) = (word for word in argv if word.startswith("--controllers="))
        return set(flag.partition("=")[2].split(","))

    assert controllers(inert=False) - controllers(inert=True) == set(cluster.WORKLOADS)
    assert "serviceaccount-token-controller" in controllers(inert=True)


def test_aggregated_servers_must_be_asked_as_the_front_proxy_alone() -> None:
    assert "--requestheader-allowed-names=front-proxy-client" in APISERVER
    assert "--proxy-client-cert-file=/s/pki/front-proxy.crt" in APISERVER
