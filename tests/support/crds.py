"""Putting a CRD onto an API server for a test, and waiting until the server goes by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from isthmus.api.meta import Object, Raw, Resource
from tests.support.rawapi import RawApi


class Definition(Object, frozen=True, kw_only=True):
    """A CustomResourceDefinition; only its address matters here."""


CRDS: Resource[Any] = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    type=Definition,
    namespaced=False,
)


def wait_until(holds: Callable[[], bool], *, what: str, deadline_s: float = 15) -> None:
    """Poll until it holds; an AssertionError says what never came."""
    end = time.monotonic() + deadline_s
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {deadline_s} s"
        time.sleep(0.05)


def install(api: RawApi, definition: Raw, *, active: Callable[[], bool]) -> None:
    """Apply a CRD over whatever version of it is there, and wait until `active` sees the server go by it."""
    path = CRDS.path(name=definition["metadata"]["name"])
    answer = api.call(
        "PATCH",
        path,
        definition,
        content_type="application/apply-patch+yaml",
        fieldManager="isthmus-tests",
        force="true",
    )
    assert answer.code in (200, 201), answer.body

    def established() -> bool:
        conditions = api.call("GET", path).body.get("status", {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    wait_until(established, what="the CRD is established")
    wait_until(active, what="the API server goes by the CRD")
