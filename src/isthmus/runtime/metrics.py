"""One registry per process, made by the composition root and handed down: nothing here is global.

Counters and histograms are prometheus_client's. What changes often and is asked for rarely (the depth of a
queue, the size of a cache) is not counted along the way: its owner registers a function, which is called when
somebody scrapes. web/health.py serves `registry`. Names follow controller-runtime where the meaning is the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Read = Callable[[], float]
Labels = tuple[tuple[str, str], ...]
M = TypeVar("M", Counter, Gauge, Histogram)

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bucket bounds for durations that a person would notice."""


class _ReadWhenScraped(Collector):
    """Families whose samples are functions. A function that raises leaves out its own sample only."""

    def __init__(self) -> None:
        self.families: dict[str, tuple[type[CounterMetricFamily] | type[GaugeMetricFamily], str]] = {}
        self.reads: dict[str, dict[Labels, Read]] = {}

    def collect(self) -> Iterator[Metric]:
        for name, (kind, text) in self.families.items():
            reads = self.reads[name]
            family: CounterMetricFamily | GaugeMetricFamily | None = None
            for labels, read in list(reads.items()):
                if family is None:
                    family = kind(name, text, labels=[label for label, _ in labels])
                try:
                    family.add_metric([value for _, value in labels], read())
                except Exception:  # a scrape must show the rest
                    continue
            if family is not None:
                yield family


class Metrics:
    """Makes metrics and owns the registry they live in.

    `process`: add the process' own figures (CPU, memory, descriptors) and the garbage collector's, as every
    Prometheus client does; off in tests.
    """

    def __init__(self, *, process: bool = False) -> None:
        self.registry = CollectorRegistry()
        self._made: dict[str, Counter | Gauge | Histogram] = {}
        self._read = _ReadWhenScraped()
        self.registry.register(self._read)
        if process:
            from prometheus_client import GCCollector, ProcessCollector

            ProcessCollector(registry=self.registry)
            GCCollector(registry=self.registry)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """The counter of that name, made at the first call. Raises ValueError for another type or labels."""
        return self._once(Counter, name, labels, lambda: Counter(name, text, labels, registry=self.registry))

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """The gauge of that name, made at the first call. Raises ValueError for another type or labels."""
        return self._once(Gauge, name, labels, lambda: Gauge(name, text, labels, registry=self.registry))

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """The histogram of that name, made at the first call. Raises ValueError for another type or
        labels."""

        def make() -> Histogram:
            return Histogram(name, text, labels, buckets=tuple(buckets), registry=self.registry)

        return self._once(Histogram, name, labels, make)

    def read_counter(self, name: str, text: str, read: Read, /, **labels: str) -> None:
        """A counter (named `..._total`) whose value is asked of `read` at each scrape.

        A second call with the same labels replaces the first. Every call for one name gives the same labels.
        """
        self._reads(CounterMetricFamily, name, text)[tuple(labels.items())] = read

    def read_gauge(self, name: str, text: str, read: Read, /, **labels: str) -> None:
        """A gauge whose value is asked of `read` at each scrape; else as read_counter."""
        self._reads(GaugeMetricFamily, name, text)[tuple(labels.items())] = read

    def forget(self, name: str, /, **labels: str) -> None:
        """Stop showing what read_counter or read_gauge registered with these labels."""
        self._read.reads.get(name, {}).pop(tuple(labels.items()), None)

    def value(self, name: str, /, **labels: str) -> float | None:
        """The sample `name` (as exposed, with `_total` or `_count`) now; None where there is none."""
        return self.registry.get_sample_value(name, labels)

    def _once(self, kind: type[M], name: str, labels: Sequence[str], make: Callable[[], M]) -> M:
        metric = self._made.get(name)
        if metric is None:
            made = make()
            self._made[name] = made
            return made
        if not isinstance(metric, kind) or tuple(labels) != metric._labelnames:
            raise ValueError(f"metric {name} exists with another type or other labels")
        return metric

    def _reads(
        self, kind: type[CounterMetricFamily] | type[GaugeMetricFamily], name: str, text: str
    ) -> dict[Labels, Read]:
        if self._read.families.setdefault(name, (kind, text))[0] is not kind:
            raise ValueError(f"metric {name} exists with another type")
        return self._read.reads.setdefault(name, {})
