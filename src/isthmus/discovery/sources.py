"""Imports of other clusters' Services, from caches of EndpointSlices and ServiceImports (DS-9, DS-14).

app.py makes one for the modes mcs and karmada. It watches all namespaces; `endpoints` is a read of what the
caches hold now, and None until they are complete, since an import that has not been listed is not absent.
The API of ServiceImports may come, go and change its version; where it is not served, slices stand for
themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from isthmus import logs
from isthmus.api.endpointslices import ENDPOINT_SLICES, EndpointSlice
from isthmus.clock import Clock
from isthmus.discovery.plan import imports
from isthmus.discovery.plan.imports import SERVICE_IMPORTS, Endpoints, ServiceImport, Source
from isthmus.discovery.plan.join import KARMADA
from isthmus.kube.client import Client
from isthmus.kube.metrics import WatchMetrics
from isthmus.kube.watch import Reflector
from isthmus.runtime.cache import Cache
from isthmus.runtime.manager import Watch
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.optional import OptionalApi

log = logs.get(__name__)

STALE_S: Final = 180.0
"""After this long without a word the API server's view is not to be relied on."""
PROBE_S: Final = 10.0
"""Seconds between two looks at whether ServiceImports are served: there may be no backend before."""


class Sources:
    """See the module. `changed` is called after each change."""

    def __init__(
        self, mode: str, client: Client, clock: Clock, metrics: Metrics, changed: Callable[[], None]
    ) -> None:
        self._mode = mode
        self._clock = clock
        self._told = WatchMetrics(metrics.registry)
        self._client = client
        self._slices: Cache[EndpointSlice] = Cache(ENDPOINT_SLICES, metrics=metrics)
        selector = (
            f"{imports.MANAGED_BY}={imports.KARMADA_MANAGER}" if mode == KARMADA else imports.IMPORT_SERVICE
        )
        self._watch = self._reflector(ENDPOINT_SLICES, self._slices, selector)
        self._slices.subscribe(lambda _: changed())
        self._changed = changed
        self._imports: Cache[ServiceImport] | None = None
        self._optional: OptionalApi[ServiceImport] | None = None
        if mode != KARMADA:
            cache = self._imports = Cache(SERVICE_IMPORTS[0], metrics=metrics)
            cache.subscribe(lambda _: changed())
            self._optional = OptionalApi(
                client,
                SERVICE_IMPORTS,
                cache,
                lambda found: [self._reflector(found, cache, "")],
                clock=clock,
                probe_s=PROBE_S,
            )
            self._optional.subscribe(changed)
        self._running: dict[Watch, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        metrics.read_counter(
            "gds_source_watch_failures_total",
            "Watches of imports that failed.",
            self._failures,
        )

    def endpoints(self) -> Mapping[Source, Endpoints] | None:
        """Every source's; None while not all has been listed."""
        if self.problem() is not None:
            return None
        if self._mode == KARMADA:
            return imports.of_karmada(self._slices.values())
        assert self._imports is not None
        assert self._optional is not None
        served = self._optional.served is not None
        known = {each.key: each for each in self._imports.values()} if served else None
        return imports.of_mcs(self._slices.values(), known)

    def problem(self) -> str | None:
        """Why the imports are not all known; None where they are."""
        if not self._slices.complete:
            return f"the EndpointSlices have not been listed yet{self._trouble(self._slices.name)}"
        if self._optional is not None and not self._optional.known:
            return f"the ServiceImports have not been listed yet{self._trouble(self._optional.name)}"
        return None

    def stale(self) -> str | None:
        """Whether the API server has been silent for so long that a list of now is not complete."""
        now = self._clock.monotonic()
        age_s = max((watch.age(now) for watch in self._running), default=0.0)
        return f"the API server has said nothing for {age_s:.0f} s" if age_s > STALE_S else None

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self.start_watch(self._watch)
            group.create_task(self._first())
            if self._optional is not None:
                group.create_task(self._optional.run(self))

    async def _first(self) -> None:
        """An empty list is no change, and yet the first look."""
        await self._slices.wait_complete()
        self._changed()

    def start_watch(self, watch: Watch) -> None:
        """See runtime.manager.Watches."""
        assert self._group is not None
        self._running[watch] = self._group.create_task(watch.run())

    async def stop_watch(self, watch: Watch) -> None:
        """See runtime.manager.Watches."""
        task = self._running.pop(watch)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _failures(self) -> float:
        return sum(self._causes().values())

    def _causes(self) -> dict[tuple[str, str], float]:
        """How often what went wrong with which resource."""
        samples = (each for metric in self._told.interruptions.collect() for each in metric.samples)
        return {
            (each.labels["resource"], each.labels["cause"]): each.value
            for each in samples
            if each.name.endswith("_total")
        }

    def _trouble(self, resource: str) -> str:
        causes = sorted(cause for name, cause in self._causes() if name == resource)
        return f": {', '.join(causes)}" if causes else ""

    def _reflector(self, resource: Any, cache: Cache[Any], selector: str) -> Reflector[Any]:
        return Reflector(
            self._client,
            resource,
            sink=cache,
            label_selector=selector,
            clock=self._clock,
            metrics=self._told,
        )
