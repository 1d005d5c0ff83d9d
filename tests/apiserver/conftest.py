"""Fixtures of the tests that speak plain HTTP with the API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rawapi import RawApi


@pytest.fixture(scope="session")
def serving_api(admin_kubeconfig: Path) -> Iterator[RawApi]:
    """The shared API server, which has our CRDs."""
    api = RawApi(admin_kubeconfig)
    yield api
    api.close()
