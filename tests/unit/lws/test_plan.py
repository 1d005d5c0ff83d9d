"""Which ModelServing runs a LeaderWorkerSet, when it is brought in line, and whose it must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.decode import Unreadable
from isthmus.api.leaderworkerset import LeaderWorkerSet, LwsStatus
from isthmus.api.meta import OwnerReference, Raw
from isthmus.api.modelserving import ModelServing, Status
from isthmus.lws.plan import DIGEST, Create, Taken, Update, model_serving, plan, status
from tests.support.lws import decode, manifest
from tests.support.manifests import container, pod_template

LEADER = {
    "metadata": {"labels": {"part": "leader"}, "annotations": {"a": "1"}, "creationTimestamp": None},
    **pod_template(container(name="leader")),
}


def stored(lws: LeaderWorkerSet, **metadata: Any) -> ModelServing:
    """Its ModelServing as the API server would have it, with defaults in the templates."""
    raw = model_serving(lws)
    raw["metadata"] |= {"uid": "ms-1", "resourceVersion": "7", **metadata}
    for role in raw["spec"]["template"]["roles"]:
        for part in ("entryTemplate", "workerTemplate"):
            for each in role[part]["spec"]["containers"]:
                each["resources"] = {}
                each["terminationMessagePolicy"] = "File"
    return decoded(raw)


def decoded(raw: Raw) -> ModelServing:
    return msgspec.json.decode(msgspec.json.encode(raw), type=ModelServing)


@pytest.mark.covers("MS-111")
def test_serving_must_have_the_name_the_owner_and_one_role() -> None:
    lws = decode(manifest(replicas=3, size=4, leader=LEADER))
    raw = model_serving(lws)
    assert raw["metadata"]["name"] == "big"
    assert raw["metadata"]["namespace"] == "default"
    (owner,) = raw["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "name": "big",
        "uid": "lws-1",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    spec = raw["spec"]
    assert spec["replicas"] == 3
    assert spec["plugins"] == [{"name": "lws-standard-labels", "type": "BuiltIn"}]
    assert spec["template"] == {
        "roles": [
            {
                "name": "default",
                "replicas": 1,
                "workerReplicas": 3,
                "entryTemplate": {
                    "metadata": {"labels": {"part": "leader"}, "annotations": {"a": "1"}},
                    "spec": LEADER["spec"],
                },
                "workerTemplate": pod_template(),
            }
        ]
    }
    assert "schedulerName" not in spec


@pytest.mark.covers("MS-111", "MS-297")
@pytest.mark.parametrize(
    ("size", "workers"), [({}, 0), ({"size": None}, 0), ({"size": 1}, 0), ({"size": 4}, 3)]
)
def test_workers_must_be_the_size_without_the_leader(size: Raw, workers: int) -> None:
    raw = model_serving(decode(manifest(**size)))["spec"]
    assert raw["replicas"] == 1
    (role,) = raw["template"]["roles"]
    assert role["workerReplicas"] == workers
    assert role["entryTemplate"] == role["workerTemplate"] == pod_template()


@pytest.mark.covers("MS-111", "MS-297")
def test_labels_and_annotations_must_be_carried_over() -> None:
    annotations = {"note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    raw = model_serving(decode(manifest(), labels={"team": "x"}, annotations=annotations))["metadata"]
    assert raw["labels"] == {"team": "x"}
    assert {key: text for key, text in raw["annotations"].items() if key != DIGEST} == {"note": "x"}


def test_scheduler_of_the_leader_must_be_the_servings() -> None:
    leader = pod_template(schedulerName="default-scheduler")
    assert model_serving(decode(manifest(leader=leader)))["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.covers("MS-111")
def test_serving_that_is_missing_must_be_made() -> None:
    lws = decode(manifest())
    assert plan(lws, None) == Create(model_serving(lws))


@pytest.mark.covers("MS-438")
def test_defaults_and_settings_of_others_must_be_no_difference() -> None:
    lws = decode(manifest(leader=LEADER), labels={"team": "x"})
    raw = msgspec.json.decode(msgspec.json.encode(stored(lws)))
    assert plan(lws, stored(lws)) is None
    raw["spec"]["recoveryPolicy"] = "ServingGroupRecreate"
    raw["spec"]["template"]["gangPolicy"] = {"minRoleReplicas": {"default": 1}}
    raw["metadata"]["labels"]["more"] = "y"
    assert plan(lws, decoded(raw)) is None


@pytest.mark.covers("MS-112")
@pytest.mark.parametrize(
    "newer",
    [
        manifest(replicas=2, leader=LEADER),
        manifest(size=2, leader=LEADER),
        manifest(leader=LEADER, worker=pod_template(container(image="other:2"))),
        manifest(leader=pod_template(container(name="leader"))),
        manifest(),
    ],
    ids=["replicas", "size", "image", "fewer labels", "no leader"],
)
def test_every_change_must_be_carried_over(newer: Raw) -> None:
    old, new = decode(manifest(leader=LEADER)), decode(newer)
    step = plan(new, stored(old))
    assert isinstance(step, Update)
    assert step.patch["spec"] == model_serving(new)["spec"]
    assert step.patch["metadata"]["uid"] == "ms-1"
    assert step.patch["metadata"]["resourceVersion"] == "7"


@pytest.mark.covers("MS-112")
def test_what_somebody_changed_in_the_serving_must_be_put_back() -> None:
    lws = decode(manifest(leader=LEADER))
    changes: tuple[Callable[[Raw], object], ...] = (
        lambda spec: spec.update(replicas=9),
        lambda spec: spec.update(plugins=[]),
        lambda spec: spec["template"]["roles"][0].pop("workerTemplate"),
        lambda spec: spec["template"]["roles"].append({**spec["template"]["roles"][0], "name": "x"}),
        lambda spec: spec["template"]["roles"][0]["entryTemplate"]["spec"]["containers"][0].update(image="x"),
    )
    for change in changes:
        raw = msgspec.json.decode(msgspec.json.encode(stored(lws)))
        change(raw["spec"])
        assert isinstance(plan(lws, decoded(raw)), Update)
    unreadable = replace(stored(lws), spec=Unreadable(reason="no"))
    assert isinstance(plan(lws, unreadable), Update)


@pytest.mark.covers("MS-438")
def test_serving_of_another_must_be_left_alone() -> None:
    lws = decode(manifest())
    stranger = (OwnerReference(api_version="v1", kind="Job", name="x", uid="u", controller=True),)
    for owners, word in ((), "nobody"), (stranger, "Job x"):
        found = stored(lws)
        step = plan(lws, replace(found, metadata=replace(found.metadata, owner_references=owners)))
        assert isinstance(step, Taken)
        assert step.lasting
        assert word in step.why


def test_serving_of_a_former_set_must_be_waited_for() -> None:
    old, new = decode(manifest()), decode(manifest(), uid="lws-2")
    step = plan(new, stored(old))
    assert isinstance(step, Taken)
    assert not step.lasting
    dying = plan(old, stored(old, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert isinstance(dying, Taken)
    assert not dying.lasting


@pytest.mark.covers("MS-112")
def test_status_must_be_replicas_and_ready_ones() -> None:
    lws = decode(manifest())
    serving = replace(stored(lws), status=Status(replicas=3, available_replicas=2))
    assert status(serving) == LwsStatus(replicas=3, ready_replicas=2)
    assert status(None) == LwsStatus()
