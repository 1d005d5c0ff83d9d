"""Times as Kubernetes writes them, to and from seconds since the epoch.

The planner, the decoders and everything that stamps an object call these. Pure: they read no clock
(isthmus.clock does) and keep nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time as Kubernetes writes it (metav1.Time or MicroTime).

    Raises ValueError where it is not one.
    """
    return datetime.fromisoformat(text).timestamp()


def format_time(seconds: float) -> str:
    """metav1.Time: RFC 3339 in UTC with whole seconds, for example `2026-11-30T22:02:10Z`."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """metav1.MicroTime: RFC 3339 in UTC with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
