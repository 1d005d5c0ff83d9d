"""Names for templates: what changes them and what does not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from isthmus.modelserving.plan.desired import desired
from isthmus.modelserving.plan.model import Desired
from isthmus.modelserving.plan.revision import canonical, encode_hash, hash_of, meaning
from tests.support import manifests
from tests.support.serving import role, serving


def of(*roles: Any, **spec: Any) -> Desired:
    return desired(serving(*roles, **spec), ())


@pytest.mark.covers("MS-34")
@pytest.mark.parametrize(("number", "text"), [(413076405, "8574cb849"), (0, "4"), (1234567890, "56789bcdf4")])
def test_hash_must_use_the_alphabet_of_kubernetes(number: int, text: str) -> None:
    assert encode_hash(number) == text


@pytest.mark.covers("MS-34")
def test_hash_must_be_stable_across_versions_of_isthmus() -> None:
    # A change of this value would roll every ModelServing of every cluster on upgrade.
    assert of(role("p", 2, 1, image="registry.example/engine:1")).revision.name == "dc5d8b97d"
    assert of(role("p", 2, 1, image="registry.example/engine:1")).revision.roles["p"].hash == "b4459c55f"


@pytest.mark.covers("MS-34")
def test_hash_must_be_short_and_fit_a_label() -> None:
    for collision in range(5):
        assert re.fullmatch("[456789bcdf]{1,10}", hash_of(b"x", collision))
    assert len({hash_of(b"x", collision) for collision in range(5)}) == 5


@pytest.mark.covers("MS-33", "MS-219")
@pytest.mark.parametrize(
    "same",
    [
        of(role(replicas=3)),
        of(role(maxUnavailable=2)),
        of(role(partition=1), by_role=True),
        of(role(), replicas=7),
        of(role(), schedulerName="default"),
        of(role(), recovery="None"),
        of(role(), plugins=[{"name": "demo-pod-tweaks"}]),
        of(role(), template={"restartGracePeriodSeconds": 9}),
        of(role(), max_unavailable=2, partition=1),
        of(role(), name="b"),
    ],
)
def test_what_does_not_change_pods_must_not_change_the_revision(same: Desired) -> None:
    first = of(role())
    assert same.revision.name == first.revision.name
    assert same.revision.roles["p"].hash == first.revision.roles["p"].hash


@pytest.mark.covers("MS-33", "MS-220", "MS-221")
@pytest.mark.parametrize(
    "other",
    [
        of(role("q")),
        of(role(workers=1)),
        of(role(), role("q")),
        of(role("q"), role()),
        of(role(image="two")),
        of(role(entryTemplate={**manifests.pod_template(manifests.container(image="one")), "metadata": {}})),
        of(
            role(
                entryTemplate={
                    **manifests.pod_template(manifests.container(image="one")),
                    "metadata": {"labels": {"a": "b"}},
                }
            )
        ),
    ],
)
def test_what_changes_pods_must_change_the_revision(other: Desired) -> None:
    assert other.revision.name != of(role()).revision.name


@pytest.mark.covers("MS-33")
def test_order_of_roles_must_change_the_revision() -> None:
    one, two = of(role("p"), role("q")), of(role("q"), role("p"))
    assert one.revision.name != two.revision.name
    assert one.revision.roles["p"].hash == two.revision.roles["p"].hash


def test_canonical_form_must_ignore_order_and_nulls_and_meaning_also_empties() -> None:
    assert canonical({"b": 1, "a": [{"y": None, "x": 2}]}) == b'{"a":[{"x":2}],"b":1}'
    assert canonical({"a": {}, "b": []}) == b'{"a":{},"b":[]}'
    assert meaning({"a": {"c": {"d": None}}, "b": [], "e": 0}) == b'{"e":0}'
