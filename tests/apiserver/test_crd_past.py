"""Objects that an older CRD has let in, under the present one: what can be read of them and said in status.

The tests swap the CRD of a control plane of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from isthmus.api.crd.modelserving import definition
from isthmus.api.decode import Unreadable
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing, Spec
from isthmus.api.validation import problems
from tests.support.controlplane import start_sandbox
from tests.support.crds import install
from tests.support.manifests import model_serving, role
from tests.support.rawapi import Answer, RawApi
from tests.support.refusals import in_template, labelled

pytestmark = pytest.mark.apiserver

NAMESPACE = "default"


def name_of(manifest: Raw) -> str:
    name: str = manifest["metadata"]["name"]
    return name


def report(api: RawApi, name: str, generation: int = 7) -> Answer:
    """What the controller writes: a status with a condition."""
    condition = {
        "type": "Available",
        "status": "False",
        "reason": "InvalidSpec",
        "message": "what is wrong",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"observedGeneration": generation, "conditions": [condition]}
    return api.patch(MODEL_SERVINGS, NAMESPACE, name, {"status": status}, subresource="status")


def scale(api: RawApi, name: str, replicas: int) -> Answer:
    return api.patch(MODEL_SERVINGS, NAMESPACE, name, {"spec": {"replicas": replicas}}, subresource="scale")


def lax_definition() -> Raw:
    """The CRD as one that checks nothing, as an old or a broken one might."""
    crd = definition()
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = crd["spec"]["versions"][0]
    version["schema"] = {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}
    }
    del version["subresources"]["scale"]
    return crd


# What an old CRD may have let in. `told`: whether the API server takes a status for it under the present CRD.
# Types that CEL rules cannot read stop even that; an event is then all that there is.
PAST: list[tuple[str, Raw, bool, bool]] = [
    # words, manifest, readable, told
    ("long-name", model_serving("a" * 60), True, True),
    ("dots", model_serving("a.b"), True, True),
    ("negative", model_serving("negative", replicas=-2), True, True),
    ("five-roles", model_serving("five-roles", roles=[role(f"r{i}") for i in range(5)]), True, True),
    ("capitals", model_serving("capitals", roles=[role("Prefill")]), True, True),
    ("long-role", model_serving("long-role", roles=[role("a" * 40)]), True, True),
    ("no-workers", model_serving("no-workers", roles=[role(workerReplicas=2)]), True, True),
    (
        "pair",
        model_serving(
            "pair", recoveryPolicy="ServingGroupRecreate", rolloutStrategy={"type": "RoleRollingUpdate"}
        ),
        True,
        True,
    ),
    ("no-containers", model_serving("no-containers", roles=[role(entryTemplate={})]), True, True),
    ("blank-image", in_template(image="a b") | {"metadata": {"name": "blank-image"}}, True, True),
    (
        "our-label",
        labelled(**{"modelserving.volcano.sh/role": "x"}) | {"metadata": {"name": "our-label"}},
        True,
        True,
    ),
    ("huge", model_serving("huge", replicas=3 * 10**10), True, True),
    ("policy", model_serving("policy", recoveryPolicy="Restart"), False, True),
    ("text-replicas", model_serving("text-replicas", replicas="three"), False, True),
    ("no-spec", {**model_serving("no-spec"), "spec": {}}, False, True),
    ("entry-text", model_serving("entry-text", roles=[role(entryTemplate="x")]), True, True),
    ("roles-text", model_serving("roles-text", roles="x"), False, False),
    ("role-null", model_serving("role-null", roles=[role(), None]), False, False),
    ("bool-bound", model_serving("bool-bound", roles=[role(maxUnavailable=True)]), False, False),
]


@pytest.fixture(scope="module")
def past() -> Iterator[RawApi]:
    """An API server with objects that an older CRD has let in, now under the present CRD."""
    with start_sandbox(crds=[lax_definition()]) as sandbox:
        api = RawApi(sandbox.cluster().kubeconfig())
        for _, manifest, _, _ in PAST:
            manifest["metadata"]["namespace"] = NAMESPACE
            answer = api.create(MODEL_SERVINGS, manifest)
            assert answer.code == 201, answer.body
        dots = model_serving("never.there")
        install(api, definition(), active=lambda: api.create(MODEL_SERVINGS, dots, dry_run=True).code == 422)
        yield api
        api.close()


@pytest.mark.covers("R14")
@pytest.mark.parametrize(("manifest", "readable"), [row[1:3] for row in PAST], ids=[row[0] for row in PAST])
def test_object_past_the_crd_must_be_told_apart(past: RawApi, manifest: Raw, readable: bool) -> None:
    text = msgspec.json.encode(past.get(MODEL_SERVINGS, NAMESPACE, name_of(manifest)).body)
    serving = msgspec.json.decode(text, type=ModelServing)
    if readable:
        assert isinstance(serving.spec, Spec), serving.spec
        assert problems(serving.metadata.name, serving.spec)
    else:
        assert isinstance(serving.spec, Unreadable)


@pytest.mark.covers("R14")
@pytest.mark.parametrize(
    ("manifest", "told"), [(row[1], row[3]) for row in PAST], ids=[row[0] for row in PAST]
)
def test_object_past_the_crd_must_take_a_status_where_rules_can_read_it(
    past: RawApi, manifest: Raw, told: bool
) -> None:
    answer = report(past, name_of(manifest))
    assert (answer.code == 200) is told, answer.body
    if told:
        assert report(past, name_of(manifest), generation=8).code == 200


@pytest.mark.covers("R14")
def test_object_with_too_long_a_name_must_still_scale_down(past: RawApi) -> None:
    assert scale(past, "a" * 60, 10).code == 422
    assert scale(past, "a" * 60, 0).code == 200
