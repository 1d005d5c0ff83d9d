"""What a relay reads of a graph, in both versions, and of a ModelServing (PR-25 to PR-27, PR-38)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from isthmus.api.meta import Raw
from isthmus.api.poolgraph import POOL_GRAPHS, PoolGraph
from isthmus.poolrelay.plan.mapping import graph_matters
from isthmus.poolrelay.plan.model import Frontend, Pool
from isthmus.poolrelay.plan.pool import graph_pool


def graph(spec: Raw, *, name: str = "east", version: str = "1", **metadata: Any) -> PoolGraph:
    """A graph as the API server gives it."""
    raw_metadata = {
        "name": name,
        "namespace": "serving",
        "uid": "u",
        "resourceVersion": version,
        "generation": 1,
    }
    raw_graph = {"metadata": raw_metadata | metadata, "spec": spec, "status": {"state": "failed"}}
    return msgspec.json.decode(msgspec.json.encode(raw_graph), type=PoolGraph)


def beta(*components: tuple[str, str], **more: Any) -> Raw:
    """A v1beta1 spec of (name, type)."""
    return {"components": [{"name": name, "type": kind, "replicas": 0, **more} for name, kind in components]}


def alpha(*components: tuple[str, str], **more: Any) -> Raw:
    """The same as a v1alpha1 spec."""

    def entry(kind: str) -> Raw:
        if kind in ("prefill", "decode"):
            return {"componentType": "worker", "subComponentType": kind, **more}
        return {"componentType": kind, **more}

    return {"services": {name: entry(kind) for name, kind in components}}


def pool(spec: Raw, backend: str = "kubernetes", **metadata: Any) -> Pool:
    return graph_pool(graph(spec, **metadata), backend)


@pytest.mark.parametrize("form", [beta, alpha])
@pytest.mark.covers("PR-38", "T-94", "R36")
def test_both_versions_must_read_the_same(form: Any) -> None:
    found = pool(form(("Decode", "decode"), ("Frontend", "frontend"), ("Prefill", "prefill")))
    assert found.frontends == (Frontend("Frontend", "east-frontend"),)
    assert found.has_workers
    assert found.namespaces == ("serving-east",)
    assert (found.kind, found.api_version) == ("DynamoGraphDeployment", "nvidia.com/v1beta1")
    assert (found.uid, found.resource_version, found.generation) == ("u", "1", 1)


@pytest.mark.covers("PR-38", "T-2")
def test_service_must_be_named_in_lower_case_with_dashes() -> None:
    found = pool(alpha(("Api.v2", "frontend"), ("Frontend", "frontend")), name="llm.v1")
    assert [each.service for each in found.frontends] == ["llm-v1-api-v2", "llm-v1-frontend"]
    assert found.namespaces == ("serving-llm-v1",)


@pytest.mark.covers("PR-38", "T-92", "T-93")
def test_frontend_must_be_told_by_its_type_and_not_its_name() -> None:
    found = pool(beta(("Frontend", "worker"), ("Gateway", "frontend"), ("F", "Frontend")))
    assert [each.component for each in found.frontends] == ["Gateway"]


@pytest.mark.parametrize(
    ("kind", "works"),
    [
        ("worker", True),
        pytest.param("prefill", True, marks=pytest.mark.covers("T-81")),
        pytest.param("decode", True, marks=pytest.mark.covers("T-81")),
        pytest.param("planner", False, marks=pytest.mark.covers("T-82")),
        ("frontend", False),
        ("epp", False),
        ("Worker", False),
        ("", False),
    ],
)
@pytest.mark.covers("PR-26")
def test_worker_must_be_of_a_type_that_serves(kind: str, works: bool) -> None:
    assert pool(beta(("X", kind))).has_workers is works
    assert pool(alpha(("X", kind))).has_workers is works


@pytest.mark.covers("PR-27", "T-78")
def test_any_component_in_the_global_namespace_must_share_it() -> None:
    both = beta(("Frontend", "frontend"), ("Engine", "worker"))
    assert not pool(both).shared
    both["components"][1]["globalDynamoNamespace"] = True
    assert pool(both).shared
    assert pool(alpha(("Engine", "worker"), globalDynamoNamespace=True)).shared


def annotated(**annotations: str) -> Raw:
    """Metadata with discovery annotations."""
    keys = {"backend": "nvidia.com/dynamo-discovery-backend", "mode": "nvidia.com/dynamo-kube-discovery-mode"}
    return {"annotations": {keys[name]: value for name, value in annotations.items()}}


@pytest.mark.parametrize(
    ("annotations", "backend", "supported"),
    [
        ({}, "kubernetes", True),
        pytest.param({}, "etcd", False, marks=pytest.mark.covers("T-75")),
        pytest.param({"backend": "etcd"}, "kubernetes", False, marks=pytest.mark.covers("T-74")),
        pytest.param({"backend": "kubernetes"}, "etcd", True, marks=pytest.mark.covers("T-76")),
        pytest.param({"mode": "container"}, "kubernetes", False, marks=pytest.mark.covers("T-77")),
        ({"mode": "pod"}, "kubernetes", True),
        ({"backend": "consul"}, "kubernetes", False),
        ({"mode": "node"}, "kubernetes", False),
    ],
)
@pytest.mark.covers("PR-25")
def test_discovery_must_be_kubernetes_by_pods(
    annotations: dict[str, str], backend: str, supported: bool
) -> None:
    found = pool(beta(("Engine", "worker")), backend, **annotated(**annotations))
    assert (found.unsupported == "") is supported


@pytest.mark.parametrize("spec", [{"components": {}}, {"services": {"A": 7}}, {"components": [{"name": 7}]}])
def test_spec_that_cannot_be_read_must_be_said_and_hide_no_other_object(spec: Raw) -> None:
    assert "cannot be read" in pool(spec).unsupported
    assert pool({}).frontends == ()


@pytest.mark.covers("PR-24", "T-73")
def test_graph_on_its_way_out_must_be_known_as_such() -> None:
    assert pool({}, deletionTimestamp="2026-09-21T14:13:20Z").terminating


@pytest.mark.covers("GD-48", "PR-34", "PR-77", "PR-98", "T-134")
def test_only_what_a_relay_reads_of_a_graph_must_matter() -> None:
    old = graph(beta(("Engine", "worker")))
    assert not graph_matters(old, graph(beta(("Engine", "worker")), version="2", labels={"a": "b"}))
    assert not graph_matters(old, graph({}, version="2", annotations={"else": "x"}))
    assert graph_matters(old, graph({}, version="2", generation=2))
    assert graph_matters(old, graph({}, version="2", deletionTimestamp="2026-09-21T14:13:20Z"))
    assert graph_matters(old, graph({}, version="2", uid="other"))
    assert graph_matters(old, graph({}, version="2", **annotated(backend="etcd")))
    assert graph_matters(None, old)
    assert graph_matters(old, None)


@pytest.mark.covers("PR-80")
def test_pool_must_be_named_in_the_version_in_which_it_was_read() -> None:
    read = msgspec.structs.replace(graph({}), api_version="nvidia.com/v1alpha1")
    assert graph_pool(read, "kubernetes").api_version == "nvidia.com/v1alpha1"


@pytest.mark.covers("R36")
def test_newer_version_must_be_read_where_both_are_served() -> None:
    assert [each.version for each in POOL_GRAPHS] == ["v1beta1", "v1alpha1"]
