from __future__ import annotations

import json

import msgspec
import pytest

from isthmus.api import labels
from isthmus.api.meta import Raw
from isthmus.api.modelserving import ModelServing, Spec
from isthmus.api.validation import Problem, problems
from tests.support.manifests import container, model_serving, pod_template, role

ROLLING = {"type": "RoleRollingUpdate"}


def found_in(manifest: Raw) -> dict[str, Problem]:
    serving = msgspec.json.decode(json.dumps(manifest).encode(), type=ModelServing)
    assert isinstance(serving.spec, Spec), serving.spec
    return {problem.path: problem for problem in problems(serving.metadata.name, serving.spec)}


def test_valid_object_must_have_no_problems() -> None:
    workers = role("decode", workerReplicas=2, workerTemplate=pod_template(), maxUnavailable="50%")
    assert found_in(model_serving(roles=[role(), workers], replicas=3)) == {}


@pytest.mark.covers("MS-12", "R14")
def test_long_name_must_be_reported_with_the_numbers() -> None:
    problem = found_in(model_serving("a" * 50))["metadata.name"]
    assert "has 50 characters and may have at most 49" in problem.text
    assert problem.blocking
    assert str(problem).startswith("metadata.name: has 50")


@pytest.mark.covers("MS-12")
@pytest.mark.parametrize(("replicas", "fits"), [(9, True), (10, False)])
def test_name_must_be_judged_by_counts(replicas: int, fits: bool) -> None:
    assert ("metadata.name" not in found_in(model_serving("a" * 49, replicas=replicas))) is fits


@pytest.mark.covers("MS-13", "MS-14", "MS-15", "MS-16", "MS-17", "MS-18", "MS-19", "MS-20")
@pytest.mark.parametrize(
    ("manifest", "path", "blocking"),
    [
        (model_serving("a.b"), "metadata.name", True),
        (model_serving(replicas=-1), "spec.replicas", True),
        (model_serving(roles=[]), "spec.template.roles", True),
        (model_serving(roles=[role(f"r{i}") for i in range(5)]), "spec.template.roles", False),
        (model_serving(roles=[role(), role()]), "spec.template.roles", True),
        (model_serving(roles=[role(), role("Prefill")]), "spec.template.roles[1].name", True),
        (model_serving(roles=[role("a" * 13)]), "spec.template.roles[0].name", False),
        (model_serving(roles=[role(replicas=-1)]), "spec.template.roles[0].replicas", True),
        (model_serving(roles=[role(workerReplicas=-1)]), "spec.template.roles[0].workerReplicas", True),
        (model_serving(roles=[role(workerReplicas=1)]), "spec.template.roles[0].workerTemplate", False),
        (
            model_serving(roles=[role(workerReplicas=1, workerTemplate={"spec": {"containers": []}})]),
            "spec.template.roles[0].workerTemplate.spec.containers",
            False,
        ),
        (
            model_serving(roles=[role(entryTemplate={})]),
            "spec.template.roles[0].entryTemplate.spec.containers",
            False,
        ),
        (
            model_serving(roles=[role(entryTemplate={"spec": "x"})]),
            "spec.template.roles[0].entryTemplate",
            True,
        ),
        (
            model_serving(roles=[role(entryTemplate=pod_template(container(image="a b")))]),
            "spec.template.roles[0].entryTemplate.spec.containers[0].image",
            False,
        ),
        (
            model_serving(roles=[role(entryTemplate=pod_template(initContainers=[container(image="\t")]))]),
            "spec.template.roles[0].entryTemplate.spec.initContainers[0].image",
            False,
        ),
        (
            model_serving(
                roles=[
                    role(entryTemplate=pod_template() | {"metadata": {"labels": {labels.GROUP_NAME: "x"}}})
                ]
            ),
            "spec.template.roles[0].entryTemplate.metadata.labels",
            False,
        ),
        (model_serving(roles=[role(partition=1)]), "spec.template.roles[0].partition", False),
        (model_serving(roles=[role(maxUnavailable="x")]), "spec.template.roles[0].maxUnavailable", False),
        (
            model_serving(roles=[role(replicas=3, maxUnavailable=4)], rolloutStrategy=ROLLING),
            "spec.template.roles[0].maxUnavailable",
            False,
        ),
        (
            model_serving(template={"gangPolicy": {"minRoleReplicas": {"x": 1}}}),
            "spec.template.gangPolicy.minRoleReplicas",
            False,
        ),
        (
            model_serving(template={"gangPolicy": {"minRoleReplicas": {"prefill": -1}}}),
            "spec.template.gangPolicy.minRoleReplicas",
            False,
        ),
        (
            model_serving(rolloutStrategy=ROLLING, recoveryPolicy="ServingGroupRecreate"),
            "spec.rolloutStrategy.type",
            False,
        ),
        (
            model_serving(rolloutStrategy=ROLLING | {"rollingUpdateConfiguration": {}}),
            "spec.rolloutStrategy.rollingUpdateConfiguration",
            False,
        ),
        (
            model_serving(rolloutStrategy={"rollingUpdateConfiguration": {"maxUnavailable": "0%"}}),
            "spec.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable",
            False,
        ),
        (
            model_serving(rolloutStrategy={"rollingUpdateConfiguration": {"partition": "110%"}}),
            "spec.rolloutStrategy.rollingUpdateConfiguration.partition",
            False,
        ),
        (
            model_serving(
                roles=[
                    role(entryTemplate=pod_template(container(env=[{"name": "X"}, {"name": "GROUP_SIZE"}])))
                ]
            ),
            "spec.template.roles[0].entryTemplate.spec.containers[0].env",
            False,
        ),
        (model_serving(plugins=[{"name": "none-such"}]), "spec.plugins[0].name", True),
        (model_serving(plugins=[{"name": "demo-pod-tweaks", "type": "X"}]), "spec.plugins[0].type", True),
    ],
)
def test_what_the_crd_refuses_must_be_found(manifest: Raw, path: str, blocking: bool) -> None:
    found = found_in(manifest)
    assert list(found) == [path]
    assert found[path].blocking is blocking


@pytest.mark.covers("MS-107", "MS-422")
def test_settings_that_a_plugin_cannot_read_must_block_and_name_their_place() -> None:
    plugins = [
        {"name": "lws-standard-labels"},
        {"name": "demo-pod-tweaks", "config": {"annotations": {"a": 1}}},
    ]
    problem = found_in(model_serving(plugins=plugins))["spec.plugins[1].config"]
    assert problem.blocking
    assert "spec.plugins[1].config.annotations" in problem.text


@pytest.mark.covers("MS-209", "MS-420", "MS-421", "MS-426")
@pytest.mark.parametrize(
    "manifest",
    [
        model_serving(replicas=5, rolloutStrategy={"rollingUpdateConfiguration": {"maxUnavailable": "10%"}}),
        model_serving(roles=[role(replicas=0, maxUnavailable=1)], rolloutStrategy=ROLLING),
        model_serving(roles=[role(replicas=1)], template={"gangPolicy": {"minRoleReplicas": {"prefill": 2}}}),
        model_serving(roles=[role(workerTemplate={"spec": {"containers": []}})]),
        model_serving(roles=[role(entryTemplate=pod_template(container(image="a\tb")))]),
    ],
)
def test_what_scaling_leads_to_must_not_be_a_problem(manifest: Raw) -> None:
    assert found_in(manifest) == {}
