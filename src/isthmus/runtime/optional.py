"""A kind whose API need not be there: found when it comes, let go when it goes, in the version served.

The composition root makes one per optional kind and gives it to the manager, which runs it as a task and
lends it its watches. While the API is absent its cache is complete and empty (`Cache.absent`); from the
moment it is found the cache is incomplete until it has been listed, so that nobody takes unknown for empty.
A probe that fails changes nothing: what was true stays true until the server says otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from isthmus import logs
from isthmus.api.meta import Object, Resource
from isthmus.clock import Clock
from isthmus.errors import IsthmusError
from isthmus.runtime.cache import Cache
from isthmus.runtime.manager import Watch, Watches
from isthmus.runtime.tasks import wait_first

T = TypeVar("T", bound=Object)

log = logs.get(__name__)

PROBE_S: Final = 60.0
"""Seconds between two looks at whether the API came or went."""
NUDGE_S: Final = 1.0
"""Seconds from a nudge to the look: the first of many nudges may come just before the API is gone."""
RETRY_S: Final = 5.0
"""Seconds after which a look that failed is taken again."""


class Discovery(Protocol):
    """Whoever can ask the API server (kube.client.Client)."""

    async def served(self, resource: Resource[T]) -> bool:
        """Whether the server has the resource in that group and version. Raises what went wrong."""


class OptionalApi(Generic[T]):
    """See the module. `versions` are the same kind in the versions that we can read, the best one first."""

    def __init__(
        self,
        client: Discovery,
        versions: Sequence[Resource[T]],
        cache: Cache[T],
        watch: Callable[[Resource[T]], Sequence[Watch]],
        *,
        clock: Clock,
        probe_s: float = PROBE_S,
    ) -> None:
        self.cache = cache
        self._client = client
        self._versions = tuple(versions)
        self._make = watch
        self._clock = clock
        self._probe_s = probe_s
        self._served: Resource[T] | None = None
        self._looked = False
        self._decided = False
        self._watches: Sequence[Watch] = ()
        self._nudged = asyncio.Event()
        self._subscribers: list[Callable[[], None]] = []

    @property
    def name(self) -> str:
        """plural.group, for people."""
        return self.cache.name

    @property
    def served(self) -> Resource[T] | None:
        """The version that is served, as far as is known; None where none is, or nothing is known yet."""
        return self._served

    @property
    def known(self) -> bool:
        """Whether the cache says what there is: the API is known to be absent, or it has been listed."""
        return self._decided and self.cache.complete

    def subscribe(self, fn: Callable[[], None]) -> None:
        """Call `fn` on the loop each time that the API has come (and has been listed), gone, or changed its
        version. It must be fast and must not raise."""
        self._subscribers.append(fn)

    def nudge(self) -> None:
        """Somebody was told that there is no such API: look again soon, not only at the next time."""
        self._nudged.set()

    async def look(self) -> Resource[T] | None:
        """Ask which version is served, and remember it for `run`. Raises what the server said."""
        self._served = await self._ask()
        self._looked = True
        return self._served

    async def run(self, watches: Watches) -> None:
        """Keep the cache in step with whether there is an API, until cancelled."""
        if not self._looked:
            await self._until_looked()
        await self._switch(watches, self._served)
        while True:
            await wait_first(self._clock.sleep(self._probe_s), self._nudged.wait())
            if self._nudged.is_set():
                self._nudged.clear()
                await self._clock.sleep(NUDGE_S)
            try:
                found = await self._ask()
            except IsthmusError as error:
                log.debug("could not see whether an API is served", resource=self.name, error=str(error))
                continue
            if found is not self._served:
                await self._switch(watches, found)

    async def _until_looked(self) -> None:
        while True:
            try:
                await self.look()
            except IsthmusError as error:
                log.warning("cannot see whether an API is served", resource=self.name, error=str(error))
                await self._clock.sleep(RETRY_S)
            else:
                return

    async def _ask(self) -> Resource[T] | None:
        for resource in self._versions:
            if await self._client.served(resource):
                return resource
        return None

    async def _switch(self, watches: Watches, found: Resource[T] | None) -> None:
        for watch in self._watches:
            await watches.stop_watch(watch)
        self._watches = ()
        self._served, self._decided = found, True
        if found is None:
            log.info("this API is not served; looking again now and then", resource=self.name)
            for source in self.cache.sources:
                self.cache.mark_absent(source)
        else:
            log.info("this API is served", resource=self.name, version=found.version)
            for source in self.cache.sources:
                self.cache.mark_unknown(source)
            self._watches = self._make(found)
            for watch in self._watches:
                watches.start_watch(watch)
            await self._listed()
        for fn in self._subscribers:
            fn()

    async def _listed(self) -> None:
        """Wait for the first list, but not past the next look: the API may be gone again by then."""
        listed: Awaitable[None] = self.cache.wait_complete()
        await wait_first(listed, self._clock.sleep(self._probe_s))
