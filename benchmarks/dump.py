"""How long does a dump of many role instances take, how much memory, and how long does the event loop stall?

`python -m benchmarks.dump [INSTANCES]` fills a real store with 50,000 role instances (or INSTANCES), serves
it on a debug port of its own, reads it over real sockets from another process, and prints a table. The
loop's stall is the longest time by which a task that wants to run every millisecond came late, measured with
and without a dump running, and with the garbage collector's own pauses as they are.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
from typing import Final

import msgspec
import structlog
import uvloop

from isthmus.api import labels
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing
from isthmus.api.podgroups import POD_GROUPS
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES, ServingPod
from isthmus.app.operator import tame_collector
from isthmus.clock import SystemClock
from isthmus.debugport.port import CACHE_PATH, DebugPort
from isthmus.modelserving.dto import Decision
from isthmus.modelserving.dump import Dump
from isthmus.modelserving.store import Caches, Store
from isthmus.runtime.cache import Cache
from isthmus.runtime.metrics import Metrics

INSTANCES: Final = 50_000
PER_GROUP: Final = 10
GROUPS_PER_SERVING: Final = 50
TICK_S: Final = 0.001

READER: Final = """
import http.client, sys, threading, time
def read():
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    connection.request("GET", sys.argv[2])
    response = connection.getresponse()
    size = 0
    while piece := response.read(1 << 16):
        size += len(piece)
    print(f"{response.status} {size} {time.perf_counter() - start}\\n", end="")
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=read) for _ in range(int(sys.argv[3]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
"""One process that reads N dumps at once: more of them would compete with the operator for processors."""


class NoDecisions:
    """The other half of a debug port, empty."""

    def decisions(self, namespace: str | None, name: str | None) -> list[Decision]:
        """None were taken."""
        return []


def filled(instances: int, per_group: int) -> Dump:
    """A real store over real caches: ModelServings of up to GROUPS_PER_SERVING groups, each instance one
    ready pod."""
    metrics = Metrics()
    caches = Caches(
        servings=Cache(MODEL_SERVINGS, metrics=metrics),
        pods=Cache(SERVING_PODS, metrics=metrics),
        services=Cache(SERVING_SERVICES, metrics=metrics),
        revisions=Cache(CONTROLLER_REVISIONS, metrics=metrics),
        pod_groups=Cache(POD_GROUPS, metrics=metrics),
    )
    store = Store(caches, lambda key: None)
    groups = instances // per_group
    servings, pods = [], []
    for number in range(-(-groups // GROUPS_PER_SERVING)):
        name, uid = f"serving-{number}", f"uid-{number}"
        servings.append(serving(name, uid, min(GROUPS_PER_SERVING, groups), per_group))
        for group in range(min(GROUPS_PER_SERVING, groups - number * GROUPS_PER_SERVING)):
            for role, count in (("prefill", per_group // 2), ("decode", per_group - per_group // 2)):
                pods += [pod(name, uid, f"{name}-{group}", role, index) for index in range(count)]
    caches.servings.replace("", [SERVING(raw) for raw in servings], "1")
    caches.pods.replace("", [POD(raw) for raw in pods], "1")
    caches.services.replace("", [], "1")
    caches.revisions.replace("", [], "1")
    return Dump(store, SystemClock())


SERVING = msgspec.json.Decoder(ModelServing).decode
POD = msgspec.json.Decoder(ServingPod).decode


def serving(name: str, uid: str, groups: int, per_group: int) -> bytes:
    """A ModelServing as the API server gives it."""
    template = {"spec": {"containers": [{"name": "engine", "image": "bench/image:v1"}]}}
    counts = {"prefill": per_group // 2, "decode": per_group - per_group // 2}
    roles = [
        {"name": role, "replicas": count, "workerReplicas": 0, "entryTemplate": template}
        for role, count in counts.items()
    ]
    return msgspec.json.encode(
        {
            "metadata": {"name": name, "namespace": "bench", "uid": uid, "resourceVersion": "1"},
            "spec": {"replicas": groups, "template": {"roles": roles}},
        }
    )


def pod(name: str, uid: str, group: str, role: str, index: int) -> bytes:
    """A running and ready pod of one instance, as the API server gives it."""
    values = {
        labels.NAME: name,
        labels.GROUP_NAME: group,
        labels.ROLE: role,
        labels.ROLE_ID: f"{role}-{index}",
        labels.REVISION: "759bf7cf75",
        labels.ROLE_TEMPLATE_HASH: "5cc6fc8695",
        labels.ENTRY: "true",
    }
    owner = {"apiVersion": "v1", "kind": "ModelServing", "name": name, "uid": uid, "controller": True}
    pod_name = f"{group}-{role}-{index}-0"
    metadata = {
        "name": pod_name,
        "namespace": "bench",
        "uid": pod_name,
        "resourceVersion": "1",
        "labels": values,
        "ownerReferences": [owner],
    }
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.json.encode({"metadata": metadata, "status": status})


class Lateness:
    """A task that wants to run every TICK_S, and remembers by how much it came late.

    `own_s` is the part of it during which this process used a processor: what remains of lateness when other
    processes had the machine is not ours to mend.
    """

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.own_s: list[float] = []

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due, used = time.perf_counter() + TICK_S, time.process_time()
            await asyncio.sleep(TICK_S)
            late = time.perf_counter() - due
            self.late_s.append(late)
            self.own_s.append(min(late, time.process_time() - used))

    def clear(self) -> None:
        """Begin anew."""
        self.late_s.clear()
        self.own_s.clear()

    def row(self) -> str:
        """In milliseconds: longest, 99th percentile, and the longest that was this process' own doing."""
        ordered = sorted(self.late_s)
        percentile = ordered[int(len(ordered) * 0.99)]
        return f"{ordered[-1] * 1e3:8.1f} {percentile * 1e3:8.1f} {max(self.own_s) * 1e3:8.1f}"


def rss_mb(field: str = "VmRSS") -> float:
    """Resident memory of this process in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


async def measure(instances: int, per_group: int, readers: int) -> None:
    """One row of the table."""
    port = DebugPort(0, dump=filled(instances, per_group), decisions=NoDecisions())
    tame_collector()
    port.bind()
    await port.serve()
    lateness, before_mb, peak = Lateness(), rss_mb(), Peak()
    async with asyncio.TaskGroup() as group:
        ticker = group.create_task(lateness.run())
        await asyncio.sleep(1.0)
        idle = lateness.row()
        reader = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", READER, str(port.addresses[0][1]), CACHE_PATH, str(readers)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert reader.stdout is not None
        await reader.stdout.readline()
        lateness.clear()
        cpu = time.process_time()
        with peak:
            output = await reader.communicate(b"go\n")
            answers = [line.split() for line in output[0].decode().splitlines()]
        cpu = time.process_time() - cpu
        ticker.cancel()
    await port.stop()
    good = [answer for answer in answers if answer[0] == "200"]
    size, longest = max(int(answer[1]) for answer in good), max(float(answer[2]) for answer in good)
    print(
        f"{instances:>9} {per_group:>9} {len(good):>4}/{readers:<3} {size / 1e6:7.1f} {longest:8.2f} "
        f"{cpu:8.2f} {peak.mb - before_mb:+9.1f} {lateness.row()}   {idle}"
    )


class Peak:
    """The highest resident memory while the block ran, sampled by a thread that sleeps between."""

    def __init__(self) -> None:
        self.mb = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def _sample(self) -> None:
        while not self._stop.wait(0.02):
            self.mb = max(self.mb, rss_mb())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def main() -> None:
    """Print the table."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    instances = int(sys.argv[1]) if len(sys.argv) > 1 else INSTANCES
    print(f"switch interval {sys.getswitchinterval() * 1e3:.0f} ms, gc thresholds {gc.get_threshold()}")
    print(
        f"{'instances':>9} {'per group':>9} {'dumps':>8} {'MB':>7} {'s':>8} {'CPU s':>8} {'RSS MB':>9} "
        f"{'late ms':>8} {'p99':>8} {'own':>8}   idle: late, p99, own"
    )
    for per_group, readers in (
        (PER_GROUP, 1),
        (instances, 1),
        (PER_GROUP, 4),
        (PER_GROUP, 16),
        (PER_GROUP, 200),
    ):
        uvloop.run(measure(instances, per_group, readers))


if __name__ == "__main__":
    main()
