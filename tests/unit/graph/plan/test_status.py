from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.decode import Unreadable
from isthmus.api.dynamo.children import ChildStatus
from isthmus.api.dynamo.graphs import GraphStatus
from isthmus.api.modelserving import Condition
from isthmus.graph.plan.model import ChildName, GraphSettings, Observed
from isthmus.graph.plan.reconcile import plan
from isthmus.graph.plan.status import status
from isthmus.graph.report import patch
from tests.support.graphs import alpha, beta, component, counts, made, read, running

NOW = 1_000_000.0


def stands(seen: Observed, *errors: str, now: float = NOW) -> GraphStatus:
    return status(seen, plan(seen, GraphSettings()), errors, now)


def brief(found: GraphStatus) -> tuple[str, str, str]:
    (condition,) = found.conditions
    return found.state, condition.status, condition.reason


@pytest.mark.covers("GD-42", "GD-43", "GD-44", "G-12")
def test_status_must_go_from_pending_to_successful() -> None:
    new = Observed(graph=read(beta()))
    assert new.graph.status.state == ""
    found = stands(new)
    assert brief(found) == ("pending", "False", "some_resources_are_not_ready")
    assert "chat-engine: is not there yet" in found.conditions[0].message
    found = stands(made(beta()))
    assert brief(found) == ("pending", "False", "updating")
    found = stands(running(made(beta())))
    assert brief(found) == ("successful", "True", "all_resources_are_ready")
    assert found.observed_generation == 1
    assert found.components["Engine"].component_names == ("chat-engine",)
    assert found.components["Engine"].component_kind == "Deployment"
    assert found.components["Engine"].available_replicas == 1


@pytest.mark.covers("GD-44", "GD-47", "G-6", "G-12")
@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (counts(2), ""),
        (counts(2, observed_generation=0), "updating"),
        (counts(2, available_replicas=1), "pods_not_ready"),
        (counts(2, updated_replicas=1), "updating"),
        (counts(2, replicas=3), "updating"),
        (counts(3), "updating"),
        (counts(1), "updating"),
        (ChildStatus(), "updating"),
    ],
)
def test_deployment_must_be_ready_only_when_all_of_it_is(engine: ChildStatus, reason: str) -> None:
    seen = running(made(beta("chat", component("Engine", "worker", replicas=2))), chat_engine=engine)
    wanted = ("pending", "False", reason) if reason else ("successful", "True", "all_resources_are_ready")
    assert brief(stands(seen)) == wanted


@pytest.mark.covers("GD-8", "GD-47", "G-6")
def test_no_replicas_must_be_ready() -> None:
    seen = running(made(beta("chat", component("Engine", "worker", replicas=0))))
    assert brief(stands(seen))[0] == "successful"
    assert plan(seen, GraphSettings()).analysis.workers == ("Engine",)


@pytest.mark.covers("GD-44")
def test_several_causes_must_be_mixed_and_each_be_told() -> None:
    seen = running(
        made(beta()),
        chat_engine=counts(1, available_replicas=0),
        chat_frontend=counts(1, observed_generation=0),
    )
    found = stands(seen)
    assert brief(found)[2] == "mixed_not_ready_reasons"
    assert "chat-engine: 0 of 1 pods are available" in found.conditions[0].message
    assert "chat-frontend: " in found.conditions[0].message


@pytest.mark.covers("GD-46", "G-4", "G-5", "G-12", "G-13")
def test_what_cannot_be_must_be_failed_with_its_reason() -> None:
    several = beta("chat", component("Frontend", "frontend"), component("E", "worker", multinode={}))
    assert brief(stands(running(made(several)))) == ("failed", "False", "no_multinode_orchestrator")
    both = beta("chat", component("E", modelRef={}), component("F", multinode={}))
    assert brief(stands(running(made(both))))[2] == "no_multinode_orchestrator"
    refused = beta("chat", component("E", modelRef={}))
    assert brief(stands(running(made(refused)))) == ("failed", "False", "unsupported_field")
    seen = running(made(beta()))
    assert brief(stands(seen, "quota exceeded")) == ("failed", "False", "failed_to_reconcile_resources")
    taken = replace(seen, strangers={ChildName("Service", "chat-engine"): "controlled by nobody"})
    assert brief(stands(taken, "quota exceeded")) == ("failed", "False", "OwnershipConflict")
    bad = read(beta("chat", component("E", replicas=-1)), generation=4)
    found = stands(replace(seen, graph=bad))
    assert brief(found) == ("failed", "False", "invalid_spec")
    assert "spec.components[0].replicas" in found.conditions[0].message
    assert found.observed_generation == 4


@pytest.mark.covers("GD-46")
def test_graph_that_is_no_good_must_keep_the_counts_that_it_had() -> None:
    before = stands(running(made(beta())))
    bad = replace(read(beta("chat", component("E", replicas=-1))), status=before)
    assert stands(Observed(graph=bad)).components == before.components


def test_deployment_on_its_way_out_must_not_be_ready() -> None:
    seen = running(made(beta()))
    name = ChildName("Deployment", "chat-engine")
    meta = replace(seen.children[name].metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    gone = replace(seen, children={**seen.children, name: replace(seen.children[name], metadata=meta)})
    assert brief(stands(gone)) == ("pending", "False", "some_resources_are_not_ready")


@pytest.mark.covers("GD-42")
def test_graph_in_the_older_form_must_have_its_status_in_both_words() -> None:
    found = stands(running(made(alpha())))
    assert found.services == found.components
    assert stands(running(made(beta()))).services == {}


@pytest.mark.covers("GD-49")
def test_time_of_the_condition_must_move_only_with_its_status() -> None:
    seen = made(beta())
    first = stands(seen)
    stored = replace(seen, graph=replace(seen.graph, status=first))
    assert stands(stored, now=NOW + 60) == first
    (timeless,) = (replace(each, last_transition_time="") for each in first.conditions)
    bare = replace(seen, graph=replace(seen.graph, status=replace(first, conditions=(timeless,))))
    assert stands(bare) == first
    later = stands(running(stored), now=NOW + 60)
    assert later.conditions[0].last_transition_time != first.conditions[0].last_transition_time


def test_conditions_of_others_must_stay() -> None:
    other = Condition(type="Other", status="True")
    seen = made(beta())
    stored = replace(seen, graph=replace(seen.graph, status=GraphStatus(conditions=(other,))))
    assert stands(stored).conditions[1:] == (other,)


@pytest.mark.covers("GD-42", "GD-49")
def test_patch_must_take_out_what_is_gone_and_name_the_graph() -> None:
    before = stands(running(made(alpha())))
    graph = replace(read(beta("chat", component("Motor"))), status=before)
    after = stands(running(made(beta("chat", component("Motor")))))
    raw = msgspec.json.decode(patch(graph, after))
    assert raw["metadata"] == {"uid": "graph-uid"}
    assert raw["status"]["services"] is None
    assert raw["status"]["components"]["Engine"] is None
    assert raw["status"]["components"]["Motor"]["replicas"] == 1


@pytest.mark.covers("GD-46")
def test_graph_whose_spec_cannot_be_read_must_be_failed_and_name_the_field() -> None:
    broken = replace(read(beta()), spec=Unreadable(reason="Expected `array` - at `spec.components`"))
    found = stands(Observed(graph=broken))
    assert found.state == "failed"
    assert "spec.components" in found.conditions[0].message
    assert found.services == {}
