"""Where the demo plays: a cluster with our CRDs, an operator at work in it, and a ModelServing.

cli/demo.py tells the story; a Scene does what happens in it and takes all of it back. `SandboxScene` plays in
a sandbox of its own, `ClusterScene` on a cluster that the person has: there it works in a namespace of its
own, restricts the operator to that, and installs CRDs only where they are absent. `clean` may be called at
any time and after any failure; it goes on where one step fails and says what is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, Protocol

from isthmus.api import crd, labels
from isthmus.api.meta import Resource
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS
from isthmus.clock import SystemClock
from isthmus.errors import IsthmusError, UserError
from isthmus.kube import config, errors
from isthmus.kube.client import Client
from isthmus.sandbox import bootstrap, places, processes
from isthmus.sandbox.resources import CRDS, NAMESPACES
from isthmus.sandbox.sandbox import Sandbox
from isthmus.sandbox.settings import OPERATOR

FIELD_MANAGER: Final = "isthmus-demo"
MANIFEST: Final = "examples/modelserving/prefill-decode.yaml"
GONE_TIMEOUT_S: Final = 90.0
CALL_TIMEOUT_S: Final = 10.0

Raw = dict[str, Any]
Say = Callable[[str], None]


class Scene(Protocol):
    """What the demo needs of the place where it plays."""

    namespace: str
    kubeconfig: Path
    operator_log: Path

    async def prepare(self, say: Say) -> None:
        """Bring the CRDs and the namespace. Raises UserError for a cluster that cannot be used."""

    def start_operator(self, flags: list[str]) -> None:
        """Run `isthmus operator` there with these flags beside those of the place."""

    def operator_failed(self) -> bool:
        """Whether the operator has ended and will not be started again."""

    async def clean(self, say: Say) -> None:
        """Take back everything."""


class SandboxScene:
    """A sandbox of the demo's own."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.namespace = "default"
        self.kubeconfig = sandbox.cluster().kubeconfig()
        self.operator_log = sandbox.folder.log(OPERATOR)
        self._attempts = 0

    async def prepare(self, say: Say) -> None:
        """See Scene. The sandbox was started with the CRDs."""

    def start_operator(self, flags: list[str]) -> None:
        """See Scene. The sandbox keeps it, so that it outlives the demo with --keep."""
        kubeconfig = self.sandbox.cluster().kubeconfig(OPERATOR)
        if self._attempts:
            self.sandbox.steer(self.operator_log.stem, "stop")
        self._attempts += 1
        name = OPERATOR if self._attempts == 1 else f"{OPERATOR}-{self._attempts}"
        self.operator_log = self.sandbox.folder.log(name)
        self.sandbox.run(name, [*operator_command(), f"--kubeconfig={kubeconfig}", *flags])

    def operator_failed(self) -> bool:
        """See Scene. Ports may have been taken by others meanwhile, so one end is enough."""
        component = self.sandbox.record.components[self.operator_log.stem]
        return component.restarts > 0 or component.state == "failed"

    async def clean(self, say: Say) -> None:
        """See Scene."""
        await asyncio.to_thread(self.sandbox.stop)


class ClusterScene:
    """A cluster that exists."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.namespace = f"isthmus-demo-{secrets.token_hex(3)}"
        self._settings = config.load(kubeconfig)
        self._folder = tempfile.TemporaryDirectory(prefix="isthmus-demo-")
        self.operator_log = Path(self._folder.name) / "operator.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._has_namespace = False
        self._installed: list[str] = []

    async def prepare(self, say: Say) -> None:
        """See Scene."""
        async with self._client() as client:
            say(f"using the cluster at {self._settings.server}")
            for definition in crd.definitions(MODEL_SERVINGS.group):
                name: str = definition["metadata"]["name"]
                if await self._has_crd(client, name):
                    say(f"the CRD {name} is there already and stays as it is")
                    continue
                say(f"installing the CRD {name}")
                self._installed.append(name)
                await bootstrap.install_crds(client, SystemClock(), [definition])
            say(f"making the namespace {self.namespace}")
            self._has_namespace = True
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
            await client.create(NAMESPACES, "", body)

    def start_operator(self, flags: list[str]) -> None:
        """See Scene. It works in the demo's namespace only, and dies with this process."""
        own = [f"--kubeconfig={self.kubeconfig.absolute()}", f"--namespace={self.namespace}"]
        command = [*operator_command(), *own, *flags]
        folder = Path(self._folder.name)
        self._process = processes.spawn(command, log=self.operator_log, cwd=folder, env=os.environ)

    def operator_failed(self) -> bool:
        """See Scene."""
        return self._process is not None and self._process.poll() is not None

    async def clean(self, say: Say) -> None:
        """See Scene. Goes on where something fails, and raises the first failure at the end."""
        failures: list[IsthmusError | TimeoutError] = []
        for step in (self._delete_objects, self._delete_crds):
            try:
                await step(say)
            except (IsthmusError, TimeoutError) as error:
                failures.append(error)
        if self._process is not None:
            self._process.terminate()
            await asyncio.to_thread(self._process.wait)
        self._folder.cleanup()
        if failures:
            raise UserError(
                f"not everything could be taken back: {str(failures[0]) or 'it took too long'}",
                hint=f"delete namespace {self.namespace}, and CRDs {', '.join(self._installed) or '(none)'}",
            )

    async def _has_crd(self, client: Client, name: str) -> bool:
        try:
            definition = await client.get(CRDS, "", name)
        except errors.NotFound:
            return False
        if definition.metadata.terminating:
            await _wait_gone(client, CRDS, name)
            return False
        return True

    async def _delete_objects(self, say: Say) -> None:
        if not self._has_namespace:
            return
        say(f"deleting the namespace {self.namespace} and all in it")
        async with self._client() as client:
            with contextlib.suppress(TimeoutError, IsthmusError):
                await self._delete_pods(client)
            with contextlib.suppress(errors.NotFound):
                await client.delete(NAMESPACES, "", self.namespace)
            await _wait_gone(client, NAMESPACES, self.namespace)

    async def _delete_pods(self, client: Client) -> None:
        """A namespace that has pods waits for their longest grace period before it looks again; so they go
        first, and before them what would make them anew."""
        page = await client.list_page(MODEL_SERVINGS, self.namespace)
        for serving in page.items:
            with contextlib.suppress(errors.NotFound):
                await client.delete(MODEL_SERVINGS, *serving.key)
        async with asyncio.timeout(GONE_TIMEOUT_S):
            await client.delete_collection(SERVING_PODS, self.namespace, label_selector=labels.GROUP_NAME)
            while True:
                if not (await client.list_page(SERVING_PODS, self.namespace, limit=1)).items:
                    return
                await asyncio.sleep(0.2)

    async def _delete_crds(self, say: Say) -> None:
        async with self._client() as client:
            for name in list(self._installed):
                page = await client.list_page(MODEL_SERVINGS, "", limit=1)
                if page.items:
                    say(f"leaving the CRD {name}: others have objects of it by now")
                    continue
                say(f"deleting the CRD {name}")
                with contextlib.suppress(errors.NotFound):
                    await client.delete(CRDS, "", name)
                await _wait_gone(client, CRDS, name)
                self._installed.remove(name)

    def _client(self) -> Client:
        return Client(self._settings, timeout_s=CALL_TIMEOUT_S, user_agent="isthmus-demo")


async def _wait_gone(client: Client, resource: Resource[Any], name: str) -> None:
    """Return once a cluster-scoped object is gone. Raises TimeoutError."""
    async with asyncio.timeout(GONE_TIMEOUT_S):
        with contextlib.suppress(errors.NotFound):
            while True:
                await client.get(resource, "", name)
                await asyncio.sleep(0.2)


def operator_command() -> list[str]:
    """How to call `isthmus operator` as this installation is called."""
    return [sys.executable, "-P", "-m", "isthmus.cli.main", "operator"]


def read_manifest() -> Raw:
    """The example that the demo applies."""
    import yaml

    raw_serving: Raw = yaml.safe_load((places.clone() / MANIFEST).read_text())
    return raw_serving


async def apply(scene: Scene, manifest: Raw) -> None:
    """Apply a ModelServing in the scene's namespace, as `kubectl apply --server-side` does."""
    async with _connect(scene) as client:
        name: str = manifest["metadata"]["name"]
        await client.apply(MODEL_SERVINGS, scene.namespace, name, manifest, field_manager=FIELD_MANAGER)


async def count_pods(scene: Scene) -> int:
    """How many pods the scene's namespace has."""
    async with _connect(scene) as client:
        return len((await client.list_page(SERVING_PODS, scene.namespace)).items)


@contextlib.asynccontextmanager
async def _connect(scene: Scene) -> AsyncIterator[Client]:
    async with Client(config.load(scene.kubeconfig), user_agent=FIELD_MANAGER) as client:
        yield client
