from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
import pytest

from isthmus.api.decode import Unreadable
from isthmus.api.meta import Raw
from isthmus.api.modelserving import (
    MODEL_SERVINGS,
    Condition,
    ModelServing,
    RollingUpdateConfiguration,
    RolloutStrategy,
    Spec,
    Status,
    Template,
)
from tests.support.manifests import model_serving, pod_template, role


class Page(msgspec.Struct):
    items: list[ModelServing]


def decode(manifest: Raw) -> ModelServing:
    return msgspec.json.decode(json.dumps(manifest).encode(), type=ModelServing)


def spec_of(manifest: Raw) -> Spec:
    spec = decode(manifest).spec
    assert isinstance(spec, Spec), spec
    return spec


@pytest.mark.covers("MS-5")
def test_absent_fields_must_have_the_defaults_of_the_crd() -> None:
    spec = spec_of(model_serving())
    assert (spec.replicas, spec.scheduler_name, spec.recovery_policy) == (1, "volcano", "RoleRecreate")
    assert spec.rollout_strategy is None
    assert spec.template.restart_grace_period_seconds == 0
    assert spec.template.roles[0].replicas == 1


@pytest.mark.covers("MS-5")
def test_every_field_must_be_read() -> None:
    manifest = model_serving(
        roles=[
            role(
                replicas=2,
                workerReplicas=3,
                workerTemplate=pod_template(),
                maxUnavailable="50%",
                partition=1,
            )
        ],
        template={
            "restartGracePeriodSeconds": 60,
            "gangPolicy": {"minRoleReplicas": {"prefill": 1}},
            "networkTopology": {"groupPolicy": {"mode": "soft", "highestTierAllowed": 2}, "rolePolicy": {}},
        },
        replicas=4,
        schedulerName="other",
        plugins=[{"name": "p", "config": {"a": 1}, "scope": {"roles": ["prefill"], "target": "Entry"}}],
        rolloutStrategy={
            "type": "RoleRollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": "10%", "partition": 2},
        },
        recoveryPolicy="None",
    )
    spec = spec_of(manifest)
    assert spec.rollout_strategy == RolloutStrategy(
        type="RoleRollingUpdate",
        rolling_update_configuration=RollingUpdateConfiguration(max_unavailable="10%", partition=2),
    )
    assert (spec.replicas, spec.scheduler_name, spec.recovery_policy) == (4, "other", "None")
    (plugin,) = spec.plugins
    assert plugin.config is not None
    assert plugin.scope is not None
    assert json.loads(bytes(plugin.config)) == {"a": 1}
    assert (plugin.scope.roles, plugin.scope.target) == (("prefill",), "Entry")
    template = spec.template
    assert template.restart_grace_period_seconds == 60
    assert template.gang_policy is not None
    assert template.gang_policy.min_role_replicas == {"prefill": 1}
    assert template.network_topology is not None
    assert template.network_topology.group_policy is not None
    assert template.network_topology.group_policy.highest_tier_allowed == 2
    assert template.network_topology.role_policy is not None
    assert template.network_topology.role_policy.mode == "hard"
    (only,) = template.roles
    assert (only.replicas, only.worker_replicas, only.max_unavailable, only.partition) == (2, 3, "50%", 1)
    assert only.pods == 4


def test_pod_templates_must_be_kept_byte_for_byte() -> None:
    template = '{"spec": {"containers":[{"name":"ü", "x-unknown" : 1.50}]}}'
    line = (
        '{"metadata":{"name":"a"},"spec":{"template":{"roles":[{"name":"r","entryTemplate":'
        f'{template},"workerTemplate":{template}}}]}}}}}}'
    )
    spec = msgspec.json.decode(line.encode(), type=ModelServing).spec
    assert isinstance(spec, Spec)
    worker = spec.template.roles[0].worker_template
    assert worker is not None
    assert bytes(spec.template.roles[0].entry_template).decode() == template
    assert bytes(worker).decode() == template


def test_decoded_object_must_not_keep_the_list_page_alive() -> None:
    manifests = [model_serving(plugins=[{"name": "p", "config": {"a": 1}}], roles=[role(workerTemplate={})])]
    page = json.dumps({"items": manifests * 3}).encode()
    before = sys.getrefcount(page)
    decoded = msgspec.json.decode(page, type=Page)
    assert sys.getrefcount(page) == before
    assert len(decoded.items) == 3


def test_equal_specs_must_compare_equal_across_decodes() -> None:
    assert decode(model_serving()).spec == decode(model_serving()).spec
    assert decode(model_serving()).spec != decode(model_serving(replicas=2)).spec


WRONG: list[tuple[str, Any, str]] = [
    ("text for a number", {"replicas": "three", "template": {"roles": []}}, "spec.replicas"),
    ("null", {"replicas": None, "template": {"roles": []}}, "spec.replicas"),
    ("no template", {"replicas": 1}, "template"),
    ("roles is text", {"template": {"roles": "x"}}, "spec.template.roles"),
    ("a role is null", {"template": {"roles": [None]}}, "spec.template.roles[0]"),
    ("a role without a name", {"template": {"roles": [{"entryTemplate": {}}]}}, "spec.template.roles[0]"),
    ("a role without a template", {"template": {"roles": [{"name": "a"}]}}, "spec.template.roles[0]"),
    ("unknown policy", {"recoveryPolicy": "Foo", "template": {"roles": []}}, "spec.recoveryPolicy"),
    ("a float", {"replicas": 1.5, "template": {"roles": []}}, "spec.replicas"),
    ("spec is text", "x", "spec"),
    ("spec is a list", [], "spec"),
    ("spec is null", None, "spec"),
]


@pytest.mark.parametrize(("raw_spec", "path"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_spec_of_wrong_types_must_be_unreadable_with_its_path(raw_spec: object, path: str) -> None:
    serving = decode({"metadata": {"name": "bad"}, "spec": raw_spec})
    assert isinstance(serving.spec, Unreadable)
    assert path in serving.spec.reason
    assert "$" not in serving.spec.reason


def test_object_without_a_spec_must_be_unreadable() -> None:
    assert isinstance(decode({"metadata": {"name": "bad"}}).spec, Unreadable)


def test_bad_object_must_not_harm_its_neighbours_on_the_page() -> None:
    bad = model_serving("bad", replicas="three")
    page = json.dumps({"items": [model_serving("a"), bad, model_serving("b")]}).encode()
    decoded = msgspec.json.decode(page, type=Page)
    assert [isinstance(item.spec, Spec) for item in decoded.items] == [True, False, True]
    assert [item.metadata.name for item in decoded.items] == ["a", "bad", "b"]


def test_status_of_wrong_types_must_be_an_empty_one() -> None:
    assert decode(model_serving() | {"status": {"replicas": "x"}}).status == Status()
    assert decode(model_serving() | {"status": "x"}).status == Status()
    assert decode(model_serving()).status == Status()


@pytest.mark.covers("MS-8")
def test_status_must_be_read() -> None:
    raw_status = {
        "observedGeneration": 3,
        "replicas": 4,
        "currentReplicas": 1,
        "updatedReplicas": 2,
        "availableReplicas": 3,
        "currentRevision": "a",
        "updateRevision": "b",
        "labelSelector": "c=d",
        "conditions": [
            {
                "type": "Available",
                "status": "True",
                "reason": "AllGroupsReady",
                "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    assert decode(model_serving() | {"status": raw_status}).status == Status(
        observed_generation=3,
        replicas=4,
        current_replicas=1,
        updated_replicas=2,
        available_replicas=3,
        current_revision="a",
        update_revision="b",
        label_selector="c=d",
        conditions=(
            Condition(
                type="Available",
                status="True",
                reason="AllGroupsReady",
                message="m",
                last_transition_time="2026-01-01T00:00:00Z",
            ),
        ),
    )


@pytest.mark.covers("MS-8")
def test_empty_status_must_be_encoded_without_fields() -> None:
    assert msgspec.json.encode(Status()) == b"{}"
    assert msgspec.json.encode(Status(replicas=1)) == b'{"replicas":1}'


def test_object_built_in_code_must_keep_what_it_is_given() -> None:
    metadata = decode(model_serving()).metadata
    spec = Spec(template=Template())
    serving = ModelServing(metadata=metadata, spec=spec)
    assert serving.spec is spec
    assert serving.status == Status()


@pytest.mark.covers("MS-1")
def test_resource_must_be_upstreams() -> None:
    assert MODEL_SERVINGS.name == "modelservings.workload.serving.volcano.sh"
    assert MODEL_SERVINGS.api_version == "workload.serving.volcano.sh/v1alpha1"
    assert (
        MODEL_SERVINGS.path("ns", "a", "status")
        == "/apis/workload.serving.volcano.sh/v1alpha1/namespaces/ns/modelservings/a/status"
    )


def test_entry_template_of_null_must_be_unreadable() -> None:
    spec = decode(model_serving(roles=[role(entryTemplate=None)])).spec
    assert isinstance(spec, Unreadable)
    assert "entryTemplate" in spec.reason
