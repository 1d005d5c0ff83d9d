"""Fixtures of the tests on the real API server: a plain view of it, and an operator for a module's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.sandbox import Cluster
from tests.support.controlplane import make_user
from tests.support.operator import OperatorProcess
from tests.support.rawapi import RawApi
from tests.support.world import World


@pytest.fixture(scope="session")
def serving_api(admin_kubeconfig: Path) -> Iterator[RawApi]:
    """The shared API server, which has our CRDs."""
    api = RawApi(admin_kubeconfig)
    yield api
    api.close()


@pytest.fixture(scope="module")
def operator_user(cluster: Cluster) -> tuple[str, Path]:
    """The user of the module's operator, whom the audit log knows, and their kubeconfig."""
    return make_user(cluster, prefix="module")


@pytest.fixture(scope="module")
def module_operator(
    operator_user: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """One operator for all namespaces, for all tests of a module."""
    with OperatorProcess(operator_user[1], tmp_path_factory.mktemp("operator") / "log") as process:
        yield process


@pytest.fixture
async def operator(module_operator: OperatorProcess) -> OperatorProcess:
    """The module's operator, once it is ready."""
    await module_operator.ready()
    return module_operator


@pytest.fixture
def world(serving_api: RawApi, namespace: str) -> World:
    """A fresh namespace, seen by an administrator."""
    return World(serving_api, namespace)
