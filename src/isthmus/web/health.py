"""Liveness, readiness and metrics as routes: /healthz, /readyz, one path below them per check, and /metrics.

The composition root gives named checks, each a cheap function without I/O that says what is wrong or None.
Answers are text in the form that kube-apiserver and controller-runtime give, so that what people know from
`?verbose` holds; the status is 200 or 503. A check that raises counts as failed and is logged. Metrics are
Prometheus text, or OpenMetrics where the client asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from isthmus import logs
from isthmus.web.routes import TEXT, Answer, Handler, Request, Route, get

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_log = logs.get(__name__)

Check = Callable[[], str | None]
"""None where all is well, else one line that says what is wrong and names it."""


def health_routes(*, live: Mapping[str, Check], ready: Mapping[str, Check]) -> list[Route]:
    """/healthz for liveness and /readyz for readiness, each with a path per check below it.

    Both answer `ok`, or 503 with every check; with `?verbose` they always list the checks, and
    `?exclude=NAME` leaves one out (repeatable).
    """
    routes: list[Route] = []
    for path, checks in (("/healthz", live), ("/readyz", ready)):
        routes.append(get(path, _summary(path.removeprefix("/"), checks)))
        routes.extend(get(f"{path}/{name}", _summary(name, {name: check})) for name, check in checks.items())
    return routes


def metrics_routes(registry: CollectorRegistry) -> list[Route]:
    """/metrics with what `registry` collects; `?name[]=` narrows it to named series (repeatable)."""
    from prometheus_client.exposition import choose_encoder

    async def metrics(request: Request) -> Answer:
        encode, content_type = choose_encoder(request.header("accept"))
        names = [value for key, value in request.query if key == "name[]"]
        chosen = registry.restricted_registry(names) if names else registry
        return Answer(body=encode(chosen), content_type=content_type)

    return [get("/metrics", metrics)]


def _summary(title: str, checks: Mapping[str, Check]) -> Handler:
    async def answer(request: Request) -> Answer:
        excluded = {value for key, value in request.query if key == "exclude"}
        verbose = any(key == "verbose" for key, _ in request.query)
        failures = {name: _problem(name, check) for name, check in checks.items() if name not in excluded}
        failed = any(problem is not None for problem in failures.values())
        if not failed and not verbose:
            return Answer(body=b"ok\n", content_type=TEXT)
        lines = [_line(name, problem) for name, problem in failures.items()]
        lines.append(f"{title} check {'failed' if failed else 'passed'}")
        body = "".join(f"{line}\n" for line in lines).encode()
        return Answer(status=503 if failed else 200, body=body, content_type=TEXT)

    return answer


def _problem(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception:
        _log.exception("a health check failed to run", check=name)
        return "the check itself failed; the log says why"


def _line(name: str, problem: str | None) -> str:
    return f"[+]{name} ok" if problem is None else f"[-]{name} failed: {' '.join(problem.split())}"
