"""Which PodGroups there should be, what they say, and what happens where their API is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.meta import OwnerReference, Raw
from isthmus.api.modelserving import ModelServing
from isthmus.api.podgroups import PodGroup, PodGroupSpec
from isthmus.modelserving.plan import objects
from isthmus.modelserving.plan.desired import desired
from isthmus.modelserving.plan.gang import (
    FIELDS,
    FULL_OFFER,
    asks,
    in_cluster,
    is_same,
    pod_group_spec,
)
from isthmus.modelserving.plan.model import (
    NO_OFFER,
    Act,
    CreatePod,
    CreatePodGroup,
    DeletePodGroup,
    Desired,
    Facts,
    Offer,
    Plan,
    RepairPodGroup,
)
from isthmus.modelserving.plan.reconcile import Revisions, phase, plan
from tests.support import manifests
from tests.support.serving import (
    Scene,
    actions,
    conditions,
    in_words,
    pods_deleted,
    role,
    serving,
    unique,
    with_meta,
)

UNKNOWN = Offer(served=None)
OLD_API = Offer(served=True, fields={k: None for k in FIELDS if not k.startswith("subGroupPolicy")})
"""Volcano before 1.14 (MS-90)."""
HARD = {"mode": "hard", "highestTierAllowed": 1}


def asking(name: str, replicas: int = 1, workers: int = 0, **requests: str) -> Raw:
    """A role each of whose pods requests so much."""
    template = manifests.pod_template(manifests.container(resources={"requests": requests}))
    return role(name, replicas, workers, entryTemplate=template, workerTemplate=template)


def wanted(of: ModelServing, offer: Offer = FULL_OFFER) -> Desired:
    return in_cluster(desired(of, ()), of, offer)


def spec_of(of: ModelServing, offer: Offer = FULL_OFFER) -> PodGroupSpec:
    return pod_group_spec(wanted(of, offer))


class Gang(Scene):
    """A scene in a cluster with this offer; `pod_groups` are by name."""

    def __init__(self, of: ModelServing, offer: Offer = FULL_OFFER) -> None:
        super().__init__(of)
        self.offer = offer
        self.pod_groups: dict[str, PodGroup] = {}

    @property
    def wanted(self) -> Desired:
        return in_cluster(self.desired, self.serving, self.offer)

    def has_pod_group(self, name: str, of: ModelServing | None = None, **metadata: Any) -> Gang:
        """Add the PodGroup that `of` (by default the scene's own) asks for."""
        asked = wanted(of, FULL_OFFER) if of is not None else replace(self.wanted, offer=FULL_OFFER)
        raw = objects.pod_group(asked, name, pod_group_spec(asked))
        raw["metadata"] |= {"uid": unique("pg"), "resourceVersion": "1"}
        found = msgspec.convert(raw, PodGroup)
        self.pod_groups[name] = replace(found, metadata=replace(found.metadata, **metadata))
        return self

    def facts(self) -> dict[str, Facts]:
        found = super().facts()
        for name, pod_group in self.pod_groups.items():
            found[name] = replace(found.get(name, Facts()), pod_groups={name: pod_group})
        return found

    def planned(self) -> Plan:
        owned = Revisions(owned=tuple(self.revisions))
        return plan(self.wanted, self.groups(), owned, self.now)

    def words(self) -> list[str]:
        """What is done with PodGroups."""
        return [text for text in in_words(self.planned()) if "PodGroup" in text]


# What a PodGroup says


@pytest.mark.covers("MS-92", "MS-93", "MS-286")
def test_minimums_must_count_every_pod_of_every_role() -> None:
    roles = (asking("prefill", 2, 3, cpu="1", memory="2Gi"), asking("decode", 1, 2, cpu="3", memory="17Gi"))
    found = spec_of(serving(*roles))
    assert (found.min_member, found.min_resources) == (11, {"cpu": "17", "memory": "67Gi"})


@pytest.mark.covers("MS-92", "MS-93", "MS-286")
def test_minimums_must_count_what_the_gang_policy_names() -> None:
    roles = (asking("prefill", 2, 3, cpu="1"), asking("decode", 1, 2, cpu="2"))
    policy = {"gangPolicy": {"minRoleReplicas": {"prefill": 1, "decode": 1}}}
    found = spec_of(serving(*roles, template=policy))
    assert (found.min_member, found.min_resources) == (7, {"cpu": "10"})


@pytest.mark.covers("MS-92", "MS-426")
def test_minimum_above_a_roles_replicas_must_count_as_all_of_them() -> None:
    policy = {"gangPolicy": {"minRoleReplicas": {"p": 5}}}
    assert spec_of(serving(role("p", 2), role("q", 1), template=policy)).min_member == 3


@pytest.mark.covers("MS-92")
def test_minimum_of_none_must_ask_for_nothing() -> None:
    policy = {"gangPolicy": {"minRoleReplicas": {"p": 0}}}
    found = spec_of(serving(asking("p", 2, 0, cpu="1"), template=policy))
    assert (found.min_member, found.min_resources) == (0, {})


@pytest.mark.covers("MS-286")
def test_roles_without_replicas_must_ask_for_nothing() -> None:
    found = spec_of(serving(asking("p", 0, 2, cpu="1")))
    assert (found.min_member, found.min_resources) == (0, {})


@pytest.mark.covers("MS-93")
def test_only_requests_of_containers_must_count() -> None:
    template = manifests.pod_template(
        manifests.container(resources={"requests": {"cpu": "250m"}, "limits": {"nvidia.com/gpu": "8"}}),
        manifests.container(name="side", resources={"requests": {"cpu": 1, "memory": "1Gi"}}),
        initContainers=[manifests.container(name="init", resources={"requests": {"cpu": "9"}})],
        overhead={"cpu": "9"},
    )
    of = serving(role("p", 2, entryTemplate=template))
    assert spec_of(of).min_resources == {"cpu": "2500m", "memory": "2Gi"}


def test_request_that_is_no_quantity_must_be_left_out() -> None:
    assert spec_of(serving(asking("p", 1, 0, cpu="much", memory="1Gi"))).min_resources == {"memory": "1Gi"}


@pytest.mark.covers("MS-95", "MS-288")
def test_sub_groups_must_be_the_roles_in_order() -> None:
    of = serving(role("prefill", 3, 1), role("decode", 2), template={"gangPolicy": {"minRoleReplicas": {}}})
    raw = objects.pod_group(wanted(of), "a-0", spec_of(of))["spec"]
    prefix = "modelserving.volcano.sh/"
    assert raw["subGroupPolicy"] == tuple(
        {
            "name": name,
            "labelSelector": {"matchLabels": {prefix + "name": "a", prefix + "role": name}},
            "matchLabelKeys": (prefix + "role-id",),
            "subGroupSize": size,
            "minSubGroups": least,
        }
        for name, size, least in (("prefill", 2, 3), ("decode", 1, 2))
    )


@pytest.mark.covers("MS-94", "MS-95")
def test_topology_must_be_that_of_the_group_and_of_each_role_replica() -> None:
    policies = {"groupPolicy": HARD, "rolePolicy": {"mode": "soft", "highestTierName": "rack"}}
    of = serving(role("p"), template={"networkTopology": policies})
    raw = objects.pod_group(wanted(of), "a-0", spec_of(of))["spec"]
    assert raw["networkTopology"] == HARD
    assert raw["subGroupPolicy"][0]["networkTopology"] == {"mode": "soft", "highestTierName": "rack"}


@pytest.mark.covers("MS-90", "MS-95")
def test_older_api_must_get_no_sub_groups_and_only_the_groups_topology() -> None:
    policies = {"groupPolicy": HARD, "rolePolicy": HARD}
    of = serving(role("p"), template={"networkTopology": policies})
    raw = objects.pod_group(wanted(of), "a-0", spec_of(of, OLD_API))["spec"]
    assert raw.keys() == {"minMember", "minResources", "networkTopology"}


@pytest.mark.covers("MS-94")
def test_topology_of_role_replicas_alone_must_be_none_of_the_group() -> None:
    found = spec_of(serving(role("p"), template={"networkTopology": {"rolePolicy": HARD}}))
    assert found.network_topology is None
    assert found.sub_group_policy[0].network_topology is not None


def test_field_that_sub_groups_lack_must_be_left_out_of_them_alone() -> None:
    lacking = "subGroupPolicy.networkTopology"
    fields = {path: None for path in FIELDS if not path.startswith(lacking)}
    of = serving(role("p"), template={"networkTopology": {"groupPolicy": HARD, "rolePolicy": HARD}})
    found = spec_of(of, Offer(served=True, fields=fields))
    assert found.network_topology is not None
    assert found.sub_group_policy[0].network_topology is None
    assert found.sub_group_policy[0].match_label_keys == ("modelserving.volcano.sh/role-id",)


@pytest.mark.covers("MS-94")
def test_queue_must_be_that_of_the_annotation() -> None:
    of = serving(role("p"))
    queued = replace(
        of, metadata=replace(of.metadata, annotations={"scheduling.volcano.sh/queue-name": "gold"})
    )
    assert objects.pod_group(wanted(queued), "a-0", spec_of(queued))["spec"]["queue"] == "gold"
    assert "queue" not in objects.pod_group(wanted(of), "a-0", spec_of(of))["spec"]


@pytest.mark.covers("MS-28", "MS-91", "MS-92")
def test_pod_group_must_have_our_labels_annotation_and_owner() -> None:
    of = serving(role("p"))
    raw = objects.pod_group(wanted(of), "a-0", spec_of(of))
    assert raw["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert raw["metadata"] == {
        "name": "a-0",
        "namespace": "default",
        "labels": {"modelserving.volcano.sh/name": "a", "modelserving.volcano.sh/group-name": "a-0"},
        "annotations": {"scheduling.k8s.io/group-name": "a-0"},
        "ownerReferences": [
            {
                "apiVersion": "workload.serving.volcano.sh/v1alpha1",
                "kind": "ModelServing",
                "name": "a",
                "uid": "uid-a",
                "controller": True,
            }
        ],
    }
    assert "minTaskMember" not in raw["spec"]


EIGHT: dict[str, tuple[list[Raw], Raw, int, Raw, list[tuple[int | None, int | None]]]] = {
    # name: roles, template, minMember, minResources, (minSubGroups, subGroupSize) by role
    "sample": ([asking("prefill", 1, 3), asking("decode", 1, 3)], {}, 8, {}, [(1, 4), (1, 4)]),
    "gangPolicy": (
        [asking("prefill", 2, 1, cpu="100m"), asking("decode", 2, 1, cpu="100m")],
        {"gangPolicy": {"minRoleReplicas": {"prefill": 2, "decode": 1}}},
        6,
        {"cpu": "600m"},
        [(2, 2), (1, 2)],
    ),
    "network-topology": (
        [asking("prefill", 1, 1, cpu="100m"), asking("decode", 1, 1, cpu="100m")],
        {"networkTopology": {"groupPolicy": HARD, "rolePolicy": HARD}},
        4,
        {"cpu": "400m"},
        [(1, 2), (1, 2)],
    ),
    "multi-node": (
        [asking("llama-405b", 2, 1, cpu="125", **{"ephemeral-storage": "800Gi"})],
        {"gangPolicy": {"minRoleReplicas": {"llama-405b": 1}}},
        2,
        {"cpu": "250", "ephemeral-storage": "1600Gi"},
        [(1, 2)],
    ),
    "rollingupdate": ([asking("prefill", 1, 1), asking("decode", 1, 1)], {}, 4, {}, [(1, 2), (1, 2)]),
    "vllm-pd-multinode": (
        [asking("prefill", 1, 1), asking("decode", 1, 1)],
        {"gangPolicy": {"minRoleReplicas": {"prefill": 1, "decode": 1}}},
        4,
        {},
        [(1, 2), (1, 2)],
    ),
    "prefill-decode-disaggregation": (
        [
            asking(name, 1, 0, cpu="8", memory="64Gi", **{"huawei.com/ascend-1980": "4"})
            for name in ("prefill", "decode")
        ],
        {},
        2,
        {"cpu": "16", "memory": "128Gi", "huawei.com/ascend-1980": "8"},
        [(1, 1), (1, 1)],
    ),
}


@pytest.mark.covers("MS-92", "MS-93", "MS-94", "MS-95")
@pytest.mark.parametrize("name", EIGHT)
def test_pod_groups_of_the_examples_must_be_as_they_are_described(name: str) -> None:
    roles, template, members, resources, groups = EIGHT[name]
    found = spec_of(serving(*roles, name="sample", template=template))
    assert (found.min_member, found.min_resources) == (members, resources)
    assert [(each.min_sub_groups, each.sub_group_size) for each in found.sub_group_policy] == groups
    placed = [found.network_topology, *(each.network_topology for each in found.sub_group_policy)]
    assert all((each is not None) is ("networkTopology" in template) for each in placed)


# When a PodGroup is as it should be


@pytest.mark.covers("MS-423")
def test_same_amounts_written_otherwise_must_be_the_same() -> None:
    one = PodGroupSpec(min_member=1, min_resources={"cpu": "600m", "memory": "1Gi"})
    assert is_same(replace(one, min_resources={"cpu": 0.6, "memory": "1024Mi"}), one)
    assert not is_same(replace(one, min_resources={"cpu": "601m", "memory": "1Gi"}), one)
    assert not is_same(replace(one, min_resources={"cpu": "600m"}), one)
    assert not is_same(replace(one, min_resources={"cpu": "?", "memory": "1Gi"}), one)


@pytest.mark.covers("MS-423")
def test_no_queue_must_be_the_same_as_the_default_one() -> None:
    assert is_same(PodGroupSpec(queue="default"), PodGroupSpec())
    assert is_same(PodGroupSpec(), PodGroupSpec(queue="default"))
    assert not is_same(PodGroupSpec(queue="gold"), PodGroupSpec())


def test_default_that_the_api_fills_in_must_be_wanted_too() -> None:
    offer = Offer(served=True, fields={**FULL_OFFER.fields, "networkTopology.highestTierAllowed": 1})
    of = serving(role("p"), template={"networkTopology": {"groupPolicy": {"mode": "soft"}}})
    topology = spec_of(of, offer).network_topology
    assert topology is not None
    assert (topology.mode, topology.highest_tier_allowed) == ("soft", 1)
    assert spec_of(serving(role("p")), offer).network_topology is None


@pytest.mark.covers("MS-289", "MS-290", "MS-424")
def test_patch_must_set_what_is_wanted_and_remove_what_is_not() -> None:
    topology = {"groupPolicy": HARD, "rolePolicy": HARD}
    old = spec_of(serving(asking("p", 1, 0, cpu="1", memory="1Gi"), template={"networkTopology": topology}))
    new = spec_of(serving(asking("p", 2, 0, cpu="1")))
    change = objects.pod_group_change(replace(old, queue="gold"), new)["spec"]
    assert change.pop("subGroupPolicy")[0]["minSubGroups"] == 2
    assert change == {
        "minMember": 2,
        "minResources": {"cpu": "2", "memory": None},
        "queue": None,
        "networkTopology": None,
    }
    softer = {"networkTopology": {"groupPolicy": {"mode": "soft"}}}
    change = objects.pod_group_change(old, spec_of(serving(role("p"), template=softer)))["spec"]
    assert change["networkTopology"] == {"mode": "soft", "highestTierAllowed": None}


# Who asks


@pytest.mark.covers("MS-90", "R11")
@pytest.mark.parametrize(
    ("template", "scheduler", "answer"),
    [
        ({}, "volcano", False),
        ({"gangPolicy": {}}, "volcano", True),
        ({"gangPolicy": {"minRoleReplicas": {"p": 1}}}, "default-scheduler", False),
        ({"networkTopology": {}}, "volcano", False),
        ({"networkTopology": {"groupPolicy": {}}}, "volcano", True),
        ({"networkTopology": {"rolePolicy": {}}}, "volcano", True),
    ],
)
def test_gang_must_count_as_asked_for_only_in_so_many_words(
    template: Raw, scheduler: str, answer: bool
) -> None:
    assert asks(wanted(serving(role("p"), template=template, schedulerName=scheduler)).spec) is answer


# What is done


@pytest.mark.covers("MS-51", "MS-55", "MS-90", "MS-96", "MS-287")
def test_each_new_group_must_get_its_pod_group_before_its_pods() -> None:
    planned = Gang(serving(role("p", 2), replicas=3)).planned()
    made = actions(planned)
    groups = [each for each in made if isinstance(each, CreatePodGroup)]
    pods = [each for each in made if isinstance(each, CreatePod)]
    assert [each.group for each in groups] == ["a-0", "a-1", "a-2"]
    assert len(pods) == 6
    assert all(each.ganged for each in pods)
    assert max(phase(each) for each in groups) < min(phase(each) for each in pods)


@pytest.mark.covers("MS-30", "MS-90", "R11")
def test_other_scheduler_must_get_no_pod_groups_and_no_annotations() -> None:
    template = {"gangPolicy": {"minRoleReplicas": {"p": 1}}}
    scene = Gang(serving(role("p"), schedulerName="default-scheduler", template=template))
    made = actions(scene.planned())
    assert [type(each) for each in made] == [CreatePod]
    assert not any(each.ganged for each in made if isinstance(each, CreatePod))


@pytest.mark.covers("MS-30")
def test_ganged_pod_must_name_its_pod_group_and_task_whatever_the_template_says() -> None:
    keys = ("scheduling.k8s.io/group-name", "volcano.sh/task-spec")
    metadata = {"annotations": {keys[0]: "mine", "other": "kept"}}
    of = wanted(serving(role("p", entryTemplate={**manifests.pod_template(), "metadata": metadata})))
    template = of.revision.roles["p"]
    ganged = objects.pod(of, "a-3", template, "r", 7, 0, ganged=True)["metadata"]["annotations"]
    assert ganged == {keys[0]: "a-3", keys[1]: "p-7", "other": "kept"}
    plain = objects.pod(of, "a-3", template, "r", 7, 0)["metadata"]["annotations"]
    assert plain == metadata["annotations"]


@pytest.mark.covers("MS-96", "MS-89", "MS-282")
def test_pod_group_that_is_missing_must_come_back_and_leave_pods_alone() -> None:
    scene = Gang(serving(role("p"), replicas=2)).has_groups(0, 1)
    scene.has_pod_group("a-0")
    assert in_words(scene.planned()) == ["create PodGroup a-1"]


@pytest.mark.covers("MS-96", "MS-423")
def test_pod_groups_as_they_should_be_must_be_left_alone() -> None:
    scene = Gang(serving(role("p", 2), replicas=1)).has_group(0)
    assert scene.has_pod_group("a-0").words() == []


@pytest.mark.covers("MS-96", "MS-290", "MS-424")
@pytest.mark.parametrize(
    "former",
    [
        serving(role("p", 1)),
        serving(role("p", 2), template={"networkTopology": {"groupPolicy": HARD}}),
        serving(role("p", 2), role("q")),
    ],
    ids=["replicas", "topology", "roles"],
)
def test_pod_group_must_follow_the_present_spec_in_place(former: ModelServing) -> None:
    of = serving(role("p", 2))
    scene = Gang(of).has_group(0)
    scene.has_pod_group("a-0", former)
    assert scene.words() == ["repair PodGroup a-0"]
    (repair,) = (each for each in actions(scene.planned()) if isinstance(each, RepairPodGroup))
    assert repair.spec == spec_of(of)


@pytest.mark.covers("MS-96")
def test_protected_group_must_follow_the_present_spec_too() -> None:
    old, new = serving(role("p", 1, image="old"), partition=1), serving(role("p", 1, 1), partition=1)
    scene = Gang(new)
    scene.revisions = Scene(new, stored=[old, new]).revisions
    scene.has_group(0, of=old)
    scene.has_pod_group("a-0", old)
    assert in_words(scene.planned()) == ["repair PodGroup a-0"]


@pytest.mark.covers("MS-64", "MS-96")
def test_group_that_goes_must_take_its_pod_group_along() -> None:
    scene = Gang(serving(role("p"), replicas=1)).has_groups(0, 1)
    scene.has_pod_group("a-0").has_pod_group("a-1")
    assert in_words(scene.planned()) == ["delete PodGroup a-1", "delete pod a-1-p-0-0"]


OLD = serving(role("p", 1, 1, image="old"))


def rolling(**spec: Any) -> Gang:
    """A group of the old template, and the new one wanted."""
    of = serving(role("p", 1, 1), **spec)
    scene = Gang(of)
    scene.revisions = Scene(of, stored=[OLD, of]).revisions
    return scene.has_group(0, of=OLD).has_pod_group("a-0")


@pytest.mark.covers("MS-64", "MS-69", "MS-96")
def test_group_that_is_rolled_must_keep_its_pod_group_for_its_successor() -> None:
    scene = rolling()
    assert pods_deleted(scene.planned()) == {"a-0-p-0-0", "a-0-p-0-1"}
    assert scene.words() == []
    scene.terminate("a-0")
    assert scene.words() == []
    scene.pods.clear()
    scene.services.clear()
    assert scene.words() == []
    made = [each for each in actions(scene.planned()) if isinstance(each, CreatePod)]
    assert len(made) == 2
    assert all(each.ganged for each in made)


@pytest.mark.covers("MS-96")
def test_pod_group_of_a_group_that_is_rolled_must_follow_the_spec_meanwhile() -> None:
    scene = rolling()
    scene.has_pod_group("a-0", serving(role("p", 3)))
    assert scene.words() == ["repair PodGroup a-0"]
    scene.terminate("a-0")
    assert scene.words() == ["repair PodGroup a-0"]
    other = rolling(schedulerName="x")
    assert other.words() == ["delete PodGroup a-0"]


@pytest.mark.covers("MS-64", "MS-85")
def test_policy_of_whole_groups_must_take_the_pod_group_along_in_a_rollout_too() -> None:
    scene = rolling(recovery="ServingGroupRecreate")
    assert scene.words() == ["delete PodGroup a-0"]
    scene.terminate("a-0")
    assert scene.words() == ["delete PodGroup a-0"]


@pytest.mark.covers("MS-56", "MS-64", "R13")
def test_group_on_its_way_out_that_is_not_wanted_must_take_everything_along() -> None:
    scene = Gang(serving(role("p", 1, 1), replicas=0)).has_group(0).has_pod_group("a-0")
    scene.terminate("a-0")
    assert in_words(scene.planned()) == ["delete PodGroup a-0", "delete Service a-0-p-0-0"]


@pytest.mark.covers("MS-85", "MS-64")
def test_recovery_of_a_group_must_take_its_pod_group_along_and_wait_for_its_end() -> None:
    scene = Gang(serving(role("p", 2), recovery="ServingGroupRecreate")).has_group(0)
    scene.has_pod_group("a-0").terminate("a-0-p-0")
    assert in_words(scene.planned()) == ["delete PodGroup a-0", "delete pod a-0-p-1-0"]
    scene.pods.clear()
    scene.has_pod_group("a-0", deletion_timestamp="2026-01-01T00:00:00Z")
    planned = scene.planned()
    assert actions(planned) == ()
    assert planned.problems == ()


@pytest.mark.covers("MS-424")
def test_change_of_the_scheduler_must_end_gang_scheduling_and_keep_the_pods() -> None:
    scene = Gang(serving(role("p"), schedulerName="default-scheduler")).has_group(0)
    scene.has_pod_group("a-0")
    assert in_words(scene.planned()) == ["delete PodGroup a-0"]


@pytest.mark.parametrize(
    ("of", "name"),
    [
        (serving(role("p"), replicas=1), "a-4"),
        (serving(role("p"), replicas=1), "a-1"),
        (serving(role("p", 0), replicas=1), "a-0"),
        (serving(role("p"), replicas=1, schedulerName="x"), "a-0"),
        (serving(role("p"), replicas=1, schedulerName="x"), "a-3"),
    ],
    ids=["out of range", "just out of range", "no pods wanted", "other scheduler", "and out of range"],
)
def test_pod_group_that_stands_for_nothing_must_go(of: ModelServing, name: str) -> None:
    scene = Gang(of).has_pod_group(name)
    assert scene.words().count(f"delete PodGroup {name}") == 1


@pytest.mark.covers("MS-52", "MS-96")
def test_pod_group_that_waits_for_its_group_must_follow_the_spec_meanwhile() -> None:
    scene = Gang(serving(role("p"), replicas=2)).has_groups(5, 6)
    scene.has_pod_group("a-1", serving(role("p", 3)))
    assert "repair PodGroup a-1" in scene.words()
    begun = Gang(serving(role("p"), replicas=2)).has_pod_group("a-1", serving(role("p", 3)))
    assert begun.words().count("repair PodGroup a-1") == 1


def test_pod_group_from_a_pass_that_failed_must_be_used() -> None:
    scene = Gang(serving(role("p"))).has_pod_group("a-0")
    assert in_words(scene.planned()) == ["create pod a-0-p-0-0"]
    (made,) = actions(scene.planned())
    assert isinstance(made, CreatePod)
    assert made.ganged


def test_groups_without_pods_must_have_no_pod_groups() -> None:
    assert Gang(serving(role("p", 0), replicas=3)).words() == []
    scaled = Gang(serving(role("p", 0), replicas=1))
    scaled.has_instance("a-0", "p", 0)
    assert in_words(scaled.planned()) == ["delete pod a-0-p-0-0"]


def test_groups_of_others_objects_alone_must_be_none() -> None:
    scene = Gang(serving(role("p"), replicas=1)).has_groups(0, 3)
    owners = {"owner_references": STRANGER}
    scene.pods["a-3-p-0-0"] = with_meta(scene.pods["a-3-p-0-0"], **owners)
    assert scene.has_pod_group("a-0").words() == []


def test_nothing_must_be_made_before_the_revision_is_stored_elsewhere() -> None:
    scene = Gang(serving(role("p"), replicas=3))
    orphan = replace(scene.revisions[0], metadata=replace(scene.revisions[0].metadata, owner_references=()))
    scene.has_group(0, only=()).has_group(1)
    scene.has_pod_group("a-2")
    scene.revisions = []
    planned = plan(scene.wanted, scene.groups(), Revisions(orphans=(orphan,)), scene.now)
    assert in_words(planned) == [f"adopt controllerrevisions {orphan.metadata.name}"]


# Whose names are taken


STRANGER = (OwnerReference(api_version="v1", kind="Job", name="x", uid="u-x", controller=True),)


@pytest.mark.covers("MS-97", "R11")
def test_strangers_pod_group_must_hold_up_who_asks_and_be_told() -> None:
    for template, made in (({"gangPolicy": {}}, []), ({}, ["create pod a-0-p-0-0"])):
        scene = Gang(serving(role("p"), template=template)).has_pod_group("a-0", owner_references=STRANGER)
        planned = scene.planned()
        assert in_words(planned) == made
        assert planned.problems == (("NameTaken", "PodGroup a-0 belongs to Job x (u-x)"),)
        assert not any(each.ganged for each in actions(planned) if isinstance(each, CreatePod))


def test_pod_group_without_an_owner_must_be_adopted() -> None:
    scene = Gang(serving(role("p"))).has_pod_group("a-0", owner_references=())
    assert in_words(scene.planned()) == ["adopt podgroups a-0"]


# Where the API is not


@pytest.mark.covers("R11", "MS-99", "MS-30")
def test_who_asks_for_no_gang_must_not_notice_that_there_is_no_api() -> None:
    for offer in (NO_OFFER, UNKNOWN):
        scene = Gang(serving(role("p")), offer)
        planned = scene.planned()
        assert [type(each) for each in actions(planned)] == [CreatePod]
        assert planned.problems == ()
        assert not any(each.ganged for each in actions(planned) if isinstance(each, CreatePod))


@pytest.mark.covers("R11", "MS-99")
def test_who_asks_must_be_told_that_there_is_no_api_and_get_pods_without_a_gang() -> None:
    scene = Gang(serving(role("p"), template={"gangPolicy": {}}), NO_OFFER)
    planned = scene.planned()
    assert in_words(planned) == ["create pod a-0-p-0-0"]
    ((reason, text),) = planned.problems
    assert reason == "PodGroupApiMissing"
    assert "podgroups.scheduling.volcano.sh" in text
    assert "scheduling.volcano.sh/v1beta1" in text
    assert conditions(planned.status)["Progressing"] == ("False", "PodGroupApiMissing")
    scene.has_group(0)
    assert conditions(scene.planned().status)["Available"] == ("True", "AllGroupsReady")


@pytest.mark.covers("R11", "MS-97")
def test_who_asks_must_wait_while_nobody_knows_which_pod_groups_there_are() -> None:
    scene = Gang(serving(role("p"), template={"gangPolicy": {}}), UNKNOWN)
    planned = scene.planned()
    assert not isinstance(planned.decision, Act)
    assert [reason for reason, _ in planned.problems] == ["PodGroupsUnknown"]


@pytest.mark.covers("R11")
def test_unknown_pod_groups_must_be_left_alone() -> None:
    scene = Gang(serving(role("p", 2)), UNKNOWN).has_group(0)
    scene.has_pod_group("a-0", serving(role("p", 1)))
    assert actions(scene.planned()) == ()


@pytest.mark.covers("MS-441")
def test_api_that_comes_must_bring_pod_groups_and_leave_pods_as_they_are() -> None:
    scene = Gang(serving(role("p", 2), template={"gangPolicy": {}})).has_group(0)
    assert in_words(scene.planned()) == ["create PodGroup a-0"]
    scene.lose("a-0-p-1")
    (pod,) = (each for each in actions(scene.planned()) if isinstance(each, CreatePod))
    assert pod.ganged


def test_pod_groups_of_one_pass_must_be_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.modelserving.plan.gang.MAX_PODS_PER_PASS", 2)
    scene = Gang(serving(role("p"), replicas=4)).has_groups(0, 1, 2)
    assert in_words(scene.planned()) == ["create PodGroup a-0", "create PodGroup a-1"]


def test_deletion_must_come_with_that_of_the_pods() -> None:
    scene = Gang(serving(role("p"), replicas=0)).has_group(0)
    scene.has_pod_group("a-0")
    phases = {phase(each) for each in actions(scene.planned())}
    assert len(phases) == 1
    assert any(isinstance(each, DeletePodGroup) for each in actions(scene.planned()))
