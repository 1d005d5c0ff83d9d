"""The router's metrics (PW-20), with labels that nobody outside can make more of.

A model's name is a label only where a pool has it; any other is `unknown`. Pools are
`cluster/namespace/name`, and the series of one that has left are removed by `forget`. proxy.py and app.py
set them; web/health.py shows the registry.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

UNKNOWN: Final = "unknown"
BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """All series of one router process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "gr_requests",
            "Requests answered, by the model that was asked for, the pool that answered and the status.",
            ["model", "pool", "code"],
            registry=self.registry,
        )
        self.attempts = Counter(
            "gr_attempts", "Tries at pools, by how they ended.", ["pool", "result"], registry=self.registry
        )
        self.retries = Counter(
            "gr_retries", "Tries after a first one, by why.", ["reason"], registry=self.registry
        )
        self.refused_retries = Counter(
            "gr_retries_over_budget", "Retries that the budget refused.", registry=self.registry
        )
        self.first_byte = Histogram(
            "gr_first_byte_seconds",
            "From a request's arrival to the first byte of its answer.",
            ["pool"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.duration = Histogram(
            "gr_request_duration_seconds",
            "From a request's arrival to the end of its answer.",
            ["pool"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge("gr_inflight", "Requests at a pool now.", ["pool"], registry=self.registry)
        self.eligible = Gauge(
            "gr_pool_eligible", "Whether a pool can take requests: 1 or 0.", ["pool"], registry=self.registry
        )
        self.breaker = Gauge(
            "gr_pool_breaker_open",
            "Whether a pool's circuit breaker keeps requests away: 1 open, 0.5 half-open, 0 closed.",
            ["pool"],
            registry=self.registry,
        )
        self.client_aborts = Counter(
            "gr_client_aborts",
            "Requests whose client went before their answer ended.",
            registry=self.registry,
        )
        self.broken_answers = Counter(
            "gr_broken_answers",
            "Answers that a pool did not finish, and the client was told so.",
            ["pool"],
            registry=self.registry,
        )
        self.discovery_age = Gauge(
            "gr_discovery_age_seconds",
            "Seconds since the discovery service was last heard of; -1 before the first time.",
            registry=self.registry,
        )
        self.discovery_complete = Gauge(
            "gr_discovery_complete", "Whether the last list was complete: 1 or 0.", registry=self.registry
        )
        self.pools = Gauge("gr_pools", "Pools that are known.", registry=self.registry)
        self.draining = Gauge("gr_draining", "Whether the router is going: 1 or 0.", registry=self.registry)
        self.discovery_age.set(-1)

    def forget(self, pool: str) -> None:
        """Remove the gauges of a pool that has left."""
        for gauge in (self.in_flight, self.eligible, self.breaker):
            gauge.remove(pool)
