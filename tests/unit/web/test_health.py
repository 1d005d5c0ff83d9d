from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter

from isthmus.web.health import Check, health_routes, metrics_routes
from isthmus.web.routes import Answer, Request, Routes


def well() -> str | None:
    return None


def stale() -> str | None:
    return "watch of pods is 200 s old\n(limit 180 s)"


def broken() -> str | None:
    raise ValueError("secret")


async def ask(
    routes: Routes, path: str, *query: tuple[str, str], accept: str = ""
) -> tuple[int, str, Answer]:
    answer = await routes.answer(Request(method="GET", path=path, query=query, headers=(("accept", accept),)))
    assert isinstance(answer.body, bytes)
    return answer.status, answer.body.decode(), answer


def routes(**ready: Check) -> Routes:
    return Routes(health_routes(live={"ping": well}, ready=ready))


async def test_health_must_be_ok_in_one_word() -> None:
    assert (await ask(routes(caches=well), "/readyz"))[:2] == (200, "ok\n")
    assert (await ask(routes(), "/healthz"))[:2] == (200, "ok\n")
    assert (await ask(routes(), "/readyz"))[:2] == (200, "ok\n")


async def test_a_failing_check_must_be_named_and_the_others_listed() -> None:
    status, body, answer = await ask(routes(caches=well, watches=stale), "/readyz")
    assert status == 503
    assert body.splitlines() == [
        "[+]caches ok",
        "[-]watches failed: watch of pods is 200 s old (limit 180 s)",
        "readyz check failed",
    ]
    assert answer.content_type.startswith("text/plain")
    assert (await ask(routes(watches=stale), "/healthz"))[0] == 200, "readiness is not liveness"


async def test_verbose_must_list_every_check() -> None:
    status, body, _ = await ask(routes(caches=well), "/readyz", ("verbose", ""))
    assert (status, body.splitlines()) == (200, ["[+]caches ok", "readyz check passed"])


async def test_exclude_must_leave_checks_out() -> None:
    checks = routes(caches=stale, watches=stale)
    assert (await ask(checks, "/readyz", ("exclude", "caches")))[0] == 503
    assert (await ask(checks, "/readyz", ("exclude", "caches"), ("exclude", "watches")))[0] == 200


@pytest.mark.parametrize(
    ("path", "status"), [("/readyz/caches", 200), ("/readyz/watches", 503), ("/readyz/x", 404)]
)
async def test_each_check_must_have_a_path(path: str, status: int) -> None:
    assert (await ask(routes(caches=well, watches=stale), path))[0] == status


async def test_a_check_that_raises_must_count_as_failed_without_details() -> None:
    status, body, _ = await ask(routes(caches=broken), "/readyz")
    assert status == 503
    assert "caches failed" in body
    assert "secret" not in body


async def test_metrics_must_be_prometheus_text_or_openmetrics() -> None:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc(3)
    metrics = Routes(metrics_routes(registry))
    _, body, answer = await ask(metrics, "/metrics")
    assert "things_total 3.0" in body
    assert answer.content_type.startswith("text/plain; version=")
    _, body, answer = await ask(metrics, "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert body.endswith("# EOF\n")
    assert answer.content_type.startswith("application/openmetrics-text")


async def test_metrics_must_be_narrowed_by_name() -> None:
    registry = CollectorRegistry()
    Counter("one", "One.", registry=registry).inc()
    Counter("two", "Two.", registry=registry).inc()
    _, body, _ = await ask(Routes(metrics_routes(registry)), "/metrics", ("name[]", "one_total"))
    assert "one_total" in body
    assert "two_total" not in body
