"""Counters of the wire, in a registry that the caller owns.

app/operator.py makes one of each and passes them to Client and Reflector; None means nobody counts. Names are
client-go's where the meaning is the same, so existing dashboards work. Label values come from bounded sets.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter


class ClientMetrics:
    """rest_client_requests_total: answers by code (`<error>` where none came), method and host."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ("code", "method", "host"),
            registry=registry,
        )
        self._children: dict[tuple[int, str, str], Any] = {}

    def answered(self, code: int, method: str, host: str) -> None:
        """Count one answer; `code` 0 means that none came."""
        key = (code, method, host)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._requests.labels(
                str(code) if code else "<error>", method, host
            )
        child.inc()


class WatchMetrics:
    """How the reflectors fare: lists, restarts, and objects or subscribers that gave trouble."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lists = Counter(
            "isthmus_watch_lists_total",
            "Full lists that a reflector has completed.",
            ("resource",),
            registry=registry,
        )
        self.interruptions = Counter(
            "isthmus_watch_interruptions_total",
            "Lists and watches that failed or were cut, by cause; the planned end of a watch does not count.",
            ("resource", "cause"),
            registry=registry,
        )
        self.undecodable = Counter(
            "isthmus_watch_undecodable_total",
            "Objects and events that did not fit their type and were passed over.",
            ("resource",),
            registry=registry,
        )
        self.sink_errors = Counter(
            "isthmus_watch_sink_errors_total",
            "Changes whose handling raised; the watch went on.",
            ("resource",),
            registry=registry,
        )
