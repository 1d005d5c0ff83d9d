"""What every feature of an operator is built from, each cache made and watched once.

operator.py makes one Building per process; app/<feature>.py takes from it what the feature needs: caches,
optional APIs, an event recorder, a queue; and adds its controller. What was taken is what the operator then
watches, asks the cluster for before it starts, and shows in its health. It starts nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from isthmus.api.meta import Key, Object, Resource
from isthmus.app.options import OperatorOptions
from isthmus.clock import Clock
from isthmus.debugport.port import DebugPort
from isthmus.kube.client import Client
from isthmus.kube.metrics import WatchMetrics
from isthmus.kube.watch import Reflector
from isthmus.runtime.cache import Cache
from isthmus.runtime.claims import Claims, NoClaims, guard
from isthmus.runtime.controller import Controller, Reconcile
from isthmus.runtime.election import LeaderElector, unique_identity
from isthmus.runtime.events import EventRecorder
from isthmus.runtime.manager import Parts
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.optional import OptionalApi
from isthmus.runtime.queue import WorkQueue
from isthmus.web.server import Listener

T = TypeVar("T", bound=Object)


class Watched(NamedTuple):
    """A collection that the operator must be allowed to list and watch: in each of `namespaces`, "" for
    all."""

    resource: Resource[Any]
    selector: str
    namespaces: tuple[str, ...]


class Building:
    """See the module. `options`, `client`, `clock` and `metrics` are there to be used by features."""

    def __init__(self, options: OperatorOptions, client: Client, clock: Clock, metrics: Metrics) -> None:
        self.options = options
        self.client = client
        self.clock = clock
        self.metrics = metrics
        self.watched: list[Watched] = []
        self.optionals: list[OptionalApi[Any]] = []
        self.servers: list[Listener | DebugPort] = []
        self.claims: Claims = NoClaims()
        self._caches: dict[str, tuple[Resource[Any], str, Cache[Any]]] = {}
        self._watches: list[Reflector[Any]] = []
        self._controllers: list[Controller] = []
        self._recorders: list[EventRecorder] = []
        self._farewells: list[Callable[[], Awaitable[None]]] = []
        self._watch_metrics = WatchMetrics(metrics.registry)

    def cache(self, resource: Resource[T], *, selector: str = "", name: str = "") -> Cache[T]:
        """The cache of what `selector` chooses of a resource in the operator's namespaces, or in the cluster
        where the resource is cluster-scoped: made at the first call, shared by whoever asks for the same.

        `name` tells two caches of one resource apart, in metrics, logs and health. Raises ValueError where
        that name is another's.
        """
        known = self._caches.get(name or resource.name)
        if known is not None:
            if known[:2] != (resource, selector):
                raise ValueError(f"there is another cache named {name or resource.name}")
            return known[2]
        cache = self._make(resource, selector, name)
        self.watched.append(Watched(resource, selector, cache.sources))
        self._watches += self._reflectors(resource, selector, cache)
        return cache

    def optional(
        self, versions: Sequence[Resource[T]], *, selector: str = "", name: str = ""
    ) -> OptionalApi[T]:
        """A kind whose API need not be served, now or ever, in the first of `versions` that is; else as
        `cache`. Ask for it once."""
        cache = self._make(versions[0], selector, name)
        optional = OptionalApi(
            self.client,
            versions,
            cache,
            lambda resource: self._reflectors(resource, selector, cache),
            clock=self.clock,
            probe_s=self.options.probe_s,
        )
        self.optionals.append(optional)
        return optional

    def recorder(self, controller: str) -> EventRecorder:
        """Who tells events as `controller`, a qualified name."""
        recorder = EventRecorder(
            self.client,
            controller=controller,
            instance=unique_identity(),
            clock=self.clock,
            metrics=self.metrics,
        )
        self._recorders.append(recorder)
        return recorder

    def queue(self, name: str, seed: Callable[[], Iterable[Key]]) -> WorkQueue:
        """The queue of a controller. `seed` says which keys are to be looked at when the workers start."""
        return WorkQueue(name, self.clock, self.metrics, seed=seed)

    def control(self, name: str, reconcile: Reconcile, queue: WorkQueue) -> None:
        """Let workers of the leader call `reconcile` with the keys of `queue`, in namespaces that are not
        another operator's (R33)."""
        self._controllers.append(
            Controller(
                name,
                reconcile=guard(self.claims, reconcile),
                queue=queue,
                metrics=self.metrics,
                workers=self.options.workers,
            )
        )

    def farewell(self, fn: Callable[[], Awaitable[None]]) -> None:
        """Call `fn` when no worker runs any more, and this process still leads."""
        self._farewells.append(fn)

    def parts(self, election: LeaderElector | None) -> Parts:
        """All of it, for the manager."""
        return Parts(
            caches=[cache for _, _, cache in self._caches.values()],
            watches=self._watches,
            controllers=self._controllers,
            election=election,
            optionals=self.optionals,
            recorders=self._recorders,
            farewells=self._farewells,
        )

    def _make(self, resource: Resource[T], selector: str, name: str) -> Cache[T]:
        sources = (self.options.namespaces or ("",)) if resource.namespaced else ("",)
        cache = Cache(resource, sources=sources, metrics=self.metrics, name=name)
        if cache.name in self._caches:
            raise ValueError(f"there is another cache named {cache.name}")
        self._caches[cache.name] = resource, selector, cache
        return cache

    def _reflectors(self, resource: Resource[T], selector: str, cache: Cache[T]) -> list[Reflector[T]]:
        return [
            Reflector(
                self.client,
                resource,
                sink=cache,
                namespace=source,
                source=source,
                label_selector=selector,
                clock=self.clock,
                metrics=self._watch_metrics,
                name=cache.name,
            )
            for source in cache.sources
        ]
