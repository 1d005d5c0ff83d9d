"""Karmada in the clusters of a sandbox: the first is its control plane, the others are members.

`start` brings up what a control plane of Karmada consists of besides an API server: the aggregated API
server, admission, controllers and scheduler (controlplane/karmada), and joins the members in push mode. The
order matters: an object that is made before admission answers lacks the labels that controllers go by.
Tests and `isthmus sandbox up --mcs karmada` call it, with the first cluster `inert`; the binary has to be
built (programs.KARMADA). Policies are the user's: examples/multicluster/karmada.yaml. Everything blocks.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from isthmus.clock import SystemClock
from isthmus.errors import IsthmusError, UserError
from isthmus.kube.errors import AlreadyExists, NotFound
from isthmus.sandbox import pki
from isthmus.sandbox.programs import KARMADA
from isthmus.sandbox.sandbox import Cluster, Sandbox, SandboxFailed
from isthmus.sandbox.settings import ADMIN

Raw = dict[str, Any]

SYSTEM: Final = "karmada-system"
MEMBERS: Final = "karmada-cluster"
AGGREGATED: Final = "karmada-aggregated-apiserver"
WEBHOOK: Final = "karmada-webhook"
WEBHOOK_PORT: Final = 9443
PERMANENT_ID: Final = "propagationpolicy.karmada.io/permanent-id"
CLUSTERS: Final = "/apis/cluster.karmada.io/v1alpha1/clusters"
POLICIES: Final = "/apis/policy.karmada.io/v1alpha1/namespaces/default/propagationpolicies"
HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
BASES: Final = "charts/karmada/_crds/bases"
HOOK_FILE: Final = "artifacts/deploy/webhook-configuration.yaml"
START_TIMEOUT_S: Final = 90.0
POLL_S: Final = 0.1


def start(sandbox: Sandbox, members: Sequence[str]) -> None:
    """Start it in a running sandbox, and return once all members are ready.

    `members`: the names of all clusters but the first, in their order. Raises UserError where their count is
    wrong and where Karmada is not built, SandboxFailed where it does not come up.
    """
    if len(members) != len(sandbox.clusters) - 1 or len(set(members)) != len(members):
        raise UserError(f"{len(sandbox.clusters)} clusters are a control plane and as many members less one")
    if 0 not in sandbox.folder.read_spec().inert:
        raise UserError(
            "the first cluster is to be Karmada's control plane: start the sandbox with inert=(0,)"
        )
    _Karmada(sandbox).start(members)


def definitions(folder: Path) -> list[Raw]:
    """The CRDs of a folder of Karmada's."""
    import yaml

    return [yaml.safe_load(path.read_text("utf-8")) for path in sorted(folder.rglob("*.yaml"))]


def hooks(text: str, *, address: str, ca: str) -> list[Raw]:
    """Karmada's webhook configurations, with the place where its webhook listens. `ca`: base64 of PEM."""
    import yaml

    there = text.replace("{{caBundle}}", ca).replace(f"{WEBHOOK}.{SYSTEM}.svc:443", address)
    return [each for each in yaml.safe_load_all(there) if each]


def loopback() -> str:
    """An address of 127.0.0.0/8 of which hardly anybody else has a port: the webhook shares none."""
    return ".".join(("127", *(str(secrets.randbelow(254) + 1) for _ in range(3))))


def is_ready(cluster: Raw) -> bool:
    """Whether Karmada says that a member is."""
    conditions = cluster.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class _Karmada:
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._binary = KARMADA.find()
        self._plane = sandbox.cluster(0)
        self._ca = base64.b64encode(self._plane.ca.encode()).decode()
        self._folder = sandbox.folder.path / "karmada"
        self._address = loopback()
        self._deadline = time.monotonic() + START_TIMEOUT_S

    def start(self, members: Sequence[str]) -> None:
        self._issue_certificates()
        bases = KARMADA.extract(BASES)
        self._plane.install_crds(definitions(bases))
        for cluster in self._sandbox.clusters[1:]:
            if not has_exports(cluster):
                cluster.install_crds(definitions(bases / "multicluster"))
        for name in (SYSTEM, MEMBERS):
            _ensure(self._plane, "/api/v1/namespaces", _object("v1", "Namespace", name))
        self._start_aggregated()
        self._start_webhook()
        self._run(
            "controller-manager",
            "--leader-elect=false",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--cluster-success-threshold=1s",
            "--cluster-failure-threshold=5s",
            "--cluster-status-update-frequency=3s",
        )
        self._run(
            "scheduler",
            "--leader-elect=false",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        )
        for index, name in enumerate(members, start=1):
            self._join(self._sandbox.cluster(index), name)
        self._wait("all members are ready", lambda: self._joined(members))

    def _issue_certificates(self) -> None:
        names = [f"{name}.{SYSTEM}.svc" for name in (AGGREGATED, WEBHOOK)]
        folder = self._sandbox.folder
        authority = pki.Authority(folder.pki, now=SystemClock().now())
        authority.issue_server("karmada", "karmada", names=names, addresses=[self._address])
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for ending in ("crt", "key"):
            shutil.copy(folder.pki / f"karmada.{ending}", self._folder / f"tls.{ending}")

    def _start_aggregated(self) -> None:
        """The API server of the kind Cluster, which is none of the CRDs."""
        port = self._sandbox.reserve_port()
        kubeconfig = self._plane.kubeconfig()
        self._run(
            "aggregated-apiserver",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--etcd-servers={self._sandbox.record.etcd}",
            "--etcd-prefix=/karmada",
            f"--tls-cert-file={self._folder / 'tls.crt'}",
            f"--tls-private-key-file={self._folder / 'tls.key'}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--permit-port-sharing",
        )
        outside = {"type": "ExternalName", "externalName": "localhost"}
        service = _object("v1", "Service", AGGREGATED, SYSTEM) | {"spec": outside}
        _ensure(self._plane, f"/api/v1/namespaces/{SYSTEM}/services", service)
        spec = {
            "group": "cluster.karmada.io",
            "version": "v1alpha1",
            "groupPriorityMinimum": 2000,
            "versionPriority": 10,
            "caBundle": self._ca,
            "service": {"name": AGGREGATED, "namespace": SYSTEM, "port": port},
        }
        group = "apiregistration.k8s.io/v1"
        registration = _object(group, "APIService", "v1alpha1.cluster.karmada.io") | {"spec": spec}
        _ensure(self._plane, f"/apis/{group}/apiservices", registration)
        self._wait("the API of clusters is served", lambda: self._plane.request(CLUSTERS) is not None)

    def _start_webhook(self) -> None:
        self._run(
            "webhook",
            f"--bind-address={self._address}",
            f"--secure-port={WEBHOOK_PORT}",
            f"--cert-dir={self._folder}",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        )
        text = KARMADA.extract(HOOK_FILE).read_text("utf-8")
        for each in hooks(text, address=f"{self._address}:{WEBHOOK_PORT}", ca=self._ca):
            _ensure(self._plane, f"{HOOKS}/{each['kind'].lower()}s", each)
        self._wait("admission answers", self._admits)

    def _admits(self) -> bool:
        """Whether an object would get its labels now; nothing is made."""
        spec = {"resourceSelectors": [{"apiVersion": "v1", "kind": "Service"}], "placement": {}}
        probe = _object("policy.karmada.io/v1alpha1", "PropagationPolicy", "probe") | {"spec": spec}
        made = self._plane.request(f"{POLICIES}?dryRun=All", method="POST", body=probe)
        return PERMANENT_ID in made["metadata"].get("labels", {})

    def _join(self, cluster: Cluster, name: str) -> None:
        token = {"token": cluster.token(ADMIN)}
        path = f"/api/v1/namespaces/{MEMBERS}/secrets"
        secret = _object("v1", "Secret", name, MEMBERS) | {
            "data": {"caBundle": self._ca},
            "stringData": token,
        }
        impersonator = _object("v1", "Secret", f"{name}-impersonator", MEMBERS) | {"stringData": token}
        for each in (secret, impersonator):
            _ensure(self._plane, path, each)
        system = cluster.request("/api/v1/namespaces/kube-system")
        spec = {
            "apiEndpoint": cluster.server,
            "id": system["metadata"]["uid"],
            "syncMode": "Push",
            "secretRef": {"namespace": MEMBERS, "name": name},
            "impersonatorSecretRef": {"namespace": MEMBERS, "name": f"{name}-impersonator"},
        }
        _ensure(
            self._plane, CLUSTERS, _object("cluster.karmada.io/v1alpha1", "Cluster", name) | {"spec": spec}
        )

    def _joined(self, members: Sequence[str]) -> bool:
        found = self._plane.request(CLUSTERS)["items"]
        return {each["metadata"]["name"] for each in found if is_ready(each)} == set(members)

    def _run(self, role: str, *flags: str) -> None:
        argv = [str(self._binary), role, f"--kubeconfig={self._plane.kubeconfig()}", *flags]
        self._sandbox.run(f"karmada-{role}", argv, cluster=0)

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        said = ""
        while True:
            try:
                if holds():
                    return
            except IsthmusError as error:
                said = f": {error}"
            failed = [
                name
                for name, each in self._sandbox.record.components.items()
                if name.startswith("karmada-") and each.state == "failed"
            ]
            if failed or time.monotonic() > self._deadline:
                tails = (
                    self._sandbox.folder.log(name).read_text(errors="replace")[-2000:] for name in failed
                )
                raise SandboxFailed("\n".join((f"Karmada did not come up: {what}: not so{said}", *tails)))
            time.sleep(POLL_S)


def has_exports(cluster: Cluster) -> bool:
    """Whether a cluster serves exports in any version."""
    try:
        cluster.request("/apis/multicluster.x-k8s.io")
    except NotFound:
        return False
    return True


def _object(version: str, kind: str, name: str, namespace: str = "") -> Raw:
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **where}}


def _ensure(cluster: Cluster, path: str, body: Raw) -> None:
    try:
        cluster.request(path, method="POST", body=body)
    except AlreadyExists:
        return
