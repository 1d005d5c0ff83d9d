import pytest
from prometheus_client import generate_latest

from isthmus.runtime.metrics import Metrics


def text(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_metrics_of_one_name_must_be_made_once() -> None:
    metrics = Metrics()
    first = metrics.counter("c_total", "c", ["a"])
    assert metrics.counter("c_total", "other words", ["a"]) is first
    assert metrics.gauge("g", "g") is metrics.gauge("g", "g")
    assert metrics.histogram("h", "h", buckets=(1, 2)) is metrics.histogram("h", "h")


def test_metrics_must_refuse_a_name_with_other_labels_or_type() -> None:
    metrics = Metrics()
    metrics.counter("c_total", "c", ["a"])
    with pytest.raises(ValueError, match="c_total"):
        metrics.counter("c_total", "c", ["b"])
    with pytest.raises(ValueError, match="c_total"):
        metrics.gauge("c_total", "c", ["a"])
    metrics.read_gauge("r", "r", lambda: 1.0)
    with pytest.raises(ValueError, match="another type"):
        metrics.read_counter("r", "r", lambda: 1.0)


def test_read_metrics_must_be_asked_at_each_scrape() -> None:
    metrics = Metrics()
    values = [1.0]
    metrics.read_gauge("size", "How many.", lambda: values[0], name="a")
    metrics.read_counter("seen_total", "Seen.", lambda: values[0] * 10, name="a")
    assert metrics.value("size", name="a") == 1
    values[0] = 2.0
    assert metrics.value("size", name="a") == 2
    assert metrics.value("seen_total", name="a") == 20
    assert "# TYPE seen_total counter" in text(metrics)


def test_read_metric_must_replace_that_of_the_same_labels() -> None:
    metrics = Metrics()
    metrics.read_gauge("size", "s", lambda: 1.0, name="a")
    metrics.read_gauge("size", "s", lambda: 5.0, name="a")
    metrics.read_gauge("size", "s", lambda: 7.0, name="b")
    assert (metrics.value("size", name="a"), metrics.value("size", name="b")) == (5, 7)


def test_forgotten_read_metric_must_vanish() -> None:
    metrics = Metrics()
    metrics.read_gauge("size", "s", lambda: 1.0, name="a")
    metrics.forget("size", name="a")
    metrics.forget("size", name="a")
    metrics.forget("never", name="a")
    assert metrics.value("size", name="a") is None
    assert "size" not in text(metrics)


def test_failing_read_must_never_hide_the_others() -> None:
    metrics = Metrics()

    def fail() -> float:
        raise RuntimeError

    metrics.read_gauge("size", "s", fail, name="a")
    metrics.read_gauge("size", "s", lambda: 3.0, name="b")
    assert metrics.value("size", name="a") is None
    assert metrics.value("size", name="b") == 3


def test_process_figures_must_be_there_only_when_asked_for() -> None:
    assert "process_resident_memory_bytes" in text(Metrics(process=True))
    assert "process_" not in text(Metrics())
