"""How long do many pools take to be exported, with how many requests, and how soon do all follow a change?

`python -m benchmarks.pools [POOLS]` makes 1,000 graphs (or POOLS) with three frontends and a worker each on
one control plane, runs `isthmus operator --controllers poolrelay` and puts a relay beside each graph. Prints
a table as docs/performance.md has it: creation, a time of rest, another ID of the cluster, and withdrawal.
Counts are the operator's own, from the API server's audit log.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.process import Audit, Request, by_kind, cpu_s, memory_mb
from isthmus.sandbox import Cluster, Sandbox
from isthmus.sandbox.pools import (
    EVENTS,
    EXPORTS,
    GRAPHS,
    PROPERTIES,
    PROPERTY,
    RELAYS,
    definitions,
    write_configuration,
)

USER = "operator"
NAMESPACE = "default"
FRONTENDS = ("Frontend", "Api", "Batch")
REST_S = 20.0
WITHIN_S = 600.0
WRITES = ("create", "update", "patch", "delete", "deletecollection")

Raw = dict[str, Any]


def graph(name: str, frontends: Iterable[str] = FRONTENDS) -> Raw:
    """A graph with these frontends and a worker."""

    def component(component: str, kind: str) -> Raw:
        container = {"name": "main", "image": "registry.example/dynamo:1.0"}
        return {"name": component, "type": kind, "podTemplate": {"spec": {"containers": [container]}}}

    return {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name},
        "spec": {
            "components": [
                *(component(each, "frontend") for each in frontends),
                component("Engine", "worker"),
            ]
        },
    }


def relay(name: str) -> Raw:
    """A relay in the cluster `one`."""
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoPoolRelay",
        "metadata": {"name": name},
        "spec": {"clusterId": "one"},
    }


def cluster_property(value: str) -> Raw:
    """What the cluster says of its ID."""
    return {
        "apiVersion": "about.k8s.io/v1beta1",
        "kind": "ClusterProperty",
        "metadata": {"name": PROPERTY},
        "spec": {"value": value},
    }


class Bench:
    """One sandbox, one operator, and the measures of one step after the other."""

    def __init__(self, cluster: Cluster, audit: Audit, pools: int) -> None:
        self._cluster = cluster
        self._audit = audit
        self._names = [f"pool-{index:04d}" for index in range(pools)]
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, folder: Path) -> None:
        """All steps."""
        self._post(PROPERTIES, [cluster_property("one")])
        self._post(GRAPHS, [graph(name) for name in self._names])
        self._start(folder)
        wanted = len(self._names) * (1 + len(FRONTENDS))
        print("\n| step | reached | s | CPU s | peak MB | writes | of them events | refused |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        self._step(
            f"{len(self._names)} relays: {wanted} exports",
            lambda: self._post(RELAYS, [relay(name) for name in self._names]),
            lambda: self._count(EXPORTS) == wanted,
        )
        self._step("until every relay is ready", lambda: None, self._all_ready)
        self._step(f"rest of {REST_S:.0f} s", lambda: time.sleep(REST_S), lambda: True)
        self._step(
            "another cluster ID: all relays tell of it",
            lambda: self._patch(PROPERTIES, [PROPERTY], {"spec": {"value": "two"}}),
            lambda: self._told("ClusterIDMismatch") >= len(self._names),
        )
        self._step(
            "all graphs deleted: no export left",
            lambda: self._delete(GRAPHS, self._names),
            lambda: self._count(EXPORTS) == 0,
        )

    def kill(self) -> None:
        """End the operator."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self, folder: Path) -> None:
        config = write_configuration(folder, "mcs")
        command = [
            *(sys.executable, "-m", "isthmus.cli.main", "operator"),
            *(f"--kubeconfig={self._cluster.kubeconfig(USER)}", f"--config={config}"),
            *("--controllers=poolrelay", "--metrics-bind-address=0", "--health-probe-bind-address=0"),
        ]
        with (folder / "operator.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        time.sleep(5)
        if self._process.poll() is not None:
            sys.exit((folder / "operator.log").read_text())

    def _step(self, title: str, do: Callable[[], object], holds: Callable[[], bool]) -> None:
        assert self._process is not None
        pid = self._process.pid
        self._audit.read()
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        began, cpu = time.monotonic(), cpu_s(pid)
        do()
        while not (reached := holds()) and time.monotonic() - began < WITHIN_S:
            time.sleep(0.2)
        wall = time.monotonic() - began
        requests = self._quiet()
        writes = [each for each in requests if each.what.partition(" ")[0] in WRITES]
        events = sum(each.what.endswith(" events") for each in writes)
        # To look for what is not there is no refusal.
        refused = sum(each.code >= 400 and (each.code, each.what[:4]) != (404, "get ") for each in requests)
        cells = [
            title,
            "yes" if reached else "**no**",
            f"{wall:.1f}",
            f"{cpu_s(pid) - cpu:.1f}",
            f"{memory_mb(pid):.0f}",
            str(len(writes)),
            str(events),
            str(refused),
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
        print(f"<!-- {by_kind(requests)} -->", flush=True)

    def _quiet(self) -> list[Request]:
        """The requests until none has come for two seconds."""
        requests = self._audit.read()
        for _ in range(60):
            time.sleep(2)
            more = self._audit.read()
            requests += more
            if not more:
                break
        return requests

    # The cluster

    def _count(self, collection: str) -> int:
        page = self._cluster.request(f"{collection.format(NAMESPACE)}?limit=1")
        rest: int = page["metadata"].get("remainingItemCount", 0)
        return len(page["items"]) + rest

    def _all_ready(self) -> bool:
        found = self._cluster.request(RELAYS.format(NAMESPACE))["items"]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in each["status"].get("conditions", ()))
            for each in found
        )

    def _told(self, reason: str) -> int:
        path = f"{EVENTS.format(NAMESPACE)}?fieldSelector=reason={reason}"
        return len({each["regarding"]["name"] for each in self._cluster.request(path)["items"]})

    def _post(self, collection: str, objects: Iterable[Raw]) -> None:
        path = collection.format(NAMESPACE)
        self._each(lambda obj: self._cluster.request(path, method="POST", body=obj), objects)

    def _patch(self, collection: str, names: Iterable[str], patch: Raw) -> None:
        path, kind = collection.format(NAMESPACE), "application/merge-patch+json"
        self._each(
            lambda name: self._cluster.request(
                f"{path}/{name}", method="PATCH", body=patch, content_type=kind
            ),
            names,
        )

    def _delete(self, collection: str, names: Iterable[str]) -> None:
        path = collection.format(NAMESPACE)
        self._each(lambda name: self._cluster.request(f"{path}/{name}", method="DELETE"), names)

    def _each(self, call: Callable[[Any], object], items: Iterable[Any]) -> None:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(call, items))


def main() -> None:
    """Run it."""
    pools = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with Sandbox.start(audit=True, crds=definitions()) as sandbox, tempfile.TemporaryDirectory() as folder:
        bench = Bench(sandbox.cluster(), Audit(sandbox.folder.audit_log(0), USER), pools)
        try:
            bench.run(Path(folder))
        finally:
            bench.kill()


if __name__ == "__main__":
    main()
