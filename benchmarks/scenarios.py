"""How many requests, how much CPU and memory, and how long: the operator on a real control plane, scenario by
scenario.

S1 creates M ModelServings of R groups with 4 pods each; idle watches nothing happen; S6 kills the operator
and starts it again; S3 rolls all to another image; S3c rolls again and kills the operator in the middle,
KILLS times; S4 scales R to 2; S5 deletes all, S5f in the foreground; S2 creates one ModelServing of R2
groups, S2j the same with pods that are ready after 0 to 30 s. The large run is S1 and S6 with 20,000 pods.
All counts are the operator's own, from the API server's audit log.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from benchmarks.process import Audit, Operator, Request, by_kind, cpu_s, memory_mb
from benchmarks.world import World
from isthmus.sandbox import NodeSettings, Sandbox

KILLS = 3
"""In S3c; each interrupts the rollouts of all ModelServings."""
QUIET_S = 2.0
SETTLE_S = 20.0


class Size(NamedTuple):
    """ModelServings, groups of each, groups of the big one."""

    servings: int = 50
    groups: int = 5
    big: int = 200


class Result(NamedTuple):
    """One scenario. `wall_s` until all was as wanted; `requests` also those that followed until it was
    quiet."""

    name: str
    reached: bool
    wall_s: float
    cpu_s: float
    peak_mb: float
    requests: list[Request]

    @property
    def events(self) -> int:
        """Requests that told events."""
        return sum(request.what.endswith(" events") for request in self.requests)

    @property
    def refused(self) -> int:
        """Requests answered with 400 or more."""
        return sum(request.code >= 400 for request in self.requests)

    @property
    def kinds(self) -> dict[str, int]:
        """Requests by verb and resource."""
        return by_kind(self.requests)


class Player:
    """Plays scenarios one after the other on one sandbox; the later ones use what the earlier ones made."""

    def __init__(
        self, sandbox: Sandbox, world: World, operator: Operator, audit: Audit, size: Size, *, within_s: float
    ) -> None:
        self._sandbox = sandbox
        self._world = world
        self._operator = operator
        self._audit = audit
        self._size = size
        self._within_s = within_s
        self._names = [f"ms-{index:04d}" for index in range(size.servings)]
        self._began = (0.0, 0.0)

    async def play(self, scenario: str) -> Result:
        """Play one of s1, s2, s2j, s3, s3c, s4, s5, s5f, s6, idle."""
        result: Result = await getattr(self, scenario.lower())()
        return result

    async def s1(self) -> Result:
        """Create."""
        self._begin()
        await self._world.create(self._names, self._size.groups)
        return await self._end("S1", dict.fromkeys(self._names, self._size.groups))

    async def s2(self) -> Result:
        """Create one that is big; it is deleted afterwards, unmeasured."""
        self._begin()
        await self._world.create(["big"], self._size.big)
        result = await self._end("S2", {"big": self._size.big})
        await self._world.delete(["big"])
        await self._world.until(self._world.empty, within_s=self._within_s)
        return result

    async def s3(self) -> Result:
        """Roll to another image."""
        old = self._world.revisions()
        self._begin()
        await self._world.roll(self._names, "bench/image:v2")
        return await self._end("S3", dict.fromkeys(self._names, self._size.groups), old)

    async def s2j(self) -> Result:
        """Create the big one while pods become ready one by one over 30 s."""
        await self._node(NodeSettings(ready_jitter_s=30))
        result = await self.s2()
        await self._node(NodeSettings())
        return result._replace(name="S2j")

    async def s3c(self) -> Result:
        """Roll to another image, kill the operator in the middle, start it again: none may be stuck."""
        await self._node(NodeSettings(ready_delay_s=1, delete_delay_s=1))
        began, requests, stuck = time.monotonic(), list[Request](), 0
        self._audit.read()
        for number in range(KILLS):
            old = self._world.revisions()
            await self._world.roll(self._names, f"bench/image:killed-{number}")
            await asyncio.sleep(4 + 3 * number)
            self._operator.kill()
            self._operator.start()
            wanted = dict.fromkeys(self._names, self._size.groups)
            await self._world.until(lambda: self._world.settled(wanted, old), within_s=self._within_s)  # noqa: B023
            stuck += sum(not self._world.settled({name: each}, old) for name, each in wanted.items())
            requests += self._audit.read()
        await self._node(NodeSettings())
        pid, wall = self._operator.pid, time.monotonic() - began
        name = f"S3c: {stuck} of {KILLS * len(self._names)} stuck"
        return Result(name, not stuck, wall, cpu_s(pid), memory_mb(pid), requests)

    async def s5f(self) -> Result:
        """Delete all in the foreground: the garbage collector ends it, with no write of the operator."""
        self._begin()
        await self._world.delete(self._names, propagation="Foreground")
        reached = await self._world.until(self._world.empty, within_s=self._within_s)
        return await self._measure("S5f", reached)

    async def s4(self) -> Result:
        """Scale down to 2 groups each."""
        self._begin()
        await self._world.scale(self._names, 2)
        return await self._end("S4", dict.fromkeys(self._names, 2))

    async def s5(self) -> Result:
        """Delete all; the garbage collector does the rest."""
        self._begin()
        await self._world.delete(self._names)
        reached = await self._world.until(self._world.empty, within_s=self._within_s)
        return await self._measure("S5", reached)

    async def s6(self) -> Result:
        """Kill and start again; ready when it has asked for nothing for 5 s."""
        before = self._world.uids()
        self._operator.kill()
        self._audit.read()
        began = time.monotonic()
        self._operator.start()
        self._began = (began, 0.0)
        requests: list[Request] = []
        last = began
        while time.monotonic() - last < 5 and time.monotonic() - began < self._within_s:
            await asyncio.sleep(0.05)
            if more := self._audit.read():
                requests += more
                last = time.monotonic()
        unharmed = self._world.uids() == before
        cpu, peak = cpu_s(self._operator.pid), memory_mb(self._operator.pid)
        return Result("S6", unharmed and bool(requests), last - began, cpu, peak, requests)

    async def idle(self) -> Result:
        """Nothing, for 20 s."""
        self._begin()
        await asyncio.sleep(20)
        pid, (began, cpu) = self._operator.pid, self._began
        return Result(
            "idle", True, time.monotonic() - began, cpu_s(pid) - cpu, memory_mb(pid), self._audit.read()
        )

    async def _node(self, settings: NodeSettings) -> None:
        await asyncio.to_thread(self._sandbox.set_node, settings)

    def _begin(self) -> None:
        self._audit.read()
        self._operator.reset_peak()
        self._began = (time.monotonic(), cpu_s(self._operator.pid))

    async def _end(self, name: str, replicas: dict[str, int], old: dict[str, str] | None = None) -> Result:
        reached = await self._world.until(lambda: self._world.settled(replicas, old), within_s=self._within_s)
        return await self._measure(name, reached)

    async def _measure(self, name: str, reached: bool) -> Result:
        wall = time.monotonic() - self._began[0]
        pid = self._operator.pid
        cpu = cpu_s(pid) - self._began[1]
        requests = self._audit.read()
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            await asyncio.sleep(QUIET_S)
            more = self._audit.read()
            requests += more
            if not more:
                break
        return Result(name, reached, wall, cpu, memory_mb(pid), requests)
