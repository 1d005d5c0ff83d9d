"""Keeps the pool registered with the discovery service: asks when it is time, and takes it back at the end.

app.py runs `run` as a task and calls `leave` on SIGTERM. When it is time, and what an answer means, is
plan/registering.py's. The relay serves all the while, whatever the discovery service does (PW-4).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Final

from isthmus import logs
from isthmus.clock import Clock
from isthmus.relay.discoveryclient import DiscoveryClient, NotTaken
from isthmus.relay.plan import registering
from isthmus.relay.plan.registering import Asked
from isthmus.relay.view import View
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.tasks import wait_event

log = logs.get(__name__)

LEAVE_S: Final = 3.0


class Registrar:
    """See the module."""

    def __init__(
        self,
        view: View,
        client: DiscoveryClient,
        clock: Clock,
        metrics: Metrics,
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._view = view
        self._client = client
        self._clock = clock
        self._chance = chance
        self.asked = Asked()
        self._results = metrics.counter(
            "isthmus_relay_registrations_total",
            "Registrations and renewals by what came of them.",
            ["result"],
        )
        metrics.read_gauge(
            "isthmus_relay_registered",
            "1 while the discovery service holds this relay's registration.",
            lambda: float(self.registered),
        )

    @property
    def registered(self) -> bool:
        """Whether the lease runs."""
        until = self.asked.until
        return until is not None and self._clock.monotonic() < until

    async def run(self) -> None:
        """Register and renew, until cancelled."""
        view = self._view
        while True:
            if view.revision == 0:
                await view.changed.wait()
            view.changed.clear()
            wait_s = registering.due_at(self.asked, view.revision) - self._clock.monotonic()
            if wait_s > 0:
                await wait_event(view.changed, wait_s, self._clock)
                continue
            await self._send()

    async def _send(self) -> None:
        revision, before = self._view.revision, self.asked
        try:
            grant = await self._client.register(self._view.registration())
        except NotTaken as problem:
            standing = registering.standing_of(problem.status, problem.code)
            self.asked = registering.failed(
                before,
                standing,
                str(problem),
                self._clock.monotonic(),
                retry_after_s=problem.retry_after_s,
            )
            self._results.labels(problem.code or standing).inc()
            if before.problem != self.asked.problem:
                log.warning("not registered", standing=standing, problem=str(problem))
            return
        now = self._clock.monotonic()
        self.asked = registering.granted(before, grant, revision, now, self._chance())
        self._results.labels("granted").inc()
        if before.standing != "registered":
            log.info("registered", pool_id=grant.pool_id, interval_s=grant.heartbeat_interval_secs)

    async def leave(self) -> None:
        """Take the registration back, if there may be one; for LEAVE_S at most (PW-5)."""
        if self.asked.last is None:
            return
        options = self._view.options
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._client.deregister(options.key, options.incarnation)
                    log.info("deregistered")
        except NotTaken as problem:
            log.warning("not deregistered; the lease will run out", problem=str(problem))
