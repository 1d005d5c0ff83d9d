"""What holds for every test: fixtures of the control plane, time limits, no blocking call on a loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster

pytest_plugins = ("tests.support.controlplane",)

APISERVER_TIMEOUT_S = 120
APISERVER = Path(__file__).parent / "apiserver"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests in apiserver/ have the marker, and those that have it get the time that real servers take."""
    for item in items:
        if item.path.is_relative_to(APISERVER):
            item.add_marker(pytest.mark.apiserver)
        if item.get_closest_marker("apiserver") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(APISERVER_TIMEOUT_S))


@pytest.fixture(autouse=True, scope="session")
def _no_blocking_calls() -> Iterator[None]:
    """Waiting for a socket, a lock, a child process or a sleep on an event loop in our code fails the test.

    Files may be read there: they are small and local (a kubeconfig, a token, a source line for a traceback).
    Test code itself may block.
    """
    detector = BlockBuster(scanned_modules=["isthmus"])
    for name, function in detector.functions.items():
        if not name.startswith(("os.", "io.", "builtins.")):
            function.activate()
    yield
    detector.deactivate()
