"""Which groups are made, removed and replaced."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.api.meta import Raw
from isthmus.api.modelserving import ModelServing
from isthmus.modelserving.plan.draft import MAX_PODS_PER_PASS
from isthmus.modelserving.plan.model import Act, Blocked, CreatePod, DeleteService, Done
from tests.support.serving import (
    Scene,
    actions,
    costing,
    groups_of,
    in_words,
    pods_created,
    pods_deleted,
    role,
    serving,
    unready_status,
)


def created(scene: Scene) -> list[int]:
    return sorted(groups_of(pods_created(scene.plan())))


def deleted(scene: Scene) -> list[int]:
    return sorted(groups_of(pods_deleted(scene.plan())))


# Scaling


@pytest.mark.covers("MS-52", "MS-225", "MS-266")
@pytest.mark.parametrize(
    ("there", "replicas", "expected"),
    [
        ([], 3, [0, 1, 2]),
        ([0, 5], 4, [1, 2]),
        ([10], 3, [0, 1]),
        ([0, 1], 2, []),
        ([0, 1, 2], 2, []),
        ([1], 1, []),
    ],
)
def test_missing_groups_must_be_made_at_the_lowest_free_ordinals(
    there: list[int], replicas: int, expected: list[int]
) -> None:
    assert created(Scene(serving(role(), replicas=replicas)).has_groups(*there)) == expected


@pytest.mark.covers("MS-23")
def test_ordinals_must_be_compared_as_numbers() -> None:
    scene = Scene(serving(role(), replicas=9)).has_groups(*range(9), 10)
    assert deleted(scene) == [10]


@pytest.mark.covers(
    "MS-56", "MS-227", "MS-228", "MS-229", "MS-230", "MS-232", "MS-233", "MS-234", "MS-241", "MS-243"
)
@pytest.mark.parametrize(
    ("there", "costs", "unready", "replicas", "kept"),
    [
        ([0, 2, 5, 8], {}, [], 2, [0, 2]),
        ([0, 1, 2, 3], {}, [2], 2, [0, 1]),
        ([0, 1, 2, 3], {0: 100, 1: 50, 2: 0, 3: 75}, [], 2, [0, 3]),
        ([0, 1, 2, 3], {0: 0, 1: 7, 2: 1000, 3: 9}, [2], 2, [1, 3]),
        ([0, 1, 2, 3], {}, [0, 1, 2, 3], 2, [0, 1]),
        ([0, 1, 2, 3], {0: 5, 1: 5, 2: 5, 3: 5}, [], 2, [0, 1]),
        ([0, 1, 2], {0: -100}, [], 2, [1, 2]),
        ([0, 1, 2, 3], {3: 9}, [], 1, [3]),
        ([0, 1, 2, 3], {}, [1], 3, [0, 2, 3]),
        ([0, 1], {}, [], 0, []),
    ],
)
def test_surplus_groups_must_go_unready_ones_first_then_the_cheapest_then_the_highest(
    there: list[int], costs: dict[int, int], unready: list[int], replicas: int, kept: list[int]
) -> None:
    scene = Scene(serving(role(), replicas=replicas)).has_groups(*there)
    for number, cost in costs.items():
        scene.pods[f"a-{number}-p-0-0"] = costing(scene.pods[f"a-{number}-p-0-0"], cost)
    for number in unready:
        scene.set_status(f"a-{number}-", unready_status())
    assert deleted(scene) == sorted(set(there) - set(kept))


@pytest.mark.covers("MS-231")
def test_groups_on_their_way_out_must_count_and_go_first() -> None:
    scene = Scene(serving(role(), replicas=2)).has_groups(0, 1, 2).terminate("a-0")
    assert deleted(scene) == []
    scene = Scene(serving(role(), replicas=2)).has_groups(0, 1, 2, 3).terminate("a-0")
    assert deleted(scene) == [3]


@pytest.mark.covers("MS-237", "MS-238", "MS-435")
@pytest.mark.parametrize(
    ("partition", "there", "replicas", "kept"),
    [(3, 5, 3, [0, 1, 2]), (3, 5, 2, [0, 2]), (5, 4, 2, [0, 2])],
)
def test_protected_groups_must_go_last(partition: int, there: int, replicas: int, kept: list[int]) -> None:
    scene = Scene(serving(role(), replicas=replicas, partition=partition)).has_groups(*range(there))
    for number, cost in enumerate((2, 0, 1)):  # the cheapest of the protected is group 1
        scene.pods[f"a-{number}-p-0-0"] = costing(scene.pods[f"a-{number}-p-0-0"], cost)
    for number in range(3, there):
        scene.pods[f"a-{number}-p-0-0"] = costing(scene.pods[f"a-{number}-p-0-0"], 0 if partition < 5 else -1)
    if partition == 3:
        scene.set_status("a-0", unready_status()) if replicas == 3 else None
    assert deleted(scene) == sorted(set(range(there)) - set(kept))


@pytest.mark.covers("MS-242", "MS-243", "MS-280")
def test_groups_and_roles_must_scale_down_in_one_edit() -> None:
    before, after = serving(role("p", 2), replicas=2), serving(role("p", 1), replicas=1)
    scene = Scene(after, stored=[before]).has_groups(0, 1, of=before)
    for name, cost in (("a-1-p-1-0", 9), ("a-1-p-0-0", 1)):
        scene.pods[name] = costing(scene.pods[name], cost)
    assert pods_deleted(scene.plan()) == {"a-0-p-0-0", "a-0-p-1-0", "a-1-p-0-0"}


@pytest.mark.covers("MS-410")
def test_no_groups_wanted_and_none_there_must_be_done() -> None:
    scene = Scene(serving(role(), replicas=0))
    assert isinstance(scene.plan().decision, Done)


@pytest.mark.covers("MS-52", "MS-224", "R14")
@pytest.mark.parametrize(
    "spec",
    [
        serving(role(), replicas=2**31 - 1),
        serving(role(replicas=2**31 - 1)),
        serving(role(workers=2**31 - 1)),
        serving(role(replicas=2**31 - 1, partition="50%"), by_role=True, replicas=2**31 - 1),
        serving(role(), replicas=2**31 - 1, partition=2**31 - 1),
        serving(role(), replicas=2**31 - 1, partition="100%"),
    ],
)
def test_plan_for_the_largest_counts_must_be_bounded_and_fast(spec: ModelServing) -> None:
    scene = Scene(spec)
    for _ in range(2):
        began = time.perf_counter()
        planned = scene.reported()
        assert time.perf_counter() - began < 2
        pods = [each for each in actions(planned) if isinstance(each, CreatePod)]
        assert MAX_PODS_PER_PASS <= len(pods) <= MAX_PODS_PER_PASS + 1
        assert len(planned.status.conditions[0].message) < 5000
        first = pods[0]
        scene.has_instance(first.group, "p", 0) if first.template.workers < 10 else None


@pytest.mark.covers("MS-299")
def test_any_number_of_groups_that_need_no_pods_must_be_available_at_once() -> None:
    scene = Scene(serving(role(replicas=0), replicas=2**31 - 1))
    planned = scene.plan()
    assert isinstance(planned.decision, Done)
    assert planned.status.available_replicas == planned.status.replicas == 2**31 - 1
    assert planned.status.updated_replicas == planned.status.current_replicas == 2**31 - 1


# Partition


OLD, NEW = serving(role("p"), role("q")), serving(role("p", image="two"), replicas=2)


def rolled(**spec: Any) -> Scene:
    """History holds p and q; the spec has p only, with another image."""
    after = serving(role("p", image="two"), **spec)
    scene = Scene(after, stored=[OLD, after])
    return scene.reports(current_revision=scene.revision(OLD).name)


def made_from(scene: Scene) -> dict[int, set[str]]:
    """Group -> roles and images of the pods that are made for it."""
    found: dict[int, set[str]] = {}
    for each in actions(scene.plan()):
        if isinstance(each, CreatePod):
            number = int(each.group.removeprefix("a-"))
            image = each.template.pod_template(0)["spec"]["containers"][0]["image"]
            assert scene.desired.revision_named(each.revision)
            found.setdefault(number, set()).add(f"{each.template.name}:{image}")
    return found


@pytest.mark.covers("MS-53", "MS-250", "MS-251", "MS-252", "MS-253", "MS-254")
@pytest.mark.parametrize(
    ("partition", "there", "replicas", "old", "new"),
    [
        (2, [0, 1], 4, [], [2, 3]),
        (2, [0, 2], 4, [1], [3]),
        (3, [0, 3, 4], 5, [1, 2], []),
        (None, [0, 1], 3, [], [2]),
        (3, [0, 2], 3, [1], []),
        ("50%", [], 3, [0, 1], [2]),
    ],
)
def test_new_groups_below_the_partition_must_be_made_as_the_old_ones(
    partition: Any, there: list[int], replicas: int, old: list[int], new: list[int]
) -> None:
    scene = rolled(replicas=replicas, partition=partition)
    scene.has_groups(*(number for number in there if number < 3), of=OLD)
    scene.has_groups(*(number for number in there if number >= 3))
    assert made_from(scene) == {
        **{number: {"p:one", "q:one"} for number in old},
        **{number: {"p:two"} for number in new},
    }


@pytest.mark.covers("MS-53", "MS-405")
def test_group_of_which_only_a_service_is_left_must_be_made_as_the_old_ones() -> None:
    old = serving(role("p", 1, 1), replicas=2)
    after = serving(role("p", 1, 1, image="two"), replicas=2, partition=1)
    scene = Scene(after, stored=[old, after]).has_group(0, of=old).has_group(1).lose("a-0")
    scene.reports(current_revision=scene.revision(old).name)
    assert made_from(scene) == {0: {"p:one"}}
    assert "delete Service a-0-p-0-0" not in in_words(scene.plan())
    status = scene.plan().status
    assert (status.replicas, status.updated_replicas, status.available_replicas) == (2, 1, 1)
    assert status.current_revision == scene.revision(old).name


@pytest.mark.covers("MS-255")
def test_lost_history_below_the_partition_must_be_replaced_by_the_spec_under_its_own_name() -> None:
    after = serving(role("p", image="two"), replicas=2, partition=2)
    scene = Scene(after).has_group(0, of=OLD).reports(current_revision="lost")
    assert made_from(scene) == {1: {"p:two"}}


@pytest.mark.covers("MS-76", "MS-446")
def test_newest_other_revision_must_stand_in_for_a_lost_one() -> None:
    third = serving(role("p", image="three"), replicas=1, partition=1)
    scene = Scene(third, stored=[OLD, NEW, third]).reports(current_revision="lost")
    assert made_from(scene) == {0: {"p:two"}}


@pytest.mark.covers("MS-300")
def test_network_topology_that_is_taken_away_must_change_nothing() -> None:
    topology = {"networkTopology": {"groupPolicy": {"mode": "hard", "highestTierAllowed": 1}}}
    scene = Scene(serving(role("p", 2, 1), template=topology)).has_group(0)
    scene.serving = serving(role("p", 2, 1), generation=2)
    assert isinstance(scene.plan().decision, Done)


@pytest.mark.covers("MS-53")
def test_partition_on_a_new_serving_must_protect_nothing() -> None:
    scene = Scene(serving(role("p"), replicas=2, partition=5))
    assert made_from(scene) == {0: {"p:one"}, 1: {"p:one"}}


@pytest.mark.covers("MS-53", "MS-405")
def test_lost_status_must_not_lose_the_protection() -> None:
    scene = rolled(replicas=3, partition=2).has_groups(0, 2, of=OLD).reports(current_revision="")
    assert made_from(scene)[1] == {"p:one", "q:one"}


@pytest.mark.covers("MS-53", "MS-102")
def test_lost_status_must_be_made_up_from_the_groups_and_not_from_the_newest_history() -> None:
    third = serving(role("p", image="three"), replicas=2, partition=2)
    scene = Scene(third, stored=[OLD, NEW, third]).has_group(0, of=OLD)
    assert made_from(scene) == {1: {"p:one", "q:one"}}


@pytest.mark.covers("MS-256", "MS-412", "MS-413")
def test_protected_group_must_take_its_templates_from_history_and_its_counts_from_the_spec() -> None:
    old = serving(role("p", 1, 1))
    after = serving(role("p", 2, image="two"), partition=1)
    scene = Scene(after, stored=[old, after]).has_group(0, of=old).lose("a-0-p-0-1")
    assert made_from(scene) == {0: {"p:one"}}
    assert pods_created(scene.plan()) == {"a-0-p-0-1", "a-0-p-1-0", "a-0-p-1-1"}


# Rollout


def rolling(there: int, max_unavailable: Any = 1, **spec: Any) -> Scene:
    """All groups ready at the old image; `spec` adds to the new spec."""
    after = serving(role(image="two"), **{"replicas": there, "max_unavailable": max_unavailable, **spec})
    before = serving(role(), replicas=there)
    return Scene(after, stored=[before, after]).has_groups(*range(there), of=before)


@pytest.mark.covers("MS-70", "MS-79", "MS-249", "MS-260", "MS-421")
@pytest.mark.parametrize(
    ("max_unavailable", "expected"), [(1, [3]), (2, [2, 3]), ("50%", [2, 3]), ("10%", [3]), (9, [0, 1, 2, 3])]
)
def test_rollout_must_take_the_highest_ordinals_within_the_budget(
    max_unavailable: Any, expected: list[int]
) -> None:
    assert deleted(rolling(4, max_unavailable)) == expected


@pytest.mark.covers("MS-260")
def test_rollout_without_a_strategy_must_take_one_group() -> None:
    scene = rolling(3)
    spec = replace(scene.desired.spec, rollout_strategy=None)
    scene.serving = replace(scene.serving, spec=spec)
    assert deleted(scene) == [2]


@pytest.mark.covers("R01", "MS-260")
def test_rollout_must_take_broken_groups_first_and_for_free() -> None:
    assert deleted(rolling(4).set_status("a-1", unready_status())) == [1]
    assert deleted(rolling(4).set_status("a-0", unready_status()).set_status("a-1", unready_status())) == [
        0,
        1,
    ]
    assert deleted(rolling(4, 2).set_status("a-0", unready_status())) == [0, 3]
    assert deleted(rolling(4).set_status("a", unready_status())) == [0, 1, 2, 3]


@pytest.mark.covers("R03")
def test_groups_being_deleted_or_missing_must_use_the_budget() -> None:
    assert deleted(rolling(4, 2).terminate("a-3")) == [2]
    assert deleted(rolling(4, 2).lose("a-3")) == [2]
    assert deleted(rolling(4, 1).lose("a-3")) == []


@pytest.mark.covers("MS-419")
def test_unready_protected_group_must_use_the_budget() -> None:
    assert deleted(rolling(4, 1, partition=1).set_status("a-0", unready_status())) == []
    assert deleted(rolling(4, 2, partition=1).set_status("a-0", unready_status())) == [3]


@pytest.mark.covers("MS-69", "MS-257")
def test_rollout_must_stop_at_the_partition() -> None:
    scene = rolling(3, 3, partition=2)
    assert deleted(scene) == [2]
    assert isinstance(rolling(3, 3, partition=3).plan().decision, Done)


@pytest.mark.covers("MS-80")
def test_scale_up_and_new_template_in_one_edit_must_fill_first() -> None:
    scene = rolling(2, replicas=4)
    assert (created(scene), deleted(scene)) == ([2, 3], [])
    scene = rolling(2, replicas=4, max_unavailable=3)
    assert (created(scene), deleted(scene)) == ([2, 3], [1])


@pytest.mark.covers("MS-56", "MS-70", "INV-1")
def test_scale_down_and_new_template_in_one_edit_must_keep_the_rest() -> None:
    scene = rolling(4, replicas=2)
    assert deleted(scene) == [1, 2, 3]  # two are too many, one is the budget


@pytest.mark.covers("MS-70", "MS-404", "R01")
@pytest.mark.parametrize("count", [1, 3])
def test_role_scaled_and_rolled_in_one_edit_must_not_free_the_whole_fleet(count: int) -> None:
    before = serving(role("p", 2), replicas=4)
    after = serving(role("p", count, image="two"), replicas=4)
    scene = Scene(after, stored=[before, after]).has_groups(0, 1, 2, 3, of=before)
    whole = {
        number for number in range(4) if {f"a-{number}-p-{i}-0" for i in (0, 1)} <= pods_deleted(scene.plan())
    }
    assert whole == {3}
    # Nor once the groups that wait have a new instance that is not ready yet.
    if count == 3:
        old = replace(scene.desired, revision=scene.revision(before))
        for number in range(3):
            scene.has_instance(f"a-{number}", "p", 2, of=old, status=unready_status())
        scene.lose("a-3")
        assert pods_deleted(scene.plan()) == set()


@pytest.mark.covers("MS-404")
def test_group_that_waits_must_be_repaired_from_its_own_templates() -> None:
    before = serving(role("p", 2, 2), role("q"), replicas=2)
    after = serving(role("p", 2, 3, image="two"), role("r"), replicas=2)
    scene = Scene(after, stored=[before, after]).has_groups(0, 1, of=before)
    scene.lose("a-0-p-0-2").terminate("a-1")
    made = [each for each in actions(scene.plan()) if isinstance(each, CreatePod)]
    assert [(each.group, each.template.name, each.index) for each in made] == [("a-0", "p", 2)]
    assert made[0].revision == scene.revision(before).name


@pytest.mark.covers("MS-63", "MS-74")
def test_role_added_and_removed_in_one_edit_must_roll_whole_groups() -> None:
    before, after = serving(role("p"), role("q"), replicas=2), serving(role("p"), role("r"), replicas=2)
    scene = Scene(after, stored=[before, after]).has_groups(0, 1, of=before)
    assert pods_deleted(scene.plan()) == {"a-1-p-0-0", "a-1-q-0-0"}
    assert pods_created(scene.plan()) == set()


@pytest.mark.covers("MS-70")
def test_rollout_that_waits_must_say_so() -> None:
    scene = rolling(4).set_status("a-3", unready_status())
    scene.lose("a-3").has_group(3)
    scene.set_status("a-3", unready_status())
    decision = scene.reported().decision
    assert isinstance(decision, Blocked)
    assert decision.reasons == ("3 outdated groups wait: at most 1 may be unavailable",)


@pytest.mark.covers("MS-64", "MS-85")
def test_deleted_group_must_keep_the_services_it_has_again_and_come_back_only_when_its_pods_are_gone() -> (
    None
):
    scene = Scene(serving(role("p", 1, 1), role("q"), recovery="ServingGroupRecreate")).has_group(0)
    scene.terminate("a-0-p-0-1")
    assert in_words(scene.plan()) == ["delete pod a-0-p-0-0", "delete pod a-0-q-0-0"]
    scene.terminate("a-0")
    decision = scene.reported().decision
    assert isinstance(decision, Blocked)
    scene.lose("a-0")
    assert in_words(scene.plan()) == [
        "create pod a-0-p-0-0",
        "create pod a-0-p-0-1",
        "create pod a-0-q-0-0",
    ]


@pytest.mark.covers("MS-64")
@pytest.mark.parametrize(
    ("now", "gone"),
    [
        (role("p", 2, 1, image="new"), set()),
        (role("p", 1, 1, image="new"), {"a-0-p-1-0"}),
        (role("p", 2, image="new"), {"a-0-p-0-0", "a-0-p-1-0"}),
        (role("o", 2, 1, image="new"), {"a-0-p-0-0", "a-0-p-1-0"}),
    ],
)
def test_replaced_group_must_lose_only_the_services_that_it_will_not_have_again(
    now: Raw, gone: set[str]
) -> None:
    before = serving(role("p", 2, 1), replicas=1)
    scene = Scene(serving(now, replicas=1), stored=[before]).has_group(0, of=before)
    planned = actions(scene.plan())
    assert {each.service.metadata.name for each in planned if isinstance(each, DeleteService)} == gone


@pytest.mark.covers("MS-64", "MS-56")
def test_surplus_group_must_lose_all_its_services() -> None:
    scene = Scene(serving(role("p", 1, 1), replicas=1)).has_groups(0, 1)
    assert "delete Service a-1-p-0-0" in in_words(scene.plan())
    scene.terminate("a-1")
    assert in_words(scene.plan()) == ["delete Service a-1-p-0-0"]
    other = Scene(serving(role("p", 1, 1), replicas=1)).has_groups(0, 1).terminate("a-0")
    assert in_words(other.plan()) == ["delete Service a-0-p-0-0"]  # on its way out, so it is the one too many


def test_act_must_give_a_bounded_number_of_reasons_quickly() -> None:
    scene = Scene(serving(role(replicas=0), replicas=1, recovery="None")).has_groups(0)
    many = Scene(serving(role("p", 3000))).has_group(0)
    scene.pods = many.pods
    began = time.perf_counter()
    decision = scene.plan().decision
    assert isinstance(decision, Act)
    assert time.perf_counter() - began < 2
    assert len(decision.actions) == 3000
    assert len(decision.reasons) <= 100
