"""Cilium's implementation of the Multi-Cluster Services API in the clusters of a sandbox.

`start` lets one process of Cilium's per cluster tell the others of exports and make imports of theirs
(controlplane/cilium says which parts of Cilium these are). The sandbox's etcd is the store of all of them,
below keys of Cilium's own. Tests, the global demo and `isthmus sandbox up --mcs cilium` call it; the binary
has to be built (programs.CILIUM). Everything here blocks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from isthmus.errors import UserError
from isthmus.kube.errors import NotFound
from isthmus.sandbox import multicluster
from isthmus.sandbox.programs import CILIUM
from isthmus.sandbox.sandbox import Cluster, Sandbox, SandboxFailed

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
SYNC_SLICES: Final = {"service.cilium.io/global-sync-endpoint-slices": "true"}
"""What an export's `exportedAnnotations` must have for its endpoints to reach other clusters; those of
headless Services do anyway."""
START_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05


def start(sandbox: Sandbox, names: Sequence[str]) -> None:
    """Start it in every cluster of a running sandbox, and return once each has been told of the others.

    `names`: the clusters' names in the mesh, in their order; they are the source clusters of imports. CRDs of
    exports and imports are installed in clusters that have none. Raises UserError for names that Cilium does
    not take and where it is not built, SandboxFailed where it does not come up.
    """
    check_names(names, len(sandbox.clusters))
    binary = CILIUM.find()
    for cluster in sandbox.clusters:
        install_crds(cluster)
    folder = sandbox.folder.path / "cilium"
    store = folder / "etcd.yaml"
    sandbox.folder.write_private(store, store_file(sandbox.record.etcd))
    for index, name in enumerate(names):
        for other in names:
            if other != name:
                sandbox.folder.write_private(_told(folder, index) / other, store_file(sandbox.record.etcd))
        kubeconfig = sandbox.cluster(index).kubeconfig()
        argv = command(binary, kubeconfig, folder, index=index, name=name)
        sandbox.run(f"cilium-{index}", argv, cluster=index)
    for index in range(len(names)):
        _wait_meshed(sandbox, folder, index, len(names) - 1)


def check_names(names: Sequence[str], clusters: int) -> None:
    """Raise UserError unless there is one name per cluster that Cilium takes, and no name twice."""
    for name in names:
        if not NAME.fullmatch(name):
            raise UserError(f"{name!r}: Cilium names clusters with at most 32 of a-z, 0-9 and inner hyphens")
    if len(set(names)) != len(names) or len(names) != clusters:
        raise UserError(f"{clusters} clusters need as many names, all different: {', '.join(names)}")


def command(binary: Path, kubeconfig: Path, folder: Path, *, index: int, name: str) -> list[str]:
    """The command line of one cluster's process."""
    return [
        str(binary),
        f"--k8s-kubeconfig-path={kubeconfig}",
        # Cilium's own bounds would hide how soon an import follows.
        "--k8s-client-qps=200",
        "--k8s-client-burst=400",
        f"--cluster-name={name}",
        f"--cluster-id={index + 1}",
        "--kvstore=etcd",
        f"--kvstore-opt=etcd.config={folder / 'etcd.yaml'}",
        f"--remote-clusters={_told(folder, index)}",
        f"--clustermesh-config={_taken(folder, index)}",
        "--clustermesh-enable-mcs-api=true",
        "--clustermesh-enable-endpoint-sync=true",
    ]


def store_file(url: str) -> bytes:
    """How Cilium is told where an etcd is."""
    return f"endpoints:\n- {url}\n".encode()


def install_crds(cluster: Cluster) -> None:
    """The CRDs of exports and imports, unless some version of them is there."""
    for definition in (multicluster.service_exports(), multicluster.service_imports()):
        name = definition["metadata"]["name"]
        try:
            cluster.request(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        except NotFound:
            cluster.install_crds([definition])


def _told(folder: Path, index: int) -> Path:
    """What one cluster's process is told of the others."""
    return folder / f"remotes-{index}"


def _taken(folder: Path, index: int) -> Path:
    """What it has taken of that; it puts files there once it can."""
    return folder / f"mesh-{index}"


def _wait_meshed(sandbox: Sandbox, folder: Path, index: int, remotes: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(list(_taken(folder, index).glob("*"))) < remotes:
        state = sandbox.record.components[f"cilium-{index}"].state
        if state == "failed" or time.monotonic() > deadline:
            tail = sandbox.folder.log(f"cilium-{index}").read_text(errors="replace")[-2000:]
            raise SandboxFailed(f"Cilium did not come up in cluster {index}; its log ends:\n{tail}")
        time.sleep(POLL_S)
