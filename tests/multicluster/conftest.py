"""Pools over real implementations of the Multi-Cluster Services API: one sandbox per implementation.

`clusters` runs a test once over each; a test of one alone says `@only(CILIUM)`. pytest keeps the tests of one
implementation together, so that never more than one runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusterset import CILIUM, KARMADA, ClusterSet, start_cilium, start_karmada

HERE = Path(__file__).parent
TIMEOUT_S = 180


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They have real servers, and wait for what others' controllers do."""
    for item in items:
        if item.path.is_relative_to(HERE) and "clusters" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.apiserver)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session", params=[CILIUM, KARMADA])
def clusters(request: pytest.FixtureRequest) -> Iterator[ClusterSet]:
    """The clusters EAST and WEST, joined; discovery service and operators run."""
    with (start_cilium if request.param == CILIUM else start_karmada)() as found:
        yield found


@pytest.fixture
def namespace(clusters: ClusterSet) -> str:
    """One of the test's own in all of them."""
    return clusters.namespace()
