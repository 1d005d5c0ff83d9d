"""Which cluster, and as whom: a ClusterConfig from a kubeconfig or from the pod that this process runs in.

The command line calls `load` once at the start and hands the result to client.Client. Own code rather than
the official library's, which costs 20 MB of resident memory to import (docs/decisions). Order: an explicit
path; the pod's service account; $KUBECONFIG, a list of files that are merged; ~/.kube/config. Whatever is
wrong is a UserError that names the file and the entry. Reads files, opens no connection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from isthmus.errors import UserError
from isthmus.kube import kubeconfig, proxies
from isthmus.kube.credentials import Credentials, Fixed, TokenFile
from isthmus.kube.tls import TlsSettings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach one API server.

    `server` is a URL without a trailing slash; `namespace` the one to act in where none is given; `proxy` a
    URL, None for a direct connection; `headers` are sent with each request (impersonation); `source` says
    for people where this came from.
    """

    server: str
    namespace: str = "default"
    tls: TlsSettings = TlsSettings()
    credentials: Credentials = msgspec.field(default_factory=Fixed)
    proxy: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    source: str = ""


def load(
    path: str | Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterConfig:
    """The cluster to talk to, in the order that the module says. `context` picks one of a kubeconfig's, and
    passes the service account by. `environ` stands for os.environ.

    Raises UserError where there is nothing to load or where it is wrong.
    """
    env = os.environ if environ is None else environ
    if path:
        return _from_kubeconfig([Path(path)], context, env, must_exist=True)
    host = env.get("KUBERNETES_SERVICE_HOST", "")
    if host and context is None and (service_account / "token").exists():
        return _in_cluster(host, env, service_account)
    listed = [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return _from_kubeconfig(listed, context, env, must_exist=False)
    home = Path(env.get("HOME") or Path.home()) / ".kube" / "config"
    if home.exists():
        return _from_kubeconfig([home], context, env, must_exist=True)
    raise UserError(
        f"no cluster to talk to: not in a pod, $KUBECONFIG is not set, and {home} does not exist",
        hint="give --kubeconfig FILE or set KUBECONFIG",
    )


def _in_cluster(host: str, environ: Mapping[str, str], folder: Path) -> ClusterConfig:
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    ca = folder / "ca.crt"
    if not ca.exists():
        raise UserError(f"in a pod, but {ca} is missing", hint="mount the service account with its root CA")
    namespace = folder / "namespace"
    return ClusterConfig(
        server=server,
        namespace=(namespace.read_text().strip() if namespace.exists() else "") or "default",
        tls=TlsSettings(ca_path=ca),
        credentials=TokenFile(folder / "token"),
        proxy=proxies.proxy_for(server, environ),
        source=f"the service account in {folder}",
    )


def _from_kubeconfig(
    paths: list[Path], context: str | None, environ: Mapping[str, str], *, must_exist: bool
) -> ClusterConfig:
    chosen = kubeconfig.choose(kubeconfig.read(paths, must_exist=must_exist), context, environ)
    proxy = chosen.proxy or proxies.proxy_for(chosen.server, environ)
    return ClusterConfig(
        server=chosen.server,
        namespace=chosen.namespace,
        tls=chosen.tls,
        credentials=chosen.credentials,
        proxy=proxy,
        headers=chosen.headers,
        source=f"context {chosen.context!r} of {', '.join(map(str, paths))}",
    )
