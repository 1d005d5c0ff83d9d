from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.clock import SystemClock
from isthmus.errors import UserError
from isthmus.kube import config
from isthmus.kube.credentials import Fixed, TokenFile
from isthmus.kube.execplugin import ExecCredentials


def kubeconfig(
    path: Path,
    *,
    name: str = "c",
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    current: str | None = None,
    as_yaml: bool = False,
) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name if current is None else current,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"} | (cluster or {})}],
        "users": [{"name": name, "user": {"token": f"token-{name}"} if user is None else user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"ns-{name}"}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content) if as_yaml else json.dumps(content))
    return path


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("in-cluster\n")
    (folder / "ca.crt").write_text("CA")
    (folder / "namespace").write_text("sys\n")
    return folder


def authorization(loaded: config.ClusterConfig) -> str | None:
    return loaded.credentials.cached(0.0)


def test_explicit_path_must_win_over_everything(tmp_path: Path, pod: Path) -> None:
    path = kubeconfig(tmp_path / "explicit", name="x", as_yaml=True)
    other = kubeconfig(tmp_path / "other", name="o")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": str(other), "HOME": str(tmp_path)}
    loaded = config.load(path, environ=environ, service_account=pod)
    assert (loaded.server, loaded.namespace, authorization(loaded)) == (
        "https://x:6443",
        "ns-x",
        "Bearer token-x",
    )


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
async def test_pod_must_use_its_service_account(tmp_path: Path, pod: Path, host: str, server: str) -> None:
    other = kubeconfig(tmp_path / "other")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBECONFIG": str(other)}
    loaded = config.load(environ=environ, service_account=pod)
    assert (loaded.server, loaded.namespace, loaded.tls.ca_path) == (server, "sys", pod / "ca.crt")
    assert isinstance(loaded.credentials, TokenFile)
    assert await loaded.credentials.refresh(SystemClock()) == "Bearer in-cluster"


def test_context_must_pass_the_service_account_by(tmp_path: Path, pod: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": str(kubeconfig(tmp_path / "k", name="k"))}
    assert config.load(context="k", environ=environ, service_account=pod).server == "https://k:6443"


def test_pod_without_token_must_fall_back_to_kubeconfig(tmp_path: Path, pod: Path) -> None:
    (pod / "token").unlink()
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": str(kubeconfig(tmp_path / "k", name="k"))}
    assert config.load(environ=environ, service_account=pod).server == "https://k:6443"


def test_pod_without_ca_must_be_refused(pod: Path) -> None:
    (pod / "ca.crt").unlink()
    with pytest.raises(UserError, match=r"ca\.crt is missing"):
        config.load(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, service_account=pod)


def test_listed_kubeconfigs_must_be_merged_first_wins(tmp_path: Path) -> None:
    first = kubeconfig(
        tmp_path / "a" / "k", name="c", current="", cluster={"certificate-authority": "ca.crt"}
    )
    second = kubeconfig(tmp_path / "b" / "k", name="c", cluster={"server": "https://loses"})
    third = kubeconfig(tmp_path / "c" / "k", name="d")
    environ = {"KUBECONFIG": f"{tmp_path}/missing:{first}:{second}:{third}"}
    loaded = config.load(environ=environ)
    assert loaded.server == "https://c:6443"
    assert loaded.tls.ca_path == first.parent / "ca.crt"
    assert config.load(context="d", environ=environ).server == "https://d:6443"


def test_home_must_come_last(tmp_path: Path) -> None:
    kubeconfig(tmp_path / ".kube" / "config", name="h")
    assert config.load(environ={"HOME": str(tmp_path)}).server == "https://h:6443"
    with pytest.raises(UserError, match="no cluster to talk to") as caught:
        config.load(environ={"HOME": str(tmp_path / "nobody")})
    assert "--kubeconfig" in caught.value.hint


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ("{", "is not valid"),
        ("a: [", "is not valid: no YAML"),
        ("clusters: 5", "is not valid"),
        ("", "no current-context"),
        ("current-context: x", "no context 'x'"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: c}}]", "names cluster 'c'"),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'https://h'}}]",
            "names user 'u'",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
            "clusters: [{name: c, cluster: {}}]",
            "server '' is not",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
            "clusters: [{name: c, cluster: {server: 'https://h:port'}}]",
            "is not an http or https URL",
        ),
    ],
)
def test_broken_kubeconfig_must_be_named_with_its_fault(tmp_path: Path, broken: str, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(broken)
    with pytest.raises(UserError, match=text) as caught:
        config.load(path)
    assert str(path) in str(caught.value)


def test_missing_kubeconfig_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        config.load(tmp_path / "nothing")
    with pytest.raises(UserError, match="none of the kubeconfig files exists"):
        config.load(environ={"KUBECONFIG": str(tmp_path / "nothing")})


@pytest.mark.parametrize(
    ("user", "kind", "header"),
    [
        ({}, Fixed, ""),
        ({"token": "t"}, Fixed, "Bearer t"),
        ({"username": "u", "password": "p"}, Fixed, "Basic dTpw"),
        ({"tokenFile": "t", "token": "x"}, TokenFile, None),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}}, ExecCredentials, None),
    ],
)
def test_each_kind_of_user_must_give_its_credentials(
    tmp_path: Path, user: dict[str, Any], kind: type, header: str | None
) -> None:
    loaded = config.load(kubeconfig(tmp_path / "k", user=user), environ={})
    assert type(loaded.credentials) is kind
    assert authorization(loaded) == header


@pytest.mark.parametrize(
    ("user", "text"),
    [
        ({"auth-provider": {"name": "gcp"}}, "auth-provider 'gcp'"),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "v1alpha1"),
        (
            {
                "exec": {
                    "command": "x",
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "interactiveMode": "Always",
                }
            },
            "wants a terminal",
        ),
        ({"client-certificate": "c"}, "without its key"),
        ({"client-certificate-data": "%%", "client-key-data": "aa=="}, "not base64"),
        ({"client-certificate-data": "YQ==", "client-key": "missing"}, "cannot read"),
    ],
)
def test_users_that_cannot_work_must_be_refused(tmp_path: Path, user: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        config.load(kubeconfig(tmp_path / "k", user=user), environ={})


def test_tls_settings_must_come_from_file_or_data(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    loaded = config.load(
        kubeconfig(
            tmp_path / "k",
            cluster={
                "certificate-authority-data": data,
                "tls-server-name": "other",
                "certificate-authority": "x",
            },
            user={"client-certificate": "c.pem", "client-key": "k.pem"},
        ),
        environ={},
    )
    tls = loaded.tls
    assert (tls.ca_pem, tls.ca_path, tls.server_name) == (b"PEM", None, "other")
    assert (tls.certificate_path, tls.key_path) == (tmp_path / "c.pem", tmp_path / "k.pem")
    loaded = config.load(
        kubeconfig(
            tmp_path / "k2",
            cluster={"insecure-skip-tls-verify": True},
            user={"client-certificate-data": data, "client-key-data": data},
        ),
        environ={},
    )
    assert loaded.tls.insecure
    assert loaded.tls.certificate is not None


@pytest.mark.covers("R25")
def test_kubeconfig_proxy_must_win_over_the_variables(tmp_path: Path) -> None:
    environ = {"HTTPS_PROXY": "http://env:1", "NO_PROXY": "*"}
    path = kubeconfig(tmp_path / "k", cluster={"proxy-url": "http://own:2"})
    assert config.load(path, environ=environ).proxy == "http://own:2"
    assert config.load(kubeconfig(tmp_path / "k2"), environ=environ).proxy is None
    with pytest.raises(UserError, match="proxy-url"):
        config.load(kubeconfig(tmp_path / "k3", cluster={"proxy-url": "socks5://own:2"}), environ={})


@pytest.mark.covers("R25")
def test_pod_must_honour_no_proxy(pod: Path) -> None:
    environ = {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "no_proxy": "10.0.0.0/8",
    }
    assert config.load(environ=environ, service_account=pod).proxy is None
    environ["no_proxy"] = ""
    assert config.load(environ=environ, service_account=pod).proxy == "http://127.0.0.1:9"


def test_impersonation_must_become_headers(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-groups": ["a", "b"], "as-uid": "7"}
    assert config.load(kubeconfig(tmp_path / "k", user=user), environ={}).headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"),
    )
