"""The gate multiClusterExport: which version of exports is served, or why nothing starts (section 2)."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.meta import Resource
from isthmus.errors import UserError
from isthmus.kube.errors import Forbidden, ServerError, Unreachable
from isthmus.poolrelay.gate import export_version


class Discovery:
    """Serves exports in these versions; raises `error` instead, if there is one."""

    def __init__(self, *versions: str, error: Exception | None = None) -> None:
        self.versions = versions
        self.error = error
        self.asked: list[str] = []

    async def served(self, resource: Resource[Any]) -> bool:
        self.asked.append(resource.api_version)
        assert resource.plural == "serviceexports"
        if self.error is not None:
            raise self.error
        return resource.version in self.versions


@pytest.mark.covers("PR-4", "PR-7", "T-63")
async def test_nothing_must_be_asked_while_no_implementation_is_set() -> None:
    cluster = Discovery("v1alpha1")
    assert await export_version(cluster, "") == ""
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("served", "version"),
    [
        pytest.param(["v1alpha1"], "v1alpha1", marks=pytest.mark.covers("T-50")),
        pytest.param(["v1beta1"], "v1beta1", marks=pytest.mark.covers("T-67")),
        pytest.param(["v1beta1", "v1alpha1"], "v1alpha1", id="both"),
    ],
)
@pytest.mark.covers("PR-7", "PR-8", "PR-113", "R41")
@pytest.mark.parametrize("implementation", ["mcs", "karmada"])
async def test_gate_must_be_the_first_version_that_is_served(
    implementation: Any, served: list[str], version: str
) -> None:
    assert await export_version(Discovery(*served), implementation) == version


@pytest.mark.covers("PR-10", "PR-12", "T-64", "T-65", "R41")
async def test_api_that_is_not_served_must_end_the_start_naming_setting_and_api() -> None:
    with pytest.raises(UserError) as caught:
        await export_version(Discovery(), "mcs")
    assert "multiCluster.mcsImplementation is mcs" in str(caught.value)
    assert "serviceexports.multicluster.x-k8s.io" in str(caught.value)
    assert "multicluster.x-k8s.io/v1alpha1 or multicluster.x-k8s.io/v1beta1" in str(caught.value)
    assert caught.value.hint


@pytest.mark.covers("T-67")
async def test_candidates_must_be_a_list_that_can_be_shorter() -> None:
    with pytest.raises(UserError, match=r"at multicluster\.x-k8s\.io/v1alpha1$"):
        await export_version(Discovery("v1beta1"), "mcs", ["v1alpha1"])


@pytest.mark.covers("PR-11", "PR-12", "T-49", "T-66", "R41")
@pytest.mark.parametrize("error", [ServerError(503, message="broken"), Forbidden(403), Unreachable("gone")])
async def test_discovery_that_fails_must_end_the_start_and_not_count_as_absent(error: Exception) -> None:
    with pytest.raises(UserError, match=r"multiCluster\.mcsImplementation is mcs, and it cannot be seen"):
        await export_version(Discovery(error=error), "mcs")
