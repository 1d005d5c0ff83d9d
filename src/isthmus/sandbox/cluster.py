"""The command lines and files of a sandbox's servers: one etcd, and two servers per cluster. Pure: ports,
paths and tokens in, words and text out; supervisor.py runs them.

The servers are as a real cluster's: TLS, RBAC, tokens and client certificates, service account admission, the
API's own fairness rules. What differs is for speed and for a machine that is shared: no fsync, everything on
127.0.0.1 with shared ports (ports.py), no leader election, and a controller manager without a client-side
rate limit, which would otherwise hide what an operator can do.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from isthmus.sandbox.pki import FRONT_PROXY
from isthmus.sandbox.ports import LOOPBACK
from isthmus.sandbox.settings import CONTROLLER_MANAGER, NODE, Folder, Programs

CONTROLLERS: Final = (
    "garbage-collector-controller",
    "namespace-controller",
    "endpointslice-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
)
"""What runs in the controller manager. No node lifecycle controller: the simulated node says itself how it
is, and sends no heartbeats."""
WORKLOADS: Final = (
    "endpointslice-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
)
"""Those that a cluster lacks whose objects are only templates for others (`inert`)."""

UNAUDITED: Final = (CONTROLLER_MANAGER, NODE, "system:apiserver")


def server_url(port: int) -> str:
    """The API server's address."""
    return f"https://{LOOPBACK}:{port}"


def etcd_argv(programs: Programs, folder: Folder, *, port: int, peer_port: int) -> list[str]:
    """One etcd for all clusters of the sandbox."""
    client, peer = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    return [
        *programs.etcd,
        "--name=sandbox",
        f"--data-dir={folder.etcd}",
        "--unsafe-no-fsync",
        "--socket-reuse-port",
        "--log-level=warn",
        "--quota-backend-bytes=8589934592",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=sandbox={peer}",
    ]


def apiserver_argv(
    programs: Programs, folder: Folder, *, cluster: int, port: int, etcd_port: int, audit: bool
) -> list[str]:
    """The API server of one cluster; clusters share etcd, each below its own prefix."""
    pki = folder.pki
    argv = [
        *programs.apiserver,
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--etcd-prefix=/cluster-{cluster}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={port}",
        "--permit-port-sharing",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={folder.tokens}",
        "--authorization-mode=RBAC",
        "--allow-privileged",
        f"--service-cluster-ip-range={service_range(cluster)}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        # How requests are carried on to an aggregated API server (APIService), as kubeadm has it.
        f"--requestheader-client-ca-file={pki / 'ca.crt'}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / 'front-proxy.crt'}",
        f"--proxy-client-key-file={pki / 'front-proxy.key'}",
    ]
    if audit:
        argv += [
            f"--audit-policy-file={folder.audit_policy}",
            f"--audit-log-path={folder.audit_log(cluster)}",
            "--audit-log-maxsize=4000",
            # Each request is in the file before its answer leaves, so that counts are exact.
            "--audit-log-mode=blocking",
        ]
    return argv


def controller_manager_argv(
    programs: Programs, folder: Folder, *, cluster: int, inert: bool = False
) -> list[str]:
    """The controller manager of one cluster. It serves nothing, so it needs no port."""
    controllers = [each for each in CONTROLLERS if not (inert and each in WORKLOADS)]
    return [
        *programs.controller_manager,
        f"--kubeconfig={folder.kubeconfig(cluster, CONTROLLER_MANAGER)}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={folder.pki / 'sa.key'}",
        f"--root-ca-file={folder.pki / 'ca.crt'}",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        "--concurrent-gc-syncs=20",
    ]


def service_range(cluster: int) -> str:
    """The addresses of one cluster's Services."""
    return f"10.{100 + cluster}.0.0/16"


def service_address(cluster: int) -> str:
    """The address of `kubernetes.default` in one cluster: the first of its range."""
    return f"10.{100 + cluster}.0.1"


def audit_policy() -> bytes:
    """Who, what and how it ended, of every request but those of the sandbox's own parts."""
    return msgspec.json.encode(
        {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "None", "users": list(UNAUDITED)}, {"level": "Metadata"}],
        }
    )


def tokens_csv(users: Mapping[str, Sequence[str]], tokens: Mapping[str, str]) -> bytes:
    """The API server's token file: token, user, uid, "groups"."""
    lines = (f'{tokens[user]},{user},{user},"{",".join(groups)}"\n' for user, groups in users.items())
    return "".join(lines).encode()


def kubeconfig(
    *, server: str, ca_pem: str, user: str, credentials: Mapping[str, str], namespace: str = "default"
) -> bytes:
    """A kubeconfig that needs no other file. `credentials`: a token, or client certificate data."""
    raw_config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [
            {
                "name": "sandbox",
                "cluster": {"server": server, "certificate-authority-data": encode(ca_pem)},
            }
        ],
        "users": [{"name": user, "user": dict(credentials)}],
        "contexts": [
            {"name": "sandbox", "context": {"cluster": "sandbox", "user": user, "namespace": namespace}}
        ],
    }
    return msgspec.json.format(msgspec.json.encode(raw_config), indent=2) + b"\n"


def encode(pem: str) -> str:
    """PEM as kubeconfig's *-data fields want it."""
    return base64.b64encode(pem.encode()).decode()


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What the servers see of the environment: nothing that would change how they behave. No proxy, no
    KUBECONFIG, no ETCD_ variable; the path and the home folder, since programs expect them."""
    kept = ("PATH", "HOME", "TMPDIR", "TZ", "LANG", "GOMAXPROCS", "GOMEMLIMIT", "GOGC")
    return {key: inherited[key] for key in kept if key in inherited}
