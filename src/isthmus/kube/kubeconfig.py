"""Kubeconfig files: read, merged as kubectl merges them, and one context of them made into settings.

config.py calls `read` and then `choose`. Of several files, the first that names a cluster, user or context
wins, and the first current-context; paths in an entry are relative to the file that it came from. YAML is
imported only where a file is not JSON. Unknown fields are ignored, as kubectl does; what we cannot do
(auth-provider, SOCKS, plugins that ask a person) is refused with a text that says what to do instead.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from isthmus.api.meta import Raw
from isthmus.errors import UserError
from isthmus.kube import execplugin, proxies
from isthmus.kube.credentials import Credentials, Fixed, Pem, TokenFile
from isthmus.kube.tls import TlsSettings


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] | None = None


class _EnvVar(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[_EnvVar] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: _Exec | None = None
    auth_provider: dict[str, Any] | None = None
    impersonate_user: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] | None = msgspec.field(default=None, name="as-groups")


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str = ""


class Merged(msgspec.Struct, kw_only=True):
    """Several kubeconfig files as one. Each entry is with the file that it came from."""

    paths: list[Path]
    current_context: str = ""
    clusters: dict[str, tuple[_Cluster, Path]] = {}
    users: dict[str, tuple[_User, Path]] = {}
    contexts: dict[str, _Context] = {}


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """One context, as config.ClusterConfig wants it. `proxy` is the kubeconfig's own, "" if it has none."""

    context: str
    server: str
    namespace: str
    tls: TlsSettings
    credentials: Credentials
    proxy: str
    headers: tuple[tuple[str, str], ...]


_LISTS_HINT: Final = "choose another with --context, or set current-context in the file"


def read(paths: list[Path], *, must_exist: bool) -> Merged:
    """The files of `paths`, merged. Missing ones are passed over unless `must_exist` (or none is there).

    Raises UserError that names the file.
    """
    merged = Merged(paths=paths)
    found = False
    for path in paths:
        if not path.exists() and not must_exist:
            continue
        found = True
        content = _read_file(path)
        merged.current_context = merged.current_context or content.current_context
        for cluster in content.clusters or ():
            merged.clusters.setdefault(cluster.name, (cluster.cluster, path))
        for user in content.users or ():
            merged.users.setdefault(user.name, (user.user or _User(), path))
        for context in content.contexts or ():
            merged.contexts.setdefault(context.name, context.context)
    if not found:
        raise UserError(f"none of the kubeconfig files exists: {', '.join(map(str, paths))}")
    return merged


def _read_file(path: Path) -> _File:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    try:
        if text.lstrip()[:1] == b"{":
            return msgspec.json.decode(text, type=_File)
        return _read_yaml(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise UserError(f"the kubeconfig {path} is not valid: {error}") from error


def _read_yaml(text: bytes) -> _File:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        raw_file = yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from error
    return msgspec.convert(raw_file if raw_file is not None else {}, type=_File)


def choose(merged: Merged, context: str | None, environ: Mapping[str, str]) -> Chosen:
    """The settings of `context` (None: the current one). Raises UserError that names the wrong entry."""
    files = ", ".join(map(str, merged.paths))
    name = context or merged.current_context
    known = ", ".join(sorted(merged.contexts)) or "none"
    if not name:
        raise UserError(f"{files}: no current-context (there are: {known})", hint=_LISTS_HINT)
    picked = merged.contexts.get(name)
    if picked is None:
        raise UserError(f"{files}: no context {name!r} (there are: {known})", hint=_LISTS_HINT)
    if picked.cluster not in merged.clusters:
        raise UserError(f"{files}: context {name!r} names cluster {picked.cluster!r}, which is not there")
    if picked.user and picked.user not in merged.users:
        raise UserError(f"{files}: context {name!r} names user {picked.user!r}, which is not there")
    cluster, cluster_file = merged.clusters[picked.cluster]
    user, user_file = merged.users.get(picked.user, (_User(), cluster_file))
    where = f"{cluster_file}, cluster {picked.cluster!r}"
    server = _server(cluster.server, where)
    return Chosen(
        context=name,
        server=server,
        namespace=picked.namespace or "default",
        tls=_tls(cluster, cluster_file, user, user_file),
        credentials=_credentials(user, f"{user_file}, user {picked.user!r}", user_file, cluster, environ),
        proxy=proxies.checked(cluster.proxy_url, f"{where}: proxy-url") if cluster.proxy_url else "",
        headers=_impersonation(user),
    )


def _server(server: str, where: str) -> str:
    try:
        parts = urlsplit(server if "://" in server else f"https://{server}")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        usable = False
    if not server or not usable:
        raise UserError(f"{where}: server {server!r} is not an http or https URL")
    return parts.geturl().rstrip("/")


def _tls(cluster: _Cluster, cluster_file: Path, user: _User, user_file: Path) -> TlsSettings:
    if (user.client_certificate or user.client_certificate_data) and not (
        user.client_key or user.client_key_data
    ):
        raise UserError(f"{user_file}: a client certificate without its key")
    ca_pem = _decoded(cluster.certificate_authority_data, f"{cluster_file}: certificate-authority-data")
    certificate_path = key_path = pem = None
    if user.client_certificate_data or user.client_key_data:
        certificate = _decoded(user.client_certificate_data, f"{user_file}: client-certificate-data") or (
            _read_bytes(_beside(user_file, user.client_certificate))
        )
        key = _decoded(user.client_key_data, f"{user_file}: client-key-data") or (
            _read_bytes(_beside(user_file, user.client_key))
        )
        pem = Pem(certificate, key)
    elif user.client_certificate:
        certificate_path = _beside(user_file, user.client_certificate)
        key_path = _beside(user_file, user.client_key)
    return TlsSettings(
        ca_path=_beside(cluster_file, cluster.certificate_authority)
        if cluster.certificate_authority and not ca_pem
        else None,
        ca_pem=ca_pem,
        insecure=cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        certificate_path=certificate_path,
        key_path=key_path,
        certificate=pem,
    )


def _decoded(data: str, where: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError(f"{where} is not base64: {error}") from error


def _beside(file: Path, path: str) -> Path:
    return file.parent / path


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error


def _credentials(
    user: _User, where: str, file: Path, cluster: _Cluster, environ: Mapping[str, str]
) -> Credentials:
    if user.token_file:
        return TokenFile(_beside(file, user.token_file))
    if user.token:
        return Fixed.token(user.token)
    if user.auth_provider is not None:
        raise UserError(
            f"{where}: auth-provider {user.auth_provider.get('name', '')!r} was removed from Kubernetes 1.26",
            hint="use the provider's exec plugin, a token, or a client certificate",
        )
    if user.exec is not None:
        return execplugin.ExecCredentials(_command(user.exec, where, file, cluster), environ=environ)
    if user.username:
        return Fixed.basic(user.username, user.password)
    return Fixed()


def _command(plugin: _Exec, where: str, file: Path, cluster: _Cluster) -> execplugin.ExecCommand:
    if plugin.api_version not in execplugin.VERSIONS:
        raise UserError(
            f"{where}: exec plugin of {plugin.api_version or 'no apiVersion'}",
            hint=f"only {' and '.join(execplugin.VERSIONS)} are supported; update the plugin",
        )
    if plugin.interactive_mode == "Always":
        raise UserError(
            f"{where}: the exec plugin {plugin.command!r} wants a terminal (interactiveMode Always)"
        )
    in_folder = "/" in plugin.command
    return execplugin.ExecCommand(
        command=str(_beside(file, plugin.command)) if in_folder else plugin.command,
        args=tuple(plugin.args or ()),
        env={variable.name: variable.value for variable in plugin.env or ()},
        api_version=plugin.api_version,
        install_hint=plugin.install_hint,
        cluster=_cluster_info(cluster, file) if plugin.provide_cluster_info else {},
    )


def _cluster_info(cluster: _Cluster, file: Path) -> Raw:
    data = cluster.certificate_authority_data
    if not data and cluster.certificate_authority:
        data = base64.b64encode(_read_bytes(_beside(file, cluster.certificate_authority))).decode()
    raw_info: Raw = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": data,
        "proxy-url": cluster.proxy_url,
    }
    for extension in cluster.extensions or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            raw_info["config"] = extension.get("extension")
    return {name: value for name, value in raw_info.items() if value}


def _impersonation(user: _User) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    if user.impersonate_user:
        headers.append(("Impersonate-User", user.impersonate_user))
        headers += [("Impersonate-Group", group) for group in user.impersonate_groups or ()]
        if user.impersonate_uid:
            headers.append(("Impersonate-Uid", user.impersonate_uid))
    return tuple(headers)
