"""The CRD's CEL rules and isthmus.api.validation must judge alike, and what they admit must be nameable."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripts.extract_podspec import extract

from isthmus.api import labels
from isthmus.api.crd import podspec
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing, Spec
from isthmus.api.names import (
    RoleSize,
    group_name,
    name_budget,
    pod_name,
    revision_name,
    role_id,
    service_name,
)
from isthmus.api.percent import is_valid, resolve
from isthmus.api.pods import CONTROLLER_REVISIONS, SERVING_PODS, SERVING_SERVICES
from isthmus.api.validation import problems
from tests.support.manifests import container, model_serving, pod_template, role
from tests.support.rawapi import RawApi

pytestmark = pytest.mark.apiserver

Place = tuple[str | int, ...]
ABSENT = object()
COUNTS = (0, 1, 2, 3, 10, 100, -1, 2**31 - 1, 2**31, ABSENT)
BOUNDS = (0, 1, 2, 3, -1, "0%", "1%", "34%", "50%", "100%", "101%", "007%", "1", "x%", "%", "", ABSENT)
NAMES = ("prefill", "decode", "x-1", "a", "a" * 12, "b" * 13, "Prefill", "1r", "r-", "r.s", "")
IMAGES = ("engine:1", "", "a b", " ", "\t", "a\tb", ABSENT)
TEMPLATES: tuple[object, ...] = ({}, {"spec": {"containers": []}}, ABSENT)
ENVS: tuple[object, ...] = ([], [{"name": "X"}], *([{"name": "X"}, {"name": name}] for name in labels.ENV))
LABELS = ({}, {"team": "x"}, *({key: "x"} for key in labels.ALL))

_ROLES: Place = ("spec", "template", "roles")
_GANG: Place = ("spec", "template", "gangPolicy")
_STRATEGY: Place = ("spec", "rolloutStrategy")
CHANGES: list[tuple[Place, object]] = [
    (place, value)
    for place, values in (
        (("metadata", "name"), ("a", "a.b", "1a", "a-1", *("a" * n for n in range(36, 65)))),
        (("spec", "replicas"), COUNTS),
        (("spec", "recoveryPolicy"), ("ServingGroupRecreate", "RoleRecreate", "None", ABSENT)),
        (_ROLES, ([],)),
        ((*_ROLES, 0, "name"), NAMES),
        ((*_ROLES, 0, "replicas"), COUNTS),
        ((*_ROLES, 1, "replicas"), COUNTS),
        ((*_ROLES, 0, "workerReplicas"), COUNTS[:-1]),
        ((*_ROLES, 0, "maxUnavailable"), BOUNDS),
        ((*_ROLES, 1, "maxUnavailable"), BOUNDS),
        ((*_ROLES, 0, "partition"), BOUNDS),
        ((*_ROLES, 0, "entryTemplate"), TEMPLATES[:-1]),
        ((*_ROLES, 0, "workerTemplate"), TEMPLATES),
        ((*_ROLES, 1, "workerTemplate"), TEMPLATES),
        ((*_ROLES, 0, "entryTemplate", "spec", "containers", 0, "image"), IMAGES),
        ((*_ROLES, 0, "entryTemplate", "spec", "initContainers"), ([container()], [container(image="a b")])),
        ((*_ROLES, 0, "workerTemplate", "spec", "containers", 0, "image"), IMAGES),
        ((*_ROLES, 0, "entryTemplate", "spec", "containers", 0, "env"), ENVS),
        (
            (*_ROLES, 1, "entryTemplate", "spec", "initContainers"),
            tuple([container(env=env)] for env in ENVS),
        ),
        ((*_ROLES, 0, "entryTemplate", "metadata"), tuple({"labels": value} for value in LABELS)),
        ((*_ROLES, 0, "workerTemplate", "metadata"), tuple({"labels": value} for value in LABELS)),
        (_GANG, ({}, {"minRoleReplicas": {}}, ABSENT)),
        (
            (*_GANG, "minRoleReplicas"),
            tuple({role: n} for role in ("prefill", "x") for n in (0, 1, 3, 10, -1)),
        ),
        ((*_STRATEGY, "type"), ("ServingGroupRollingUpdate", "RoleRollingUpdate")),
        ((*_STRATEGY, "rollingUpdateConfiguration"), ({}, ABSENT)),
        ((*_STRATEGY, "rollingUpdateConfiguration", "maxUnavailable"), BOUNDS),
        ((*_STRATEGY, "rollingUpdateConfiguration", "partition"), BOUNDS),
        (_STRATEGY, (ABSENT,)),
        (("spec", "plugins"), ([{"name": "lws-standard-labels"}], [{"name": "none-such"}])),
    )
    for value in values
]


def base(kind: str) -> Raw:
    """A good manifest with most fields set."""
    strategy: Raw = {"type": kind}
    if kind == "ServingGroupRollingUpdate":
        strategy["rollingUpdateConfiguration"] = {"maxUnavailable": 1}
    return model_serving(
        roles=[
            role(replicas=3, workerReplicas=1, workerTemplate=pod_template(), maxUnavailable=2),
            role("decode", replicas=2, maxUnavailable="50%"),
        ],
        template={"gangPolicy": {"minRoleReplicas": {"prefill": 2}}},
        replicas=3,
        rolloutStrategy=strategy,
        recoveryPolicy="RoleRecreate",
    )


KINDS = ("ServingGroupRollingUpdate", "RoleRollingUpdate")


def changed(value: Any, place: Place, new: object) -> Any:
    """A copy with `new` at this place; unchanged where there is no such place (any more)."""
    first, *rest = place
    if isinstance(value, list):
        if not isinstance(first, int) or first >= len(value):
            return value
        return [
            changed(item, tuple(rest), new) if index == first else item for index, item in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    if rest:
        return {**value, first: changed(value[first], tuple(rest), new)} if first in value else value
    return {k: v for k, v in value.items() if k != first} | ({} if new is ABSENT else {first: new})


def assert_judged_alike(api: RawApi, manifest: Raw) -> int:
    """Send it and compare; the response code."""
    answer = api.create(MODEL_SERVINGS, manifest, dry_run=True)
    assert answer.code in (201, 422), answer.body
    serving = msgspec.json.decode(json.dumps(with_defaults(manifest)).encode(), type=ModelServing)
    assert isinstance(serving.spec, Spec), serving.spec
    found = problems(serving.metadata.name, serving.spec)
    expected = bool(found or refused_when_new(serving.spec))
    assert (answer.code == 422) is expected, (answer.message, found, manifest)
    assert "evaluating rule" not in answer.message, "a rule broke off instead of judging"
    return answer.code


def with_defaults(manifest: Raw) -> Raw:
    """The manifest with the one default that the decoded type leaves open."""
    copy: Raw = json.loads(json.dumps(manifest))
    for each in copy["spec"]["template"]["roles"]:
        each.setdefault("maxUnavailable", 1)
    return copy


def refused_when_new(spec: Spec) -> bool:
    """The two rules that hold for new values only, and so are no problem of an object that is there."""
    minimums = spec.template.gang_policy.min_role_replicas if spec.template.gang_policy else {}
    if any(minimums.get(role.name, 0) > role.replicas for role in spec.template.roles):
        return True
    strategy = spec.rollout_strategy
    if strategy is None or strategy.type == "RoleRollingUpdate":
        return False
    configuration = strategy.rolling_update_configuration
    if configuration is None or not is_valid(configuration.max_unavailable):
        return False
    return resolve(configuration.max_unavailable, max(spec.replicas, 0)) == 0


RULES = ("MS-12", "MS-13", "MS-14", "MS-15", "MS-16", "MS-17", "MS-18", "MS-19", "MS-20", "MS-447", "R14")


@pytest.mark.covers(*RULES)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
def test_each_change_of_a_good_manifest_must_be_judged_alike(serving_api: RawApi, kind: str) -> None:
    codes = [assert_judged_alike(serving_api, changed(base(kind), place, new)) for place, new in CHANGES]
    assert min(codes.count(201), codes.count(422)) > 60, "most of one kind would show little"


@pytest.mark.covers(*RULES)
@pytest.mark.timeout(120)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(KINDS), changes=st.lists(st.sampled_from(CHANGES), min_size=2, max_size=4))
def test_several_changes_must_be_judged_alike(
    serving_api: RawApi, kind: str, changes: list[tuple[Place, object]]
) -> None:
    manifest = base(kind)
    for place, new in changes:
        manifest = changed(manifest, place, new)
    assert_judged_alike(serving_api, manifest)


EDGES = [
    (0, [RoleSize("a", 0, 0)]),
    (1, [RoleSize("prefill", 1, 0)]),
    (9, [RoleSize("prefill", 9, 9), RoleSize("x", 100, 0)]),
    (11, [RoleSize("a" * 12, 100, 12)]),
    (2**31 - 1, [RoleSize("a" * 12, 2**31 - 1, 2**31 - 1)]),
]


@pytest.mark.covers("R14", "MS-12", "MS-22", "MS-24")
@pytest.mark.parametrize(("replicas", "sizes"), EDGES)
def test_object_at_the_budget_must_have_names_that_the_api_server_takes(
    serving_api: RawApi, namespace: str, replicas: int, sizes: list[RoleSize]
) -> None:
    serving = "a" * name_budget(replicas, sizes)
    manifest = model_serving(
        serving,
        replicas=replicas,
        roles=[
            {
                "name": size.name,
                "replicas": size.replicas,
                "workerReplicas": size.worker_replicas,
                "entryTemplate": pod_template(),
                "workerTemplate": pod_template(),
            }
            for size in sizes
        ],
    )
    assert serving_api.create(MODEL_SERVINGS, manifest, dry_run=True).code == 201
    manifest["metadata"]["name"] += "a"
    assert serving_api.create(MODEL_SERVINGS, manifest, dry_run=True).code == 422
    for size in sizes:
        group = group_name(serving, max(replicas - 1, 0))
        instance = role_id(size.name, max(size.replicas - 1, 0))
        keys = {
            labels.NAME: serving,
            labels.GROUP_NAME: group,
            labels.ROLE: size.name,
            labels.ROLE_ID: instance,
            labels.REVISION: "8574cb849f",
            labels.ROLE_TEMPLATE_HASH: "8574cb849f",
            labels.ENTRY: "true",
        }
        for index in (0, size.worker_replicas):
            pod = {"metadata": {"name": pod_name(group, instance, index), "labels": keys}, **pod_template()}
            pod["metadata"]["namespace"] = namespace
            assert serving_api.create(SERVING_PODS, pod, dry_run=True).code == 201
        service = {
            "metadata": {"name": service_name(group, instance), "namespace": namespace, "labels": keys},
            "spec": {"clusterIP": "None", "selector": keys},
        }
        assert serving_api.create(SERVING_SERVICES, service, dry_run=True).code == 201
    revision = {
        "metadata": {"name": revision_name(serving, "8574cb849f"), "namespace": namespace},
        "revision": 1,
        "data": {"data": []},
    }
    assert serving_api.create(CONTROLLER_REVISIONS, revision, dry_run=True).code == 201


@pytest.mark.covers("MS-4")
def test_pod_schema_must_be_that_of_the_api_server(serving_api: RawApi) -> None:
    document = serving_api.call("GET", "/openapi/v3/api/v1").body
    fresh = extract(document)
    assert fresh["kubernetes"] == podspec.kubernetes_version()
    assert fresh == podspec.table()
