"""The figures of the Go implementation (Kthena 3cc05728) that ours are printed beside.

Taken on 2 cores with etcd without fsync, kube-apiserver 1.36.3 and no client-side rate limit; the PodGroup
CRD was there, as it is for ours. Wall times are of its quietest run and mean little on another machine; CPU,
memory and counts do.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Figures(NamedTuple):
    """Seconds, seconds of CPU, MB, requests. None where nobody took it down."""

    wall_s: float | None
    cpu_s: float | None
    peak_mb: float | None
    requests: int | None


GO: Final = {
    "S1": Figures(13.8, 4.4, 75, 3494),
    "S2": Figures(11.0, 3.1, 71, 1630),
    "S3": Figures(48.4, 11.6, 74, 8323),
    "S4": Figures(9.0, 1.8, 76, 950),
    "S5": Figures(4.6, 0.6, 72, 0),
    "S6": Figures(4.2, 1.25, 72, 1312),
    "idle": Figures(20.0, 0.0, 75, 0),
    "large-S1": Figures(431, 64.3, 478, 42150),
    "large-S6": Figures(45.3, 12.9, 629, 10941),
}
