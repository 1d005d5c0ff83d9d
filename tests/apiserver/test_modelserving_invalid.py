"""Objects that an older CRD let in: each is reported in status and an event, and none harms another.

On a control plane of the module's own, whose CRD lets everything in, and later becomes the present one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.api.crd.modelserving import definition
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.pods import SERVING_PODS
from isthmus.sandbox import Cluster, Sandbox
from tests.support.audit import requests_in
from tests.support.controlplane import make_namespace, start_sandbox
from tests.support.crds import install
from tests.support.eventually import eventually
from tests.support.manifests import container, model_serving, pod_template, role
from tests.support.operator import OperatorProcess
from tests.support.rawapi import RawApi
from tests.support.world import PREFIX, World, label, serving, team

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]


def lax_definition() -> Raw:
    """The CRD as one that checks nothing."""
    crd = definition()
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = crd["spec"]["versions"][0]
    properties = {"spec": anything, "status": anything}
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    del version["subresources"]["scale"]
    return crd


def two(name: str, **second: object) -> list[Raw]:
    return [role("p", workerReplicas=0), role(name, **second)]


INVALID: dict[str, tuple[Raw, str]] = {
    "a" * 60: (model_serving("a" * 60), "63"),
    "negative": (model_serving("negative", replicas=-2), "spec.replicas"),
    "huge": (model_serving("huge", replicas=3 * 10**10), "spec.replicas"),
    "same-roles": (model_serving("same-roles", roles=two("p")), "unique"),
    "no-roles": (model_serving("no-roles", roles=[]), "roles"),
    "capitals": (model_serving("capitals", roles=[role("Prefill")]), "DNS-1035"),
    "policy": (model_serving("policy", recoveryPolicy="Restart"), "recoveryPolicy"),
    "text-count": (model_serving("text-count", replicas="three"), "replicas"),
    "no-spec": ({**model_serving("no-spec"), "spec": {}}, "template"),
    "roles-text": (model_serving("roles-text", roles="x"), "roles"),
    "role-null": (model_serving("role-null", roles=[role(), None]), "roles"),
    "odd-bound": (model_serving("odd-bound", roles=[role(maxUnavailable=True)]), "maxUnavailable"),
    "role-minus": (model_serving("role-minus", roles=[role(replicas=-1)]), "replicas"),
}
"""What cannot be acted on, and what must be said of it."""

TOLERABLE: dict[str, tuple[Raw, int, str]] = {
    "five-roles": (model_serving("five-roles", roles=[role(f"r{n}") for n in range(5)]), 5, "1 to 4 roles"),
    "no-workers": (model_serving("no-workers", roles=[role("p", workerReplicas=2)]), 1, "workerTemplate"),
    "pair": (
        model_serving(
            "pair",
            roles=[role("p")],
            recoveryPolicy="ServingGroupRecreate",
            rolloutStrategy={"type": "RoleRollingUpdate"},
        ),
        1,
        "RoleRollingUpdate",
    ),
    "our-label": (
        model_serving(
            "our-label",
            roles=[
                role("p", entryTemplate=pod_template() | {"metadata": {"labels": {PREFIX + "role": "x"}}})
            ],
        ),
        1,
        "modelserving.volcano.sh",
    ),
}
"""What is wrong and can still be acted on: how many pods, and what must be said of it."""


@pytest.fixture(scope="module")
def lax() -> Iterator[Sandbox]:
    with start_sandbox(crds=[lax_definition()], audit=True) as sandbox:
        yield sandbox


@pytest.fixture
def cluster(lax: Sandbox) -> Cluster:
    return lax.cluster()


@pytest.fixture
def world(cluster: Cluster, namespace: str) -> Iterator[World]:
    api = RawApi(cluster.kubeconfig())
    yield World(api, namespace)
    api.close()


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    return make_namespace(cluster)


def put(world: World, manifest: Raw) -> None:
    body = {**manifest, "metadata": {**manifest["metadata"], "namespace": world.namespace}}
    answer = world.api.call("POST", MODEL_SERVINGS.path(world.namespace), body)
    assert answer.code == 201, answer.body


async def said(world: World, name: str, text: str, *, in_status: bool = True) -> None:
    async def check() -> None:
        notes = [event["note"] for event in world.events(name) if event["type"] == "Warning"]
        assert any(text in note for note in notes), (name, notes)
        if in_status:
            condition = world.condition("Progressing", name)
            assert (condition.get("status"), condition.get("reason")) == ("False", "InvalidSpec"), name
            assert text in condition["message"]
            assert world.status(name)["observedGeneration"] == 1

    await eventually(check)


@pytest.mark.covers("R14", "MS-422", "MS-12", "MS-13", "MS-15", "MS-36", "MS-415")
async def test_object_past_an_old_crd_must_be_reported_and_harm_no_other(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    for manifest, _ in INVALID.values():
        put(world, manifest)
    for manifest, _, _ in TOLERABLE.values():
        put(world, manifest)
    put(world, full(serving("good", 2)))
    with OperatorProcess(cluster.kubeconfig("operator"), tmp_path / "log") as operator:
        await world.settled("good")
        for name, (_, text) in INVALID.items():
            await said(world, name, text)
            assert not world.pods(name)
        for name, (_, count, text) in TOLERABLE.items():
            await said(world, name, text)
            assert len(world.pods(name)) == count, name
        assert {label(pod, "role") for pod in world.pods("our-label").values()} == {"p"}
        # Good ones work as ever beside them, and nothing is tried again and again.
        before = len(requests_in(cluster, "operator", world.namespace))
        world.edit(lambda spec: spec.update(replicas=3), "good")
        await world.settled("good")
        await asyncio.sleep(2)  # for repeats to show
        assert len(requests_in(cluster, "operator", world.namespace)) - before < 20
        # A mended one is acted on, and says so.
        world.edit(lambda spec: spec.update(replicas=1), "negative")

        async def mended() -> None:
            assert len(world.pods("negative")) == 1
            assert world.condition("Available", "negative").get("status") == "True"
            assert world.condition("Progressing", "negative").get("reason") != "InvalidSpec"

        await eventually(mended)
        await operator.ready()
        assert await operator.get_health("/healthz") == 200
        assert await operator.stop() == 0


def full(manifest: Raw) -> Raw:
    """With what the CRD's defaults would have added, and this CRD does not."""
    for each in manifest["spec"]["template"]["roles"]:
        each.setdefault("replicas", 1)
    return manifest


@pytest.mark.covers("R14")
async def test_object_that_became_invalid_must_keep_its_pods(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    with OperatorProcess(cluster.kubeconfig("operator"), tmp_path / "log"):
        put(world, full(serving("a", 2)))
        await world.settled()
        uids = world.uids()

        def spoil(spec: Raw) -> None:
            spec["replicas"] = -1

        world.edit(spoil)

        async def refused() -> None:
            assert world.condition("Progressing").get("reason") == "InvalidSpec"
            assert world.status()["availableReplicas"] == 2

        await eventually(refused)
        assert world.uids() == uids
        world.edit(lambda spec: spec.update(replicas=2))
        await world.settled()
        assert world.uids() == uids


@pytest.mark.covers("MS-35", "MS-422", "MS-447", "MS-411")
async def test_template_that_makes_no_pod_must_be_said_and_mended(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    """The API server refuses the pods: what it says must reach the ModelServing's reader."""
    broken = container(volumeMounts=[{"name": "none", "mountPath": "/x"}])
    with OperatorProcess(cluster.kubeconfig("operator"), tmp_path / "log"):
        put(world, full(serving("a", 1, role("p", entryTemplate=pod_template(broken)), team("d", 1, 0))))

        async def refused() -> None:
            condition = world.condition("Progressing")
            assert condition.get("reason") == "ActionFailed", world.status()
            assert 'Not found: "none"' in condition["message"]
            assert world.events(reason="ActionFailed")
            assert len(world.find(SERVING_PODS)) == 1

        await eventually(refused)

        def mend(spec: Raw) -> None:
            spec["template"]["roles"][0]["entryTemplate"] = pod_template()

        world.edit(mend)
        await world.settled()


@pytest.mark.covers("R14")
async def test_present_crd_must_not_stop_the_reports_about_objects_of_the_old_one(
    world: World, cluster: Cluster, tmp_path: Path
) -> None:
    """Where even a status breaks the rules of the CRD, the event remains."""
    for manifest, _ in INVALID.values():
        put(world, manifest)
    put(world, full(serving("good", 1)))
    api = RawApi(cluster.kubeconfig())
    probe = {**model_serving("p.q"), "metadata": {"name": "p.q", "namespace": world.namespace}}
    try:
        await asyncio.to_thread(
            install,
            api,
            definition(),
            active=lambda: api.create(MODEL_SERVINGS, probe, dry_run=True).code == 422,
        )
        with OperatorProcess(cluster.kubeconfig("operator"), tmp_path / "log") as operator:
            await world.settled("good")
            for name, (_, text) in INVALID.items():
                await said(world, name, text, in_status=name not in ("roles-text", "role-null", "odd-bound"))
            assert operator.running
            assert await operator.get_health("/healthz") == 200
    finally:
        await asyncio.to_thread(
            install,
            api,
            lax_definition(),
            active=lambda: api.create(MODEL_SERVINGS, probe, dry_run=True).code == 201,
        )
        api.close()
