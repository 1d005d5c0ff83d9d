"""The ValidatingAdmissionPolicies on a real API server, bound to one namespace of it, under a running
operator."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator

import pytest

from isthmus.api import labels
from isthmus.api.crd.admission import policies
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS, SERVING_SERVICES
from isthmus.sandbox import Cluster
from tests.support.controlplane import delete_namespace, make_namespace
from tests.support.crds import wait_until
from tests.support.manifests import container, model_serving
from tests.support.operator import OperatorProcess
from tests.support.rawapi import Answer, RawApi
from tests.support.world import World, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(60)]

OURS = {labels.NAME: "a", labels.GROUP_NAME: "a-0", labels.ROLE: "p", labels.ROLE_ID: "p-9"}


_PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


def _path(document: Raw) -> str:
    plural = _PLURALS[document["kind"]]
    return f"/apis/{document['apiVersion']}/{plural}/{document['metadata']['name']}"


@pytest.fixture(scope="module")
def guarded(cluster: Cluster, serving_api: RawApi) -> Iterator[World]:
    """A namespace in which the policies hold, and nowhere else."""
    namespace = make_namespace(cluster, "guarded")
    documents = copy.deepcopy(policies())
    for document in documents:
        if document["kind"].endswith("Binding"):
            selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            document["spec"]["matchResources"] = {"namespaceSelector": selector}
        answer = serving_api.call(
            "PATCH",
            _path(document),
            document,
            content_type="application/apply-patch+yaml",
            fieldManager="isthmus-tests",
        )
        assert answer.code in (200, 201), answer.body
    world = World(serving_api, namespace)
    wait_until(lambda: create(world, pod(OURS)).code == 422, what="the policies hold", deadline_s=30)
    yield world
    for document in documents:
        serving_api.call("DELETE", _path(document))
    delete_namespace(cluster, namespace)


def pod(its_labels: Raw, **metadata: object) -> Raw:
    metadata = {"name": "x", "labels": its_labels, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container()]}}


def create(world: World, body: Raw) -> Answer:
    """A dry run, which admission sees as it sees any create."""
    return world.api.call("POST", SERVING_PODS.path(world.namespace), body, dryRun="All")


def test_pods_with_our_labels_must_be_owned_by_the_serving_that_they_name(guarded: World) -> None:
    owner = {
        "apiVersion": MODEL_SERVINGS.api_version,
        "kind": "ModelServing",
        "name": "a",
        "uid": "u",
        "controller": True,
    }
    assert create(guarded, pod(OURS, ownerReferences=[owner])).code == 201
    refused = [
        pod(OURS),
        pod(OURS, ownerReferences=[{**owner, "controller": False}]),
        pod(OURS, ownerReferences=[{**owner, "name": "b"}]),
        pod(OURS, ownerReferences=[{**owner, "kind": "Job", "apiVersion": "batch/v1"}]),
    ]
    for body in refused:
        answer = create(guarded, body)
        assert answer.code == 422, answer.body
        assert "not by ModelServing a" in answer.message
    assert create(guarded, pod({"team": "x"})).code == 201


@pytest.mark.covers("MS-415")
async def test_labels_of_what_a_serving_owns_must_stay_and_its_life_must_go_on(
    operator: OperatorProcess, guarded: World
) -> None:
    guarded.create(serving("a", 2, team("p", 1, 1)))
    await guarded.settled()
    for resource, name in ((SERVING_PODS, "a-0-p-0-1"), (SERVING_SERVICES, "a-0-p-0-0")):
        for change in ({labels.GROUP_NAME: None}, {labels.NAME: "b"}, {labels.ENTRY: "x"}):
            patch = {"metadata": {"labels": change}}
            answer = await asyncio.to_thread(guarded.api.patch, resource, guarded.namespace, name, patch)
            assert answer.code == 422, (name, change, answer.body)
            assert "by which ModelServing a knows its objects" in answer.message
        guarded.merge(resource, name, {"metadata": {"labels": {"team": "x"}, "annotations": {"a": "b"}}})
    guarded.delete(SERVING_PODS, "a-1-p-0-0")
    guarded.set_image("engine:2")
    await guarded.settled()
    guarded.scale(1)
    await guarded.settled()
    guarded.delete(MODEL_SERVINGS, "a", propagation="Orphan")


@pytest.mark.covers("MS-426")
@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (model_serving("b"), ""),
        (model_serving("b", schedulerName="x", template={"gangPolicy": {}}), "gangPolicy has no effect"),
        (
            model_serving("b", schedulerName="x", template={"networkTopology": {}}),
            "networkTopology has no effect",
        ),
        (
            model_serving("b", rolloutStrategy={"type": "RoleRollingUpdate"}),
            "these roles of one replica are down",
        ),
        (
            serving(
                "b", 1, team("p", 1), team("q", 1, partition=1), rolloutStrategy={"type": "RoleRollingUpdate"}
            ),
            "in all groups at once: p",
        ),
        (
            serving("b", 1, team("p", 2), rolloutStrategy={"type": "RoleRollingUpdate"}),
            "",
        ),
    ],
    ids=["plain", "gang", "topology", "one replica", "protected", "two replicas"],
)
def test_what_is_rarely_meant_must_be_warned_about(guarded: World, manifest: Raw, text: str) -> None:
    manifest = {**manifest, "metadata": {**manifest["metadata"], "namespace": guarded.namespace}}
    answer = guarded.api.create(MODEL_SERVINGS, manifest, dry_run=True)
    assert answer.code == 201, answer.body
    assert len(answer.warnings) == bool(text), answer.warnings
    assert all(text in each for each in answer.warnings)


@pytest.mark.covers("MS-426")
def test_scaling_below_a_minimum_must_be_warned_about_and_allowed(guarded: World) -> None:
    body = serving("c", 0, team("p", 2), template={"gangPolicy": {"minRoleReplicas": {"p": 2}}})
    stored = guarded.create(body)
    stored["spec"]["template"]["roles"][0]["replicas"] = 1
    path = MODEL_SERVINGS.path(guarded.namespace, "c")
    answer = guarded.api.call("PUT", path, stored)
    assert answer.code == 200, answer.body
    (warning,) = answer.warnings
    assert "counts as all of them: p" in warning
    guarded.delete(MODEL_SERVINGS, "c")
