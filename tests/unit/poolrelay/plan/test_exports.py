"""Which exports there are, which names can be, whose they are, and what is written (sections 5 to 8)."""

from __future__ import annotations

import pytest

from isthmus.api.karmada import NAME_LIMIT
from isthmus.api.meta import OwnerReference
from isthmus.api.poolrelay import ExportSpec, ServiceExport
from isthmus.poolrelay.plan.exports import name_problem, wanted
from isthmus.poolrelay.plan.model import (
    CreateExport,
    DeleteExport,
    Frontend,
    Pool,
    Reason,
    RepairExport,
)
from isthmus.poolrelay.plan.reconcile import plan
from tests.support.relays import (
    export,
    graph,
    observed,
    owner,
    pool,
    raw_owner,
    relay,
    settings,
    steps,
    told,
    twice,
)

OURS = owner()
USER = OwnerReference(api_version="v1", kind="ConfigMap", name="mine", uid="user-uid", controller=True)


def names(seen: Pool, implementation: str = "mcs") -> list[str]:
    """The names that are wanted and can be."""
    return [each.name for each in wanted("east", seen, implementation).values() if not each.problem]


@pytest.mark.covers("PR-37", "PR-40", "PR-41", "PR-42", "PR-60", "T-1", "T-16")
def test_pool_must_have_its_relay_and_frontend_exported() -> None:
    planned, _ = twice(observed(pool()))
    assert steps(planned) == ["Create east-pool-relay", "Create east-frontend"]
    (_, second) = planned.exports
    assert isinstance(second, CreateExport)
    assert second.body == {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceExport",
        "metadata": {
            "name": "east-frontend",
            "namespace": "serving",
            "labels": {"nvidia.com/dynamo-graph-deployment-name": "east"},
            "ownerReferences": [raw_owner()],
        },
    }


@pytest.mark.covers("PR-9", "T-24")
def test_export_must_be_made_in_the_version_of_the_gate() -> None:
    planned = plan(observed(pool()), settings(export_version="v1beta1"))
    versions = {step.body["apiVersion"] for step in planned.exports if isinstance(step, CreateExport)}
    assert versions == {"multicluster.x-k8s.io/v1beta1"}


@pytest.mark.covers("PR-38", "PR-43", "T-2")
def test_two_frontends_must_each_be_exported_and_one_service_once() -> None:
    two = graph("east", [Frontend("Frontend", "east-frontend"), Frontend("Api.v2", "east-api-v2")])
    planned, _ = twice(observed(two))
    assert steps(planned)[1:] == ["Create east-frontend", "Create east-api-v2"]
    same = graph("east", [Frontend("a.b", "east-a-b"), Frontend("a-b", "east-a-b")])
    planned, _ = twice(observed(same))
    assert steps(planned)[1:] == ["Create east-a-b"]
    assert told(planned) == ["ServiceNameCollision"]


@pytest.mark.covers("PR-44", "PR-70", "T-3")
def test_renamed_frontend_must_swap_its_export_in_one_pass() -> None:
    kept, old = export("east-pool-relay", OURS), export("east-frontend", OURS)
    planned, _ = twice(observed(pool("east", "Gateway"), kept, old))
    assert steps(planned) == ["Create east-gateway", "Delete east-frontend"]


@pytest.mark.covers("PR-45", "T-4")
def test_pool_without_a_frontend_must_keep_its_relay_exported_and_say_so() -> None:
    planned, _ = twice(observed(graph("east", [])))
    assert steps(planned) == ["Create east-pool-relay"]
    assert told(planned) == ["NoFrontend"]


@pytest.mark.covers("PR-49", "PR-54", "T-5")
def test_impossible_name_must_be_skipped_and_hinder_no_other() -> None:
    long = "east-" + "x" * 59
    seen = graph("east", [Frontend("Long", long), Frontend("Frontend", "east-frontend")])
    planned, _ = twice(observed(seen))
    assert steps(planned) == ["Create east-pool-relay", "Create east-frontend"]
    assert told(planned) == ["InvalidServiceName"]
    (event,) = planned.events
    assert f"{long} (64)" in event.note
    assert "more" not in event.note
    only = twice(observed(graph("east", [Frontend("Long", long)])))[0]
    assert told(only) == ["InvalidServiceName"]


@pytest.mark.parametrize(
    ("length", "implementation", "problem"),
    [
        pytest.param(55, "karmada", "", marks=pytest.mark.covers("T-87", "R40")),
        pytest.param(56, "karmada", "ServiceNameTooLong", marks=pytest.mark.covers("PR-50", "T-8", "T-87")),
        pytest.param(56, "mcs", "", marks=pytest.mark.covers("PR-51", "T-8")),
        pytest.param(63, "mcs", "", marks=pytest.mark.covers("PR-51", "T-88", "R32")),
        pytest.param(63, "karmada", "ServiceNameTooLong", marks=pytest.mark.covers("PR-50", "R40")),
        pytest.param(64, "mcs", "InvalidServiceName", marks=pytest.mark.covers("PR-49", "T-88", "R32")),
        pytest.param(70, "karmada", "InvalidServiceName", marks=pytest.mark.covers("PR-53", "T-91")),
    ],
)
def test_name_must_be_judged_by_its_length(length: int, implementation: str, problem: str) -> None:
    assert name_problem("e" * length, implementation) == problem


@pytest.mark.covers("PR-49", "T-90")
@pytest.mark.parametrize("name", ["1east-frontend", "east_frontend", "East", "east-", "", "é"])
def test_name_that_is_no_dns_label_must_be_impossible(name: str) -> None:
    assert name_problem(name, "mcs") == "InvalidServiceName"


@pytest.mark.covers("PR-50", "T-89", "R40")
@pytest.mark.parametrize(("length", "exported"), [(43, True), (44, True), (45, False)])
def test_relay_of_44_characters_must_be_the_longest_under_karmada(length: int, exported: bool) -> None:
    name = "e" * length
    seen = observed(graph(name, [Frontend("Frontend", "east-frontend")]), of=relay(name))
    planned, _ = twice(seen, settings("karmada"))
    assert (f"Create {name}-pool-relay" in steps(planned)) is exported
    assert "Create east-frontend" in steps(planned)
    assert told(planned) == ([] if exported else ["ServiceNameTooLong"])


@pytest.mark.covers("PR-52", "T-9", "R40")
def test_export_whose_name_karmada_cannot_take_must_be_withdrawn_if_it_is_ours() -> None:
    long = "e" * (NAME_LIMIT + 1)
    seen = graph("east", [Frontend("Frontend", long)])
    planned, _ = twice(
        observed(seen, export(long, OURS), export("east-pool-relay", OURS)), settings("karmada")
    )
    assert steps(planned) == [f"Delete {long}"]
    foreign = plan(observed(seen, export(long, USER), export("east-pool-relay", OURS)), settings("karmada"))
    assert steps(foreign) == []


@pytest.mark.covers("PR-38", "T-92")
def test_export_must_follow_the_service_and_not_the_components_name() -> None:
    assert names(pool("east", "Gateway")) == ["east-pool-relay", "east-gateway"]


@pytest.mark.covers("PR-39")
def test_frontend_that_no_discovery_finds_must_be_noted() -> None:
    notes = plan(observed(pool("east", "Frontend", "Api")), settings()).notes
    assert len(notes) == 1
    assert notes[0].startswith("east-api ")
    assert plan(observed(pool("east", "Api", kind="ModelServing")), settings()).notes == ()


# Whose it is


@pytest.mark.parametrize(
    "owners",
    [
        pytest.param((), marks=pytest.mark.covers("T-6", "T-99"), id="a user's"),
        pytest.param((USER,), marks=pytest.mark.covers("T-6"), id="another kind's"),
        pytest.param(
            (owner("west", "other-uid"),), marks=pytest.mark.covers("T-7", "T-101"), id="another relay's"
        ),
        pytest.param(
            (owner(uid="earlier"),), marks=pytest.mark.covers("T-95", "T-97"), id="an earlier relay's"
        ),
        pytest.param((owner(controller=False),), marks=pytest.mark.covers("T-96"), id="not controlled by us"),
        pytest.param((owner(controller=False), USER), marks=pytest.mark.covers("PR-59"), id="taken over"),
    ],
)
@pytest.mark.covers("PR-55", "PR-56", "PR-58", "PR-59")
def test_foreign_export_must_be_left_alone_and_replaced_once_it_is_gone(
    owners: tuple[OwnerReference, ...],
) -> None:
    foreign = export("east-frontend", *owners, label="wrong")
    seen = observed(pool(), export("east-pool-relay", OURS), foreign)
    planned, after = twice(seen)
    assert steps(planned) == []
    assert after.exports["east-frontend"] is foreign
    withdrawn = plan(observed(None, foreign), settings())
    assert withdrawn.exports == ()
    gone = plan(observed(pool(), export("east-pool-relay", OURS)), settings())
    assert steps(gone) == ["Create east-frontend"]


@pytest.mark.covers("PR-115")
def test_foreign_export_must_be_noted_with_its_owner() -> None:
    notes = plan(observed(pool(), export("east-frontend", USER)), settings()).notes
    assert notes == ("ServiceExport east-frontend is left alone: it is controlled by ConfigMap mine",)
    free = plan(observed(pool(), export("east-frontend")), settings()).notes
    assert free == ("ServiceExport east-frontend is left alone: it is controlled by nobody",)


@pytest.mark.covers("PR-115")
def test_export_of_ours_must_not_be_noted_whatever_its_state() -> None:
    ours, dying = export("east-pool-relay", OURS), export("east-frontend", OURS, dying=True)
    assert plan(observed(pool(), ours, dying), settings()).notes == ()
    assert plan(observed(pool(), ours, export("east-frontend", OURS, label="")), settings()).notes == ()
    long = graph("east", [Frontend("F", "x" * 60 + "-frontend")])
    assert plan(observed(long, ours), settings()).notes == ()


@pytest.mark.covers("PR-57", "T-11", "T-15", "T-53")
@pytest.mark.parametrize("owners", [(OURS,), (USER,), ()])
def test_terminating_export_must_be_left_until_it_is_gone(owners: tuple[OwnerReference, ...]) -> None:
    dying = export("east-frontend", *owners, label="wrong", dying=True)
    assert steps(plan(observed(pool(), export("east-pool-relay", OURS), dying), settings())) == []
    assert steps(plan(observed(None, dying), settings())) == []


@pytest.mark.covers("PR-69", "PR-70", "T-98")
def test_withdrawal_must_find_exports_by_their_owner_and_not_by_their_label() -> None:
    seen = observed(None, export("east-frontend", OURS, label=""), export("east-old", OURS), export("other"))
    planned, _ = twice(seen)
    assert steps(planned) == ["Delete east-frontend", "Delete east-old"]
    assert planned.withdrawn is not None
    assert planned.withdrawn.reason is Reason.GRAPH_NOT_FOUND


@pytest.mark.covers("PR-67")
def test_deletion_must_carry_the_export_that_was_read() -> None:
    ours = export("east-frontend", OURS)
    (step,) = plan(observed(None, ours), settings()).exports
    assert isinstance(step, DeleteExport)
    assert step.export is ours


# Repair


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(
            export("east-frontend", OURS, label=""), marks=pytest.mark.covers("T-29"), id="no label"
        ),
        pytest.param(
            export("east-frontend", OURS, label="west"),
            marks=pytest.mark.covers("T-30"),
            id="another's label",
        ),
        pytest.param(
            export("east-frontend", owner(block_owner_deletion=False)),
            marks=pytest.mark.covers("T-31"),
            id="blocks no deletion",
        ),
        pytest.param(
            export("east-frontend", owner(name="west")), marks=pytest.mark.covers("T-102"), id="another name"
        ),
        pytest.param(export("east-frontend", owner(kind="Relay")), id="another kind"),
        pytest.param(export("east-frontend", owner(api_version="nvidia.com/v1")), id="another version"),
    ],
)
@pytest.mark.covers("PR-62", "T-33")
def test_own_export_that_is_wrong_must_be_repaired_once(found: object) -> None:
    planned, _ = twice(observed(pool(), export("east-pool-relay", OURS), found))  # type: ignore[arg-type]
    assert steps(planned) == ["Repair east-frontend"]


@pytest.mark.covers("PR-62", "PR-65", "PR-71", "T-103")
def test_own_export_with_more_than_ours_must_be_left() -> None:
    more = OwnerReference(api_version="v1", kind="ConfigMap", name="mine", uid="user-uid")
    found = export("east-frontend", more, OURS, spec=ExportSpec(exported_labels={"team": "a"}))
    assert steps(plan(observed(pool(), export("east-pool-relay", OURS), found), settings())) == []


@pytest.mark.covers("PR-63", "PR-64", "T-104", "T-105", "T-106")
def test_repair_must_say_what_is_ours_and_what_was_read_and_nothing_else() -> None:
    more = OwnerReference(api_version="v1", kind="ConfigMap", name="mine", uid="user-uid")
    found = export(
        "east-frontend", more, OURS, label="", version="11", spec=ExportSpec(exported_labels={"a": "b"})
    )
    planned = plan(observed(pool(), export("east-pool-relay", OURS), found), settings())
    (step,) = planned.exports
    assert isinstance(step, RepairExport)
    assert step.body == {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ServiceExport",
        "metadata": {
            "name": "east-frontend",
            "namespace": "serving",
            "uid": "east-frontend-uid",
            "resourceVersion": "11",
            "labels": {"nvidia.com/dynamo-graph-deployment-name": "east"},
            "ownerReferences": [raw_owner()],
        },
    }


GLOBAL_SYNC = {"service.cilium.io/global-sync-endpoint-slices": "true"}


@pytest.mark.covers("PR-40")
def test_configured_labels_and_annotations_must_be_the_exports_spec_and_kept_right() -> None:
    under = settings(exported_labels={"team": "a"}, exported_annotations=GLOBAL_SYNC)
    planned, after = twice(observed(pool()), under)
    spec = {"exportedLabels": {"team": "a"}, "exportedAnnotations": GLOBAL_SYNC}
    assert [step.body["spec"] for step in planned.exports if isinstance(step, CreateExport)] == [spec, spec]
    assert after.exports["east-frontend"].spec.exported_annotations == GLOBAL_SYNC
    wrong = ExportSpec(exported_labels={"team": "b"}, exported_annotations=GLOBAL_SYNC)
    seen = observed(pool(), export("east-frontend", OURS, spec=wrong), after.exports["east-pool-relay"])
    (step,) = twice(seen, under)[0].exports
    assert isinstance(step, RepairExport)
    assert step.body["spec"] == spec
    without = ExportSpec(exported_labels={"team": "a", "more": "x"})
    seen = observed(pool(), export("east-frontend", OURS, spec=without), after.exports["east-pool-relay"])
    assert steps(twice(seen, under)[0]) == ["Repair east-frontend"]


@pytest.mark.covers("PR-71")
def test_repair_that_changes_nothing_must_not_be_tried_again() -> None:
    under = settings(exported_labels={"team": "a"})
    dropped = [export(name, OURS) for name in ("east-pool-relay", "east-frontend")]
    seen = observed(pool(), *dropped)
    assert steps(plan(seen, under)) == ["Repair east-pool-relay", "Repair east-frontend"]
    known = frozenset((each.metadata.uid, each.metadata.resource_version) for each in dropped)
    seen = observed(pool(), *dropped, futile=known)
    planned = plan(seen, under)
    assert steps(planned) == []
    assert len(planned.notes) == 2
    later = export("east-frontend", OURS, version="12")
    assert steps(plan(observed(pool(), dropped[0], later, futile=known), under)) == ["Repair east-frontend"]


@pytest.mark.covers("PR-4", "T-63")
def test_nothing_must_be_exported_or_withdrawn_while_it_is_off() -> None:
    assert plan(observed(pool()), settings("")).exports == ()
    assert plan(observed(None, export("east-frontend", OURS)), settings("")).exports == ()


@pytest.mark.covers("PR-48")
def test_status_of_an_export_must_not_even_be_decoded() -> None:
    assert set(ServiceExport.__struct_fields__) == {"metadata", "spec"}


@pytest.mark.covers("PR-54")
def test_all_frontends_impossible_must_not_be_no_frontend() -> None:
    planned = plan(observed(graph("east", [Frontend("F", "x" * 56)])), settings("karmada"))
    assert told(planned) == ["ServiceNameTooLong"]
