"""What is sent to the API server for each object."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.pods import ControllerRevision
from isthmus.modelserving.plan import objects
from isthmus.modelserving.plan.desired import desired
from isthmus.modelserving.plan.model import CreatePod, CreateService, Desired, PersistRevision
from tests.support import manifests
from tests.support.serving import Scene, actions, revision_object, role, serving

OWNER = {
    "apiVersion": "workload.serving.volcano.sh/v1alpha1",
    "kind": "ModelServing",
    "name": "a",
    "uid": "uid-a",
    "controller": True,
    "blockOwnerDeletion": True,
}


def wanted(**fields: Any) -> Desired:
    return desired(serving(role("p", 1, 2, **fields)), ())


def pod(of: Desired, index: int = 0) -> dict[str, Any]:
    return objects.pod(of, "a-3", of.revision.roles["p"], of.revision.name, 7, index)


@pytest.mark.covers("MS-22", "MS-27", "MS-28")
def test_pod_must_carry_our_labels_name_and_owner() -> None:
    of = wanted()
    raw = pod(of)
    prefix = "modelserving.volcano.sh/"
    assert raw["metadata"] == {
        "name": "a-3-p-7-0",
        "namespace": "default",
        "labels": {
            prefix + "name": "a",
            prefix + "group-name": "a-3",
            prefix + "role": "p",
            prefix + "role-id": "p-7",
            prefix + "revision": of.revision.name,
            prefix + "role-template-hash": of.revision.roles["p"].hash,
            prefix + "entry": "true",
        },
        "ownerReferences": [OWNER],
    }
    worker = pod(of, 2)["metadata"]
    assert worker["name"] == "a-3-p-7-2"
    assert prefix + "entry" not in worker["labels"]


@pytest.mark.covers("MS-26", "MS-415")
def test_template_must_add_labels_and_never_replace_ours() -> None:
    labels = {
        "app": "x",
        "modelserving.volcano.sh/group-name": "group-0",
        "modelserving.volcano.sh/entry": "true",
    }
    template = {"metadata": {"labels": labels, "annotations": {"k": "v"}}, "spec": {"containers": []}}
    of = wanted(entryTemplate=template, workerTemplate=template)
    entry, worker = pod(of)["metadata"], pod(of, 1)["metadata"]
    assert entry["labels"]["app"] == "x"
    assert entry["labels"]["modelserving.volcano.sh/group-name"] == "a-3"
    assert "modelserving.volcano.sh/entry" not in worker["labels"]
    assert entry["annotations"] == {"k": "v"}
    assert entry["annotations"] is not worker["annotations"]


@pytest.mark.covers("MS-26", "MS-29", "MS-425")
def test_pod_must_have_our_variables_last_in_each_container() -> None:
    own = [{"name": "GROUP_SIZE", "value": "9"}, {"name": "X", "value": "1"}]
    spec = {
        "schedulerName": "other",
        "nodeName": "n",
        "containers": [{"name": "one", "env": own}, {"name": "two"}],
        "initContainers": [{"name": "three", "env": None}],
        "ephemeralContainers": [{"name": "four"}],
    }
    of = wanted(entryTemplate={"spec": spec}, workerTemplate={"spec": spec})
    first, second = pod(of, 0)["spec"], pod(of, 2)["spec"]
    env = [
        {"name": "GROUP_SIZE", "value": "3"},
        {"name": "ENTRY_ADDRESS", "value": "a-3-p-7-0.default"},
        {"name": "WORKER_INDEX", "value": "0"},
    ]
    assert first["containers"] == [
        {"name": "one", "env": [{"name": "X", "value": "1"}, *env]},
        {"name": "two", "env": env},
    ]
    assert first["initContainers"] == [{"name": "three", "env": env}]
    assert first["ephemeralContainers"] == [{"name": "four"}]
    assert (first["schedulerName"], first["nodeName"]) == ("volcano", "n")
    assert second["containers"][1]["env"][2] == {"name": "WORKER_INDEX", "value": "2"}
    assert first["containers"][0] is not second["containers"][0]
    assert pod(of, 0)["spec"]["containers"][0]["env"] is not first["containers"][0]["env"]


def test_pod_of_an_empty_template_must_still_be_ours() -> None:
    raw = pod(wanted(entryTemplate={}, workerTemplate={"metadata": None, "spec": None}), 1)
    assert raw["spec"] == {"schedulerName": "volcano"}
    assert "annotations" not in raw["metadata"]


@pytest.mark.covers("MS-22", "MS-28", "MS-32")
def test_service_must_be_headless_and_select_the_entry() -> None:
    raw = objects.service(wanted(), "a-3", "p", 7)
    prefix = "modelserving.volcano.sh/"
    place = {prefix + "group-name": "a-3", prefix + "role": "p", prefix + "role-id": "p-7"}
    assert raw["metadata"]["name"] == "a-3-p-7-0"
    assert raw["metadata"]["labels"] == {prefix + "name": "a", **place}
    assert raw["metadata"]["ownerReferences"] == [OWNER]
    assert raw["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {**place, prefix + "entry": "true"},
    }


@pytest.mark.covers("MS-22", "MS-28", "MS-77")
def test_revision_must_hold_all_roles_in_full_and_read_back_as_the_same() -> None:
    of = serving(role("p", 2, 1, maxUnavailable="50%"), role("q", 3, partition=1), by_role=True)
    stored = revision_object(of, 4)
    name = desired(of, ()).revision.name
    assert isinstance(stored, ControllerRevision)
    assert (stored.metadata.name, stored.revision) == (f"a-{name}", 4)
    assert (stored.metadata.labels.name, stored.metadata.labels.revision) == ("a", name)
    back = desired(of, [stored]).stored[name]
    assert back.number == 4
    assert [(r.name, r.replicas, r.workers, r.max_unavailable, r.partition) for r in back.roles.values()] == [
        ("p", 2, 1, "50%", None),
        ("q", 3, 0, 1, 1),
    ]
    assert not back.roles["p"].foreign


@pytest.mark.covers("MS-25")
def test_plan_must_make_pods_services_and_revisions_and_nothing_else() -> None:
    claims = manifests.pod_template(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    scene = Scene(serving(role("p", 2, 2, entryTemplate=claims), role("q"), replicas=2), stored=[])
    assert {type(each) for each in actions(scene.plan())} == {PersistRevision, CreateService, CreatePod}
    of = scene.desired
    made = [objects.controller_revision(of, of.revision, 1), objects.service(of, "a-0", "p", 0), pod(of)]
    assert [(raw["apiVersion"], raw["kind"]) for raw in made] == [
        ("apps/v1", "ControllerRevision"),
        ("v1", "Service"),
        ("v1", "Pod"),
    ]


def test_revision_must_be_encoded_as_the_api_server_would() -> None:
    assert (
        objects.encode_revision({"b": "<&>\u2028", "a": 1}) == b'{"a":1,"b":"\\u003c\\u0026\\u003e\\u2028"}'
    )
