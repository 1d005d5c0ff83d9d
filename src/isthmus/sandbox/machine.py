"""The machine on which one cluster's real pods run: a pod in, its running process out.

The simulated node (node.py) asks `wants` of each pod, `start` for one that runs, and `forget` when it is
gone. What a kubelet prepares is prepared here: the pod's whole manifest, the values of Secrets and
ConfigMaps, a token of its ServiceAccount that is bound to the pod, ports, a folder of its own. Production
code is given nothing but what it reads anywhere: KUBECONFIG, HTTP_PROXY and what the manifest says.
`power_off` takes all processes away at once, as when a cluster is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from isthmus.api.meta import Object
from isthmus.clock import Clock
from isthmus.kube import errors
from isthmus.kube.client import Client
from isthmus.sandbox import cluster, entrypoint, wire
from isthmus.sandbox.manifest import Manifest, compose, is_real, wanted_values
from isthmus.sandbox.network import Network
from isthmus.sandbox.resources import Pod
from isthmus.sandbox.services import Services
from isthmus.sandbox.settings import NODE, Folder
from isthmus.sandbox.workload import Command, Workload

SYNC_S: Final = 5.0
TOKEN_S: Final = 30 * 24 * 3600
"""Life of a pod's token. It ends with the pod, so nobody has to renew it."""

Raw = dict[str, Any]


class _Values(Object, frozen=True, kw_only=True):
    data: dict[str, str] = {}


_manifest: Final = msgspec.json.Decoder(Manifest)
_values: Final = msgspec.json.Decoder(_Values)


class Machine:
    """See the module. `index` is the cluster's, `proxy` the URL of its proxy."""

    def __init__(
        self, client: Client, *, index: int, network: Network, folder: Folder, proxy: str, clock: Clock
    ) -> None:
        self._client = client
        self._index = index
        self._network = network
        self._folder = folder
        self._proxy = proxy
        self._clock = clock
        self._power = asyncio.Event()
        self._power.set()
        self._workloads: dict[str, tuple[str, Workload]] = {}
        self._services = Services(client, clock)
        self._needed = asyncio.Event()

    async def run(self) -> None:
        """Know the cluster's Services from when they are first needed, until cancelled."""
        await self._needed.wait()
        await self._services.run()

    async def know_services(self) -> None:
        """Return once the cluster's Services are known, or after `SYNC_S` if it does not answer."""
        if not self._needed.is_set():
            self._network.services[self._index] = self._services
            self._needed.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SYNC_S):
                await self._services.wait_synced()

    def wants(self, pod: Pod) -> bool:
        """Whether the pod is of our image, so that its first container is a process."""
        return bool(pod.spec.containers) and is_real(pod.spec.containers[0].image)

    async def start(self, pod: Pod, address: str) -> Workload:
        """Prepare the pod's process; the caller runs it. Raises CannotStart, and ApiError where the API
        server does not have what is needed."""
        namespace, name = pod.key
        manifest = _manifest.decode(await self._client.get_raw(f"/api/v1/namespaces/{namespace}/pods/{name}"))
        values = {each: await self._read(namespace, *each) for each in wanted_values(manifest)}
        start = compose(manifest, address=address, values=values)
        ports = self._network.open(address, start.ports)
        home = self._home(pod.metadata.uid)
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        kubeconfig = home / "kubeconfig"
        self._folder.write_private(kubeconfig, await self._credentials(manifest))
        label = f"{self._index}.{namespace}.{name}"
        argv = (sys.executable, "-P", "-m", entrypoint.__name__, label, start.module, *start.argv)
        env = self._environment(home, kubeconfig, manifest, ports) | start.env
        command = Command(argv=argv, env=env, cwd=home, log=self._folder.log(f"pod-{label}"))
        workload = Workload(start, command, ports, power=self._power, clock=self._clock)
        self._workloads[pod.metadata.uid] = (address, workload)
        return workload

    def forget(self, uid: str) -> None:
        """The pod is gone: kill what is left of it and take its ports back."""
        address, workload = self._workloads.pop(uid, ("", None))
        if workload is not None:
            workload.give_up()
            self._network.close(address)
            shutil.rmtree(self._home(uid), ignore_errors=True)

    def power_off(self) -> None:
        """Kill every process, and start none until `power_on`."""
        self._power.clear()
        for _, workload in self._workloads.values():
            workload.kill()

    def power_on(self) -> None:
        """Start them again."""
        self._power.set()

    def _home(self, uid: str) -> Path:
        return self._folder.path / f"cluster-{self._index}" / "pods" / uid

    def _environment(
        self, home: Path, kubeconfig: Path, pod: Manifest, ports: Mapping[int, int]
    ) -> dict[str, str]:
        return cluster.environment(os.environ) | {
            "HOME": str(home),
            "HOSTNAME": pod.metadata.name,
            "KUBECONFIG": str(kubeconfig),
            "HTTP_PROXY": self._proxy,
            "HTTPS_PROXY": self._proxy,
            "PYTHONUNBUFFERED": "1",
            entrypoint.PORTS: entrypoint.format_ports(ports),
        }

    async def _read(self, namespace: str, plural: str, name: str) -> dict[str, str]:
        try:
            found = _values.decode(
                await self._client.get_raw(f"/api/v1/namespaces/{namespace}/{plural}/{name}")
            )
        except errors.NotFound:
            return {}
        if plural == "configmaps":
            return found.data
        import base64

        return {key: base64.b64decode(value).decode(errors="replace") for key, value in found.data.items()}

    async def _credentials(self, pod: Manifest) -> bytes:
        """A kubeconfig of the pod's ServiceAccount, in the pod's namespace."""
        meta, account = pod.metadata, pod.spec.service_account_name
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta.name, "uid": meta.uid}
        server = self._client.config.server
        answer = await asyncio.to_thread(
            wire.request,
            server,
            f"/api/v1/namespaces/{meta.namespace}/serviceaccounts/{account}/token",
            method="POST",
            ca_pem=(self._folder.pki / "ca.crt").read_text(),
            headers={
                "Authorization": f"Bearer {self._folder.read_tokens()[NODE]}",
                "Content-Type": "application/json",
            },
            body=msgspec.json.encode(
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenRequest",
                    "spec": {"expirationSeconds": TOKEN_S, "boundObjectRef": bound},
                }
            ),
        )
        return cluster.kubeconfig(
            server=server,
            ca_pem=(self._folder.pki / "ca.crt").read_text(),
            user=f"system:serviceaccount:{meta.namespace}:{account}",
            credentials={"token": answer["status"]["token"]},
            namespace=meta.namespace,
        )
