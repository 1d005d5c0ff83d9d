"""The relay's identity, health and options."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus import __version__
from isthmus.errors import UserError
from isthmus.relay.app import RelayOptions, identity, listeners
from isthmus.web.routes import Request
from tests.support.ports import free_port

LOOPBACK = ("127.0.0.1",)


def options(**changes: Any) -> RelayOptions:
    fields: dict[str, Any] = {
        "cluster_id": "one",
        "pool_namespace": "serving",
        "pool_name": "east",
        "system": (LOOPBACK, 8081),
    }
    return RelayOptions(**(fields | changes))


@pytest.mark.covers("PR-21")
def test_identity_must_name_the_cluster_the_pool_and_the_run() -> None:
    found = json.loads(identity(options(incarnation="first")))
    assert found == {
        "cluster_id": "one",
        "namespace": "serving",
        "name": "east",
        "kind": "DynamoGraphDeployment",
        "incarnation": "first",
        "protocol": 1,
        "version": __version__,
    }
    assert options().incarnation != options().incarnation


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"cluster_id": ""}, "--cluster-id"),
        ({"cluster_id": "one "}, "--cluster-id"),
        ({"pool_name": ""}, "--pool-name"),
        ({"pool_namespace": ""}, "--pool-namespace"),
        ({"system": None}, "--bind"),
        ({"bind": (LOOPBACK, 8081)}, "port 8081"),
    ],
)
def test_option_that_cannot_be_must_be_refused_by_its_flag(changes: dict[str, Any], flag: str) -> None:
    with pytest.raises(UserError, match=flag):
        options(**changes)


@pytest.mark.covers("PR-21")
async def test_probes_and_routers_must_each_find_their_routes() -> None:
    pool, system = listeners(options(bind=(LOOPBACK, free_port()), system=(LOOPBACK, free_port())))
    for listener, paths in ((pool, ["/v1/relay"]), (system, ["/live", "/health", "/healthz", "/readyz"])):
        for path in paths:
            answer = await listener._routes.answer(Request(method="GET", path=path))
            assert answer.status == 200, path
