"""What plugins change in a pod, in which pods, and what they never change."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from isthmus.api.meta import Raw
from isthmus.api.modelserving import ModelServing, Plugin
from isthmus.api.plugins import pod_tweaks
from isthmus.modelserving.plan import objects
from isthmus.modelserving.plan.desired import desired
from isthmus.modelserving.plan.gang import in_cluster
from isthmus.modelserving.plan.model import NO_OFFER
from tests.support import manifests
from tests.support.serving import role, serving

TWEAKS: Raw = {
    "runtimeClassName": "gvisor",
    "annotations": {"team": "x"},
    "env": [{"name": "EXTRA", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
}
LWS = "leaderworkerset.sigs.k8s.io/"


def tweak(config: Raw | None = TWEAKS, **scope: object) -> Raw:
    return {"name": "demo-pod-tweaks", "config": config, **({"scope": scope} if scope else {})}


def pod(of: ModelServing, index: int = 0, *, name: str = "p", ganged: bool = False) -> dict[str, Any]:
    wanted = in_cluster(desired(of, ()), of, NO_OFFER)
    template = wanted.revision.roles[name]
    return objects.pod(wanted, "a-3", template, wanted.revision.name, 7, index, ganged=ganged)


def env_of(raw_pod: Raw, field: str = "containers") -> list[str]:
    return [each["name"] for each in raw_pod["spec"][field][0]["env"]]


@pytest.mark.covers("MS-31", "MS-107", "MS-109")
def test_tweaks_must_reach_every_container_after_all_else() -> None:
    template = manifests.pod_template(initContainers=[manifests.container(name="init")])
    raw = pod(serving(role("p", entryTemplate=template), plugins=[tweak()]))
    assert raw["spec"]["runtimeClassName"] == "gvisor"
    assert raw["metadata"]["annotations"] == {"team": "x"}
    for field in ("containers", "initContainers"):
        assert env_of(raw, field) == ["GROUP_SIZE", "ENTRY_ADDRESS", "WORKER_INDEX", "EXTRA"]
    assert raw["spec"]["containers"][0]["env"][-1] == TWEAKS["env"][0]


@pytest.mark.covers("MS-107")
def test_plugins_must_work_in_the_order_of_the_list() -> None:
    first, second = ({"annotations": {"who": who}} for who in ("first", "second"))
    assert pod(serving(role("p"), plugins=[tweak(first), tweak(second)]))["metadata"]["annotations"] == {
        "who": "second"
    }


def test_plugin_that_does_not_exist_must_be_passed_over() -> None:
    of = serving(role("p"), plugins=[{"name": "none-such"}, tweak()])
    assert pod(of) == pod(serving(role("p"), plugins=[tweak()]))


@pytest.mark.covers("MS-109")
@pytest.mark.parametrize("config", [None, {}, {"runtimeClassName": "", "annotations": {}, "env": []}])
def test_tweaks_without_settings_must_change_nothing(config: Raw | None) -> None:
    assert pod(serving(role("p"), plugins=[tweak(config)])) == pod(serving(role("p")))


@pytest.mark.covers("MS-108")
@pytest.mark.parametrize(
    ("scope", "reached"),
    [
        ({}, {"p0", "p1", "q0"}),
        ({"roles": []}, {"p0", "p1", "q0"}),
        ({"roles": ["q"]}, {"q0"}),
        ({"target": "All"}, {"p0", "p1", "q0"}),
        ({"target": "Entry"}, {"p0", "q0"}),
        ({"target": "Worker"}, {"p1"}),
        ({"roles": ["q"], "target": "Worker"}, set()),
    ],
)
def test_scope_must_choose_roles_and_kinds_of_pods(scope: Raw, reached: set[str]) -> None:
    of = serving(role("p", 1, 1), role("q"), plugins=[tweak(**scope)])
    pods = {"p0": pod(of, 0), "p1": pod(of, 1), "q0": pod(of, 0, name="q")}
    assert {name for name, raw in pods.items() if "runtimeClassName" in raw["spec"]} == reached


@pytest.mark.covers("MS-425")
def test_each_pod_must_get_changes_of_its_own() -> None:
    of = serving(role("p", 1, 3), plugins=[tweak()])
    wanted = in_cluster(desired(of, ()), of, NO_OFFER)
    template = wanted.revision.roles["p"]
    made = [objects.pod(wanted, "a-0", template, "r", 0, index) for index in range(4)]
    assert all(env_of(raw).count("EXTRA") == 1 for raw in made)
    assert all(
        "env" not in raw["spec"]["containers"][0]
        for raw in (template.pod_template(0), template.pod_template(1))
    )


@pytest.mark.covers("MS-29", "MS-30", "MS-415")
def test_plugin_must_not_change_what_the_controller_sets() -> None:
    config = {
        "annotations": {"scheduling.k8s.io/group-name": "x", "volcano.sh/task-spec": "x"},
        "env": [{"name": "GROUP_SIZE", "value": "99"}, {"name": "MINE", "value": "1"}],
    }
    raw = pod(serving(role("p"), plugins=[tweak(config)]), ganged=True)
    assert raw["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "a-3",
        "volcano.sh/task-spec": "p-7",
    }
    env = {each["name"]: each["value"] for each in raw["spec"]["containers"][0]["env"]}
    assert (env["GROUP_SIZE"], env["MINE"]) == ("1", "1")


@pytest.mark.covers("MS-109")
def test_labels_of_leader_worker_sets_must_be_set_for_their_servings_only() -> None:
    of = serving(role("p", 1, 2), plugins=[{"name": "lws-standard-labels"}])
    plain = pod(of, 2)["metadata"]["labels"]
    assert not [key for key in plain if key.startswith(LWS)]
    owners = [
        {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "big", "uid": "u"}
    ]
    owned = msgspec.convert(
        {**msgspec.to_builtins(of.metadata), "ownerReferences": [{**owners[0], "controller": True}]},
        type(of.metadata),
    )
    labels = pod(msgspec.structs.replace(of, metadata=owned), 2)["metadata"]["labels"]
    assert {key.removeprefix(LWS): value for key, value in labels.items() if key.startswith(LWS)} == {
        "name": "big",
        "group-index": "3",
        "worker-index": "2",
        "group-key": hashlib.sha1(b"big-3", usedforsecurity=False).hexdigest(),
    }
    assert plain.items() <= labels.items()


@pytest.mark.covers("MS-107")
@pytest.mark.parametrize(
    "config", [[], "x", {"annotations": {"a": 1}}, {"env": [{"value": "nameless"}]}, {"env": {}}]
)
def test_settings_that_cannot_be_read_must_be_an_error_with_a_path(config: object) -> None:
    plugin = msgspec.convert({"name": "demo-pod-tweaks"}, Plugin)
    plugin = msgspec.structs.replace(plugin, config=msgspec.Raw(msgspec.json.encode(config)))
    with pytest.raises(msgspec.ValidationError):
        pod_tweaks(plugin)
