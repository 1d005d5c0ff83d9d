"""The condition Ready and the rest of a relay's status (PR-30, PR-31)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.modelserving import Condition
from isthmus.api.poolrelay import RelayStatus
from isthmus.poolrelay.plan.children import render
from isthmus.poolrelay.plan.model import Observed
from isthmus.poolrelay.plan.reconcile import plan
from isthmus.poolrelay.plan.status import is_available, status
from tests.support.relays import NOW, STAMP, export, observed, owner, pool, relay, settings, stored_child

LATER = NOW + 60


def deployed(**fields: Any) -> Observed:
    """A relay with every child, of which the Deployment's status says this."""
    told = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1} | fields
    bodies = render(relay(), pool(), "one", settings())
    children = {kind: stored_child(body) for kind, body in bodies.items()}
    body = bodies["Deployment"] | {"metadata": bodies["Deployment"]["metadata"] | {"generation": 1}}
    return observed(pool(), children={**children, "Deployment": stored_child(body, **told)})


def of(seen: Observed, *problems: str, now: float = NOW) -> RelayStatus:
    """The status after the plan for what is seen."""
    return status(seen, plan(seen, settings()), problems, now)


def ready(found: RelayStatus) -> tuple[str, str]:
    """Status and reason of Ready."""
    (condition,) = [each for each in found.conditions if each.type == "Ready"]
    return condition.status, condition.reason


@pytest.mark.covers("PR-30")
def test_published_relay_must_be_ready_once_its_deployment_is_available() -> None:
    assert ready(of(observed(pool()))) == ("False", "Progressing")
    assert ready(of(deployed())) == ("True", "Available")


@pytest.mark.covers("PR-30")
def test_deployment_that_could_not_be_looked_for_must_not_count_as_available() -> None:
    seen = observed(pool())
    found = status(seen, replace(plan(seen, settings()), children=()), [], NOW)
    assert ready(found) == ("False", "Progressing")


@pytest.mark.covers("PR-30")
@pytest.mark.parametrize(
    "fields",
    [
        {"observedGeneration": 0},
        {"updatedReplicas": 0},
        {"availableReplicas": 0},
        {"replicas": 2},
        {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
    ],
)
def test_deployment_that_is_not_as_its_spec_must_be_progressing(fields: dict[str, int]) -> None:
    assert ready(of(deployed(**fields))) == ("False", "Progressing")


@pytest.mark.covers("PR-30")
def test_deployment_that_changes_or_goes_must_be_progressing() -> None:
    seen = msgspec.structs.replace(deployed(), relay=relay(clusterId="two"))
    assert ready(of(seen)) == ("False", "Progressing")
    gone = stored_child(
        {"metadata": {"deletionTimestamp": STAMP}, "spec": {}},
        replicas=1,
        updatedReplicas=1,
        availableReplicas=1,
    )
    assert not is_available(gone, 1)


@pytest.mark.covers("PR-30")
def test_failed_write_of_a_child_must_be_told() -> None:
    found = of(deployed(), "deployments: forbidden", "services: too many")
    assert ready(found) == ("False", "ReconcileFailed")
    assert found.conditions[0].message == "deployments: forbidden; services: too many"


@pytest.mark.covers("PR-23", "PR-30", "T-72")
def test_withdrawn_relay_must_say_why_and_have_no_service() -> None:
    found = of(observed(None))
    assert ready(found) == ("False", "GraphNotFound")
    assert (found.service_name, found.observed_target) == ("", None)


@pytest.mark.covers("PR-17")
def test_status_must_tell_service_target_and_cluster_id() -> None:
    found = of(observed(pool()))
    assert (found.service_name, found.cluster_id) == ("east-pool-relay", "one")
    assert found.observed_target is not None
    assert (found.observed_target.uid, found.observed_target.generation) == ("east-uid", 1)


@pytest.mark.covers("PR-31", "T-86", "T-121")
def test_exports_and_warnings_must_not_move_ready() -> None:
    seen = msgspec.structs.replace(deployed(), pool=pool("east", "Frontend"))
    foreign = msgspec.structs.replace(
        seen, exports={"east-frontend": export("east-frontend", owner(uid="x"))}
    )
    assert ready(of(foreign)) == ("True", "Available")


@pytest.mark.covers("PR-31")
def test_transition_time_must_move_with_the_status_only() -> None:
    first = of(observed(pool()))
    assert first.conditions[0].last_transition_time == STAMP
    again = observed(None, of=msgspec.structs.replace(relay(), status=first))
    second = of(again, now=LATER)
    assert second.conditions[0].reason == "GraphNotFound"
    assert second.conditions[0].last_transition_time == STAMP
    up = msgspec.structs.replace(deployed(), relay=msgspec.structs.replace(relay(), status=second))
    assert of(up, now=LATER).conditions[0].last_transition_time != STAMP


@pytest.mark.covers("PR-31")
def test_condition_without_a_time_must_get_one() -> None:
    bare = Condition(type="Ready", status="False", reason="GraphNotFound")
    seen = observed(None, of=msgspec.structs.replace(relay(), status=RelayStatus(conditions=(bare,))))
    assert of(seen).conditions[0].last_transition_time == STAMP


@pytest.mark.covers("PR-31")
def test_status_that_did_not_change_must_be_equal() -> None:
    seen = deployed()
    first = of(seen)
    raw = msgspec.json.encode(first)
    stored = msgspec.json.decode(raw, type=RelayStatus)
    again = msgspec.structs.replace(seen, relay=msgspec.structs.replace(seen.relay, status=stored))
    assert of(again, now=LATER) == stored


@pytest.mark.covers("PR-31")
def test_conditions_of_others_must_stay() -> None:
    other = Condition(type="Checked", status="True", reason="ByHand")
    seen = observed(pool(), of=msgspec.structs.replace(relay(), status=RelayStatus(conditions=(other,))))
    assert other in of(seen).conditions
