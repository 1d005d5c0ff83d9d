"""How soon does a pool's export in one cluster change the discovery service's list in another?

`python -m benchmarks.multicluster [TURNS]` brings up the clusters of tests/multicluster, over Cilium and then
over Karmada, and TURNS times (10) exports relay and frontend of a pool and withdraws them. Prints the medians
and the largest, from the request that makes the first export to the list that has the pool with both URLs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from tests.support.clusterset import CILIUM, EAST, KARMADA, ClusterSet, start_cilium, start_karmada

POLL_S = 0.01
WITHIN_S = 30.0


def main() -> None:
    """Measure both."""
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for name, start in ((CILIUM, start_cilium), (KARMADA, start_karmada)):
        with start() as clusters:
            listed, gone = _measure(clusters, turns)
        for what, times in (("listed", listed), ("gone", gone)):
            _say(f"{name:8} {what:7} median {statistics.median(times):.2f} s, largest {max(times):.2f} s")


def _measure(clusters: ClusterSet, turns: int) -> tuple[list[float], list[float]]:
    namespace = clusters.namespace()
    names = ("chat-pool-relay", "chat-frontend")
    urls = clusters.pool(EAST, namespace, "chat")
    whole = {"east/chat": ((urls[0],), (urls[1],))}
    _since(lambda: clusters.listed(namespace) == whole)
    listed, gone = [], []
    for _ in range(turns):
        clusters.unexport(EAST, namespace, *names)
        gone.append(_since(lambda: clusters.listed(namespace) == {}))
        # Until nothing of the frontend is left either, so that the next export is a new one.
        _since(lambda: not clusters.imported(namespace))
        began = time.monotonic()
        clusters.export(EAST, namespace, *names)
        _since(lambda: clusters.listed(namespace) == whole)
        listed.append(time.monotonic() - began)
    return listed, gone


def _since(holds: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < WITHIN_S, "not in time"
        time.sleep(POLL_S)
    return time.monotonic() - began


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
