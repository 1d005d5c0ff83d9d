from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.dynamo.children import DEPLOYMENTS, SERVICES
from isthmus.api.meta import Raw
from isthmus.graph.plan.model import ChildName, GraphSettings, Observed, RepairChild
from isthmus.graph.plan.reconcile import plan, sort_children
from tests.support.graphs import (
    act,
    alpha,
    beta,
    bodies,
    child,
    component,
    example,
    look,
    made,
    owned,
    read,
    steps,
    then,
)

ENGINE = ChildName("Deployment", "chat-engine")
SERVICE = ChildName("Service", "chat-engine")


@pytest.mark.covers("GD-39", "G-2")
@pytest.mark.parametrize(
    "manifest", [beta(), alpha(), example("disaggregated"), example("etcd"), beta("llm.v1")]
)
def test_second_look_must_have_nothing_to_do(manifest: Raw) -> None:
    assert owned(made(manifest))


@pytest.mark.covers("GD-38", "G-3")
def test_renamed_component_must_leave_nothing_behind() -> None:
    seen = made(beta())
    renamed = beta("chat", component("Frontend", "frontend"), component("Motor", "worker"))
    planned = then(seen, renamed)
    assert steps(planned) == [
        "Create Service chat-motor",
        "Create Deployment chat-motor",
        "Delete Service chat-engine",
        "Delete Deployment chat-engine",
    ]
    after = act(replace(seen, graph=read(renamed)), planned)
    assert plan(after, GraphSettings()).actions == ()


@pytest.mark.covers("GD-38")
def test_graph_without_components_must_lose_its_deployments_and_keep_its_rights() -> None:
    planned = then(made(beta()), beta() | {"spec": {}})
    assert steps(planned) == [
        "Delete Service chat-frontend",
        "Delete Service chat-engine",
        "Delete Deployment chat-frontend",
        "Delete Deployment chat-engine",
    ]


def test_graph_without_components_must_make_nothing() -> None:
    assert look(beta() | {"spec": {}}).actions == ()


def test_component_that_changes_case_must_keep_its_deployment() -> None:
    planned = then(made(beta("chat", component("Engine"))), beta("chat", component("ENGINE")))
    assert steps(planned) == ["Repair Service chat-engine", "Repair Deployment chat-engine"]
    (repair,) = (each for each in planned.actions if each.name == ENGINE)
    assert isinstance(repair, RepairChild)
    assert repair.body["spec"]["selector"] == {"matchLabels": {"nvidia.com/selector": "chat-engine"}}


@pytest.mark.covers("GD-17", "G-4")
@pytest.mark.parametrize("owner", [None, "another-uid"])
def test_object_of_another_must_never_be_touched(owner: str | None) -> None:
    body = bodies(look(beta()))["Deployment chat-engine"]
    references = [{**body["metadata"]["ownerReferences"][0], "uid": owner}] if owner else []
    foreign = child(body, ownerReferences=references)
    ours, others = sort_children([(ENGINE, foreign)], "graph-uid")
    assert ours == {}
    seen = made(beta())
    children = {name: each for name, each in seen.children.items() if name != ENGINE}
    planned = plan(replace(seen, children=children, strangers=others), GraphSettings())
    assert planned.actions == ()
    assert len(planned.conflicts) == 1
    whose = "controlled by DynamoGraphDeployment chat" if owner else "controlled by nobody"
    assert planned.conflicts[0].startswith(f"Deployment chat-engine is {whose}")


@pytest.mark.covers("GD-17")
def test_reference_that_does_not_control_must_not_make_it_ours() -> None:
    body = bodies(look(beta()))["Deployment chat-engine"]
    reference = {**body["metadata"]["ownerReferences"][0], "controller": False}
    ours, others = sort_children([(ENGINE, child(body, ownerReferences=[reference]))], "graph-uid")
    assert (ours, list(others)) == ({}, [ENGINE])


def changed(seen: Observed, name: ChildName, **metadata: Any) -> Observed:
    old = seen.children[name]
    return replace(
        seen, children={**seen.children, name: replace(old, metadata=replace(old.metadata, **metadata))}
    )


def edited(seen: Observed, name: ChildName, change: Raw) -> Observed:
    old = seen.children[name]
    assert old.spec is not None
    spec = msgspec.Raw(msgspec.json.encode({**msgspec.json.decode(old.spec), **change}))
    return replace(seen, children={**seen.children, name: replace(old, spec=spec)})


@pytest.mark.covers("GD-39")
@pytest.mark.parametrize(
    ("name", "change", "repaired"),
    [
        (ENGINE, {"replicas": 5}, True),
        (ENGINE, {"template": {}}, True),
        (ENGINE, {"strategy": {"type": "Recreate"}, "progressDeadlineSeconds": 600}, False),
        (SERVICE, {"selector": {}}, True),
        (SERVICE, {"clusterIP": "10.0.0.1"}, False),
    ],
)
def test_only_what_is_ours_must_be_repaired(name: ChildName, change: Raw, repaired: bool) -> None:
    planned = plan(edited(made(beta()), name, change), GraphSettings())
    assert steps(planned) == ([f"Repair {name}"] if repaired else [])


@pytest.mark.covers("GD-39", "GD-17")
def test_repair_must_carry_what_was_read_and_take_out_what_is_left_over() -> None:
    seen = made(beta("chat", component("Engine", "worker", pod={"nodeSelector": {"disk": "ssd"}})))
    (repair,) = then(seen, beta("chat", component("Engine", "worker"))).actions
    assert isinstance(repair, RepairChild)
    assert repair.body["metadata"]["uid"] == seen.children[ENGINE].metadata.uid
    assert repair.body["metadata"]["resourceVersion"] == seen.children[ENGINE].metadata.resource_version
    assert repair.body["spec"]["template"]["spec"]["nodeSelector"] is None


@pytest.mark.parametrize("metadata", [{"labels": {}}, {"annotations": {}}])
def test_child_that_lost_its_label_or_hash_must_get_it_back(metadata: Raw) -> None:
    body = bodies(look(beta()))["Deployment chat-engine"]
    seen = made(beta())
    bare = child(body, **metadata)
    planned = plan(replace(seen, children={**seen.children, ENGINE: bare}), GraphSettings())
    assert steps(planned) == ["Repair Deployment chat-engine"]


def test_child_that_lost_all_of_its_spec_must_get_it_back() -> None:
    seen = made(beta())
    bare = replace(seen.children[ENGINE], spec=None)
    (repair,) = plan(replace(seen, children={**seen.children, ENGINE: bare}), GraphSettings()).actions
    assert isinstance(repair, RepairChild)
    assert repair.body["spec"] == bodies(look(beta()))["Deployment chat-engine"]["spec"]


def test_child_on_its_way_out_must_be_waited_for() -> None:
    seen = changed(made(beta()), ENGINE, deletion_timestamp="2026-01-01T00:00:00Z")
    assert plan(edited(seen, ENGINE, {"replicas": 9}), GraphSettings()).actions == ()
    assert plan(seen, GraphSettings()).actions == ()
    assert then(seen, beta("chat", component("Frontend", "frontend"))).actions == (
        *(
            each
            for each in then(seen, beta("chat", component("Frontend", "frontend"))).actions
            if each.name == SERVICE
        ),
    )


@pytest.mark.covers("G-2")
def test_repair_that_changed_nothing_must_not_be_tried_again() -> None:
    seen = edited(made(beta()), ENGINE, {"replicas": 5})
    meta = seen.children[ENGINE].metadata
    futile = frozenset({(meta.uid, meta.resource_version)})
    assert plan(replace(seen, futile=futile), GraphSettings()).actions == ()


@pytest.mark.covers("GD-40", "G-13")
def test_component_that_is_not_run_must_keep_what_it_has_and_others_go_on() -> None:
    several = component("Engine", "worker", multinode={"nodeCount": 2}, replicas=7)
    manifest = beta("chat", component("Frontend", "frontend"), several)
    assert not any("engine" in step for step in steps(look(manifest)))
    assert "Create Deployment chat-frontend" in steps(look(manifest))
    assert then(made(beta()), manifest).actions == ()


@pytest.mark.covers("G-5")
def test_graph_that_is_no_good_must_keep_what_it_has() -> None:
    bad = beta("chat", component("Other", "worker", replicas=-1))
    planned = then(made(beta()), bad)
    assert planned.actions == ()
    assert planned.model.problems


@pytest.mark.covers("G-11")
def test_objects_of_two_graphs_must_not_meet_unless_names_do() -> None:
    one, other = bodies(look(beta("a"))), bodies(look(beta("a-b")))
    assert not one.keys() & other.keys()
    assert (DEPLOYMENTS.kind, SERVICES.kind) == ("Deployment", "Service")
