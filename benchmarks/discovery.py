"""What does a list of 2,000 pools in 50 clusters cost, and how soon do 100 routers know of a change in it?

`python -m benchmarks.discovery [POOLS]` runs `isthmus discovery` in mode registrations as a process of its
own and is its relays and routers: 64 routers watch, which is the most, and 36 poll for long. Then it joins
as many pools with imported slices in this process, which is what the modes mcs and karmada do beside that.
Prints a table as docs/performance.md has it. The routers are one process, whose own work is in the times.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

from benchmarks.process import cpu_s, memory_mb
from isthmus.api.endpointslices import SERVICE_NAME, Conditions, Endpoint, EndpointPort, EndpointSlice
from isthmus.api.meta import ObjectMeta
from isthmus.api.pools import Frontend, Model, Registration, RelayRun
from isthmus.discovery.plan.imports import IMPORT_CLUSTER, IMPORT_SERVICE, of_mcs
from isthmus.discovery.plan.join import MCS, join
from isthmus.discovery.plan.listing import Listing

POOLS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
CLUSTERS = 50
WATCHERS, POLLERS = 64, 36
ALL = WATCHERS + POLLERS
CHANGES = 20
SLOW = 500
FRONTENDS = 2


def registration(number: int, revision: int = 1) -> Registration:
    """One pool's: two frontends and a model with an alias."""
    cluster, name = f"cluster-{number % CLUSTERS:02}", f"pool-{number:04}"
    urls = [f"http://10.{number % CLUSTERS}.{number // 250}.{each + 1}:8000" for each in range(FRONTENDS)]
    return Registration(
        cluster_id=cluster,
        namespace="serving",
        name=name,
        relay=RelayRun(url=f"http://10.0.0.1:{5000 + number}", incarnation=f"run-{name}", revision=revision),
        runtime_namespaces=(f"serving-{name}",),
        models=(Model(id=f"example/model-{number % 40}", aliases=(f"m{number % 40}",), max_concurrency=256),),
        frontends=tuple(Frontend(url=url, service=f"{name}-frontend") for url in urls),
    )


class Bench:
    """One discovery service, and everybody who asks it."""

    def __init__(self, session: aiohttp.ClientSession, port: int, pid: int) -> None:
        self.session = session
        self.base = f"http://127.0.0.1:{port}"
        self.pid = pid
        self.revision = 1
        self.knows: dict[int, float] = {}
        self.bytes = 0
        self.synced = 0

    async def post(self, told: Registration) -> None:
        """Register."""
        headers = {"Content-Type": "application/json"}
        body = msgspec.json.encode(told)
        async with self.session.post(f"{self.base}/pools", data=body, headers=headers) as answer:
            assert answer.status in (200, 201), await answer.text()

    async def post_all(self) -> None:
        """Register all pools, 16 at a time."""
        numbers = iter(range(POOLS))

        async def some() -> None:
            for number in numbers:
                await self.post(registration(number))

        await asyncio.gather(*(some() for _ in range(16)))

    async def list(self) -> bytes:
        """The whole list."""
        async with self.session.get(f"{self.base}/pools") as answer:
            return await answer.read()

    def learn(self, router: int) -> None:
        """A router knows of the present change."""
        self.knows.setdefault(router, time.perf_counter())

    async def watch(self, router: int) -> None:
        """A router that watches: it looks for the revision in the events."""
        async with self.session.get(f"{self.base}/pools/watch") as answer:
            while line := await answer.content.readline():
                self.bytes += len(line)
                if line.startswith(b"event: synced"):
                    self.synced += 1
                if f'"revision":{self.revision},'.encode() in line:
                    self.learn(router)

    async def poll(self, router: int) -> None:
        """A router that polls for long."""
        version = ""
        while True:
            url = f"{self.base}/pools?wait_secs=60&version={version}"
            async with self.session.get(url) as answer:
                body = await answer.read()
            self.bytes += len(body)
            if not version:
                self.synced += 1
            version = msgspec.json.decode(body, type=Version).version
            if f'"revision":{self.revision},'.encode() in body:
                self.learn(router)


class Version(msgspec.Struct):
    """Of a list."""

    version: str


def row(step: str, seconds: str, cpu: float, more: str) -> None:
    """A line of the table."""
    print(f"| {step} | {seconds} | {cpu:.2f} | {more} |", flush=True)


async def measured(bench: Bench, work: Callable[[], Awaitable[Any]]) -> tuple[float, float, Any]:
    """Wall time, the service's CPU time, and what `work` returned."""
    begun, before = time.perf_counter(), cpu_s(bench.pid)
    found = await work()
    return time.perf_counter() - begun, cpu_s(bench.pid) - before, found


async def spread(bench: Bench) -> None:
    """CHANGES changes: how soon those who watch, and those who poll, knew of each."""
    bench.bytes = 0
    watching: list[float] = []
    polling: list[float] = []
    before = cpu_s(bench.pid)
    for _ in range(CHANGES):
        bench.knows.clear()
        bench.revision += 1
        begun = time.perf_counter()
        await bench.post(registration(7, bench.revision))
        while len(bench.knows) < ALL:  # noqa: ASYNC110 - the readers are many
            await asyncio.sleep(0.002)
        times = {router: at - begun for router, at in bench.knows.items()}
        watching.append(max(at for router, at in times.items() if router < WATCHERS))
        polling.append(max(at for router, at in times.items() if router >= WATCHERS))
        await asyncio.sleep(0.2)
    cpu = (cpu_s(bench.pid) - before) / CHANGES
    for who, lasts in ((f"the last of {WATCHERS} that watch", watching), (f"the last of all {ALL}", polling)):
        row(
            f"one change, until {who} knows: median, worst of {CHANGES}",
            f"{statistics.median(lasts):.3f}, {max(lasts):.3f}",
            cpu,
            f"{bench.bytes / CHANGES / 1e6:.1f} MB sent",
        )


async def serve(bench: Bench) -> None:
    """All steps."""
    while True:
        try:
            await bench.list()
            break
        except aiohttp.ClientError:
            await asyncio.sleep(0.05)
    row("start", "", cpu_s(bench.pid), f"{memory_mb(bench.pid, 'VmRSS'):.0f} MB")
    wall, cpu, _ = await measured(bench, bench.post_all)
    row(f"{POOLS} pools register", f"{wall:.1f}", cpu, f"{memory_mb(bench.pid, 'VmRSS'):.0f} MB")
    await asyncio.sleep(1.0)
    wall, cpu, body = await measured(bench, bench.list)
    row("first list of one router", f"{wall:.3f}", cpu, f"{len(body) / 1e6:.2f} MB sent")
    wall, cpu, _ = await measured(bench, bench.post_all)
    row(f"{POOLS} renewals", f"{wall:.1f}", cpu, f"{POOLS / cpu:.0f} a second of CPU")
    async with asyncio.TaskGroup() as group:

        async def all_synced() -> None:
            for router in range(WATCHERS):
                readers.append(group.create_task(bench.watch(router)))
            for router in range(WATCHERS, ALL):
                readers.append(group.create_task(bench.poll(router)))
            while bench.synced < ALL:  # noqa: ASYNC110 - the readers are many
                await asyncio.sleep(0.005)

        readers: list[asyncio.Task[None]] = []
        wall, cpu, _ = await measured(bench, all_synced)
        row("first lists of 100 routers at once", f"{wall:.2f}", cpu, f"{bench.bytes / 1e6:.0f} MB sent")
        await asyncio.sleep(1.0)
        await spread(bench)
        for reader in readers:
            reader.cancel()
    await asyncio.sleep(1.0)
    before = memory_mb(bench.pid, "VmRSS")
    with contextlib.ExitStack() as stack:
        for _ in range(SLOW):
            stack.enter_context(slow_reader(int(bench.base.rpartition(":")[2])))
            await asyncio.sleep(0.005)
        await asyncio.sleep(5.0)
        more = memory_mb(bench.pid, "VmRSS") - before
        wall, cpu, _ = await measured(bench, bench.list)
        row(f"a list beside {SLOW} that do not read theirs", f"{wall:.3f}", cpu, f"{more:.0f} MB more")
    row("peak memory", "", 0.0, f"{memory_mb(bench.pid):.0f} MB")


def slow_reader(port: int) -> socket.socket:
    """Who asks for the list and reads nothing of it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.send(b"GET /pools HTTP/1.1\r\nHost: discovery\r\n\r\n")
    return sock


def join_imports() -> None:
    """The join of as many pools with two slices each, in this process."""
    told = [registration(number) for number in range(POOLS)]
    slices = [
        _slice(each, end, port)
        for each in told
        for end, port in (("-pool-relay", ("grpc", 5561)), ("-frontend", ("http", 8000)))
    ]
    walls = []
    for _ in range(10):
        begun = time.perf_counter()
        joined = join(told, of_mcs(slices, None), mode=MCS)
        _ = Listing(joined.pools, complete=True, mode=MCS).version
        walls.append(time.perf_counter() - begun)
        assert len(joined.pools) == POOLS
    row("mode mcs: one join, in process", f"{statistics.median(walls):.3f}", statistics.median(walls), "")


def _slice(each: Registration, end: str, port: tuple[str, int]) -> EndpointSlice:
    labels = {IMPORT_SERVICE: each.name + end, IMPORT_CLUSTER: each.cluster_id, SERVICE_NAME: "derived"}
    addresses = [f"10.1.{index}.{len(each.name)}" for index in range(FRONTENDS)]
    return EndpointSlice(
        metadata=ObjectMeta(name=f"{each.name}{end}", namespace=each.namespace, labels=labels),
        endpoints=tuple(Endpoint(addresses=(a,), conditions=Conditions(ready=True)) for a in addresses),
        ports=(EndpointPort(name=port[0], port=port[1], protocol="TCP"),),
    )


async def main() -> None:
    """Run it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    command = [sys.executable, "-m", "isthmus.cli.main", "discovery", "--listen", f"127.0.0.1:{port}"]
    leases = ["--heartbeat-interval-secs", "600", "--lease-duration-secs", "3600", "--log-level", "warning"]
    print("| step | s | CPU s | |\n|---|---|---|---|", flush=True)
    with subprocess.Popen([*command, *leases], env=os.environ) as process:  # noqa: ASYNC220 - it only starts
        try:
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(
                connector=connector, timeout=timeout, read_bufsize=1 << 20
            ) as session:
                await serve(Bench(session, port, process.pid))
        finally:
            process.kill()
    join_imports()


if __name__ == "__main__":
    asyncio.run(main())
