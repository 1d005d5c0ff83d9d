"""The CRDs of the Multi-Cluster Services and About APIs, as clusters have them."""

from __future__ import annotations

import pytest

from isthmus.sandbox import multicluster


def test_definitions_must_have_the_published_names_and_versions() -> None:
    found = {raw["metadata"]["name"]: raw["spec"] for raw in multicluster.definitions()}
    assert {name: spec["scope"] for name, spec in found.items()} == {
        "serviceexports.multicluster.x-k8s.io": "Namespaced",
        "serviceimports.multicluster.x-k8s.io": "Namespaced",
        "clusterproperties.about.k8s.io": "Cluster",
    }
    for spec in found.values():
        assert [(each["name"], each["storage"]) for each in spec["versions"]] == [
            ("v1alpha1", False),
            ("v1beta1", True),
        ]


@pytest.mark.parametrize("version", multicluster.BOTH)
def test_one_version_alone_must_be_stored(version: str) -> None:
    for raw in multicluster.definitions([version]):
        assert [each["name"] for each in raw["spec"]["versions"] if each["storage"]] == [version]
