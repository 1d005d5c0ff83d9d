"""What is really there, watched by the benchmark itself: the judge of whether an operator has done its
work."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from isthmus.api import labels
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.podgroups import POD_GROUPS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.kube import config
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.watch import Reflector
from isthmus.modelserving.store import Caches
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics

NAMESPACE = "default"
PODS_PER_GROUP = 4


def manifest(name: str, replicas: int, image: str = "bench/image:v1") -> Raw:
    """A ModelServing of which each group has two roles and four pods."""

    def pod(role: str) -> Raw:
        container = {
            "name": role,
            "image": image,
            "command": ["serve", "--role", role],
            "ports": [{"containerPort": 8000}],
            "env": [{"name": "MODEL", "value": "bench"}],
            "resources": {
                "requests": {"cpu": "1", "memory": "2Gi"},
                "limits": {"cpu": "2", "memory": "4Gi"},
            },
        }
        return {
            "metadata": {"labels": {"app": name}},
            "spec": {"terminationGracePeriodSeconds": 30, "containers": [container]},
        }

    prefill = {"name": "prefill", "replicas": 1, "workerReplicas": 1}
    decode = {"name": "decode", "replicas": 2, "workerReplicas": 0}
    roles = [
        {**prefill, "entryTemplate": pod("prefill"), "workerTemplate": pod("prefill")},
        {**decode, "entryTemplate": pod("decode")},
    ]
    return {
        "apiVersion": MODEL_SERVINGS.api_version,
        "kind": MODEL_SERVINGS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"replicas": replicas, "template": {"roles": roles}},
    }


class World:
    """The objects of the benchmark's namespace, kept by watches of its own."""

    def __init__(self, client: Client, caches: Caches) -> None:
        self.client = client
        self.caches = caches
        self.changed = asyncio.Event()
        for cache in caches.all:
            cache.subscribe(lambda change: self.changed.set())

    async def until(self, holds: Callable[[], bool], *, within_s: float) -> bool:
        """Whether `holds` became true in time; looked at a tenth of a second after each change."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not holds():
            if loop.time() > deadline:
                return False
            self.changed.clear()
            try:
                async with asyncio.timeout(0.5):
                    await self.changed.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(0.1)
        return True

    def settled(self, replicas: dict[str, int], revision_differs_from: dict[str, str] | None = None) -> bool:
        """Whether status and pods of every ModelServing are as wanted; of a rollout also its revision."""
        ready: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for pod in self.caches.pods.values():
            name = pod.metadata.labels.name
            total[name] += 1
            old = (revision_differs_from or {}).get(name)
            if pod.ready and not pod.metadata.terminating and pod.metadata.labels.revision != old:
                ready[name] += 1
        for name, wanted in replicas.items():
            serving = self.caches.servings.get((NAMESPACE, name))
            if serving is None or serving.status.observed_generation != serving.metadata.generation:
                return False
            status = serving.status
            if not status.available_replicas == status.updated_replicas == status.replicas == wanted:
                return False
            if not ready[name] == total[name] == wanted * PODS_PER_GROUP:
                return False
        return True

    def empty(self) -> bool:
        """Whether nothing is left."""
        return not any(len(cache) for cache in self.caches.all)

    def uids(self) -> set[tuple[str, str]]:
        """(name, UID) of everything but the ModelServings."""
        caches = (self.caches.pods, self.caches.services, self.caches.revisions)
        return {(obj.metadata.name, obj.metadata.uid) for cache in caches for obj in cache.values()}

    def revisions(self) -> dict[str, str]:
        """The present revision of each ModelServing."""
        return {s.metadata.name: s.status.update_revision for s in self.caches.servings.values()}

    async def create(self, names: list[str], replicas: int) -> None:
        """Create ModelServings, eight at a time."""
        await self._each(
            names, lambda name: self.client.create(MODEL_SERVINGS, NAMESPACE, manifest(name, replicas))
        )

    async def scale(self, names: list[str], replicas: int) -> None:
        """Set spec.replicas of each."""
        await self._patch(names, {"spec": {"replicas": replicas}})

    async def roll(self, names: list[str], image: str) -> None:
        """Change the image of every role."""

        async def one(name: str) -> None:
            serving = manifest(name, 0, image)
            await self._merge(name, {"spec": {"template": serving["spec"]["template"]}})

        await self._each(names, one)

    async def delete(self, names: list[str], *, propagation: str = "Background") -> None:
        """Delete each; its children before it or after it."""
        await self._each(
            names,
            lambda name: self.client.delete(MODEL_SERVINGS, NAMESPACE, name, propagation=propagation),
        )

    async def _patch(self, names: list[str], body: Raw) -> None:
        await self._each(names, lambda name: self._merge(name, body))

    async def _merge(self, name: str, body: Raw) -> None:
        await self.client.patch(MODEL_SERVINGS, NAMESPACE, name, body, kind=PatchKind.MERGE)

    async def _each(self, names: list[str], call: Callable[[str], object]) -> None:
        rest = iter(names)

        async def work() -> None:
            for name in rest:
                await call(name)  # type: ignore[misc]

        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(work())


@asynccontextmanager
async def watched(kubeconfig: Path) -> AsyncIterator[World]:
    """A World that is in step with the API server."""
    metrics = Metrics()
    caches = Caches(
        servings=Cache(MODEL_SERVINGS, metrics=metrics),
        pods=Cache(SERVING_PODS, metrics=metrics),
        services=Cache(SERVING_SERVICES, metrics=metrics),
        revisions=Cache(CONTROLLER_REVISIONS, metrics=metrics),
        pod_groups=Cache(POD_GROUPS, metrics=metrics),
    )
    caches.pod_groups.mark_absent()
    watched = [cache for cache in caches.all if cache is not caches.pod_groups]
    selectors = {MODEL_SERVINGS.name: "", CONTROLLER_REVISIONS.name: labels.NAME}
    async with (
        Client(config.load(kubeconfig, environ={}), user_agent="isthmus-bench") as client,
        asyncio.TaskGroup() as tasks,
    ):
        world = World(client, caches)
        running = [
            tasks.create_task(
                Reflector(
                    client,
                    cache.resource,
                    sink=cache,
                    label_selector=selectors.get(cache.resource.name, labels.GROUP_NAME),
                ).run()
            )
            for cache in watched
        ]
        for cache in watched:
            await cache.wait_complete()
        yield world
        for task in running:
            task.cancel()
