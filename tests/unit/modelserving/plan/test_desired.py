"""A ModelServing and its stored revisions -> what is wanted, under which revision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from isthmus.api.pods import ControllerRevision
from isthmus.modelserving.plan.desired import desired
from tests.support import manifests
from tests.support.serving import revision_object, role, serving


def foreign(
    roles: list[Any], name: str = "5d8f9c7b6", number: int = 1, *, bare: bool = False
) -> ControllerRevision:
    """A revision as upstream's controller stores it: its own hash, and empties that nobody wrote."""
    raw = {
        "metadata": {
            "name": f"a-{name}",
            "namespace": "default",
            "uid": f"cr-{name}",
            "labels": {"modelserving.volcano.sh/name": "a", "modelserving.volcano.sh/revision": name},
        },
        "revision": number,
        "data": roles if bare else {"data": roles},
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=ControllerRevision)


def gone_through_go(raw: dict[str, Any]) -> dict[str, Any]:
    """The same role as Go writes it."""
    entry = {"metadata": {"creationTimestamp": None}, **raw["entryTemplate"]}
    return {**raw, "entryTemplate": {**entry, "metadata": {}}, "partition": None}


@pytest.mark.covers("MS-440")
@pytest.mark.parametrize("bare", [False, True])
def test_revision_of_another_controller_must_be_adopted_by_what_it_holds(bare: bool) -> None:
    wanted = desired(serving(role()), [foreign([gone_through_go(role())], bare=bare)])
    assert wanted.revision.name == "5d8f9c7b6"
    assert wanted.revision.roles["p"].foreign
    assert wanted.revision.roles["p"].hash == wanted.stored["5d8f9c7b6"].roles["p"].hash


@pytest.mark.covers("MS-440")
def test_revision_with_other_templates_must_not_be_adopted() -> None:
    wanted = desired(serving(role(image="two")), [foreign([gone_through_go(role())])])
    assert wanted.revision.name != "5d8f9c7b6"
    assert wanted.revision.number == 0
    assert not wanted.revision.roles["p"].foreign


@pytest.mark.covers("MS-221", "MS-440")
def test_own_revision_must_differ_where_only_an_empty_map_does() -> None:
    before = serving(role())
    with_empty = serving(
        role(entryTemplate={**manifests.pod_template(manifests.container(image="one")), "metadata": {}})
    )
    stored = revision_object(before)
    assert desired(with_empty, [stored]).revision.name != desired(before, [stored]).revision.name


@pytest.mark.covers("MS-78")
def test_reverted_spec_must_get_its_old_revision_back() -> None:
    one, two = serving(role(image="one")), serving(role(image="two"))
    stored = [revision_object(one, 1), revision_object(two, 2)]
    assert desired(one, stored).revision.name == desired(one, ()).revision.name
    assert desired(one, stored).revision.number == 1


@pytest.mark.covers("MS-33", "MS-77")
def test_stored_counts_must_not_matter() -> None:
    stored = revision_object(serving(role(replicas=1)))
    wanted = desired(serving(role(replicas=5, maxUnavailable=3)), [stored])
    assert wanted.revision.name in wanted.stored
    assert (wanted.revision.roles["p"].replicas, wanted.revision.roles["p"].max_unavailable) == (5, 3)


@pytest.mark.parametrize(
    "data",
    [b"null", b"7", b"{}", b'{"data": 3}', b'{"data": [{"nameless": 1}]}', b'"\xff"', b'[{"name": 5}]'],
)
@pytest.mark.covers("MS-77")
def test_unreadable_revision_must_count_as_lost_and_its_name_as_taken(data: bytes) -> None:
    of = serving(role())
    name = desired(of, ()).revision.name
    broken = replace(revision_object(of), data=msgspec.Raw(data))
    wanted = desired(of, [broken])
    assert wanted.stored == {}
    assert wanted.revision.name != name


def test_revision_without_its_label_must_count_as_lost() -> None:
    stored = revision_object(serving(role()))
    labels = replace(stored.metadata.labels, revision="")
    assert (
        desired(serving(role()), [replace(stored, metadata=replace(stored.metadata, labels=labels))]).stored
        == {}
    )


@pytest.mark.covers("MS-440")
def test_name_that_stands_for_other_templates_must_be_passed_over() -> None:
    of = serving(role())
    name = desired(of, ()).revision.name
    other = foreign([role(image="other")], name=name)
    assert desired(of, [other]).revision.name not in ("", name)
    assert desired(of, (), [f"a-{name}"]).revision.name != name


@pytest.mark.covers("MS-36")
def test_workers_without_a_template_must_be_left_out() -> None:
    template = desired(serving(role(workerReplicas=3)), ()).revision.roles["p"]
    assert (template.workers, template.size, template.has_service) == (0, 1, False)


@pytest.mark.covers("MS-32")
def test_service_must_depend_on_the_worker_template_alone() -> None:
    empty = role(workerReplicas=0, workerTemplate={"spec": {"containers": []}})
    assert desired(serving(empty), ()).revision.roles["p"].has_service
    assert not desired(serving(role()), ()).revision.roles["p"].has_service


@pytest.mark.covers("MS-68", "MS-248")
def test_partition_of_groups_must_be_resolved_and_only_where_groups_roll() -> None:
    assert desired(serving(role(), replicas=3, partition="50%"), ()).group_partition == 2
    assert desired(serving(role(), replicas=3), ()).group_partition == 0
    assert desired(serving(role(partition=1), by_role=True), ()).group_partition == 0
    assert desired(serving(role(), by_role=True), ()).by_role
