from __future__ import annotations

from isthmus.api import crd


def test_every_definition_must_be_of_its_group() -> None:
    for group in crd.groups():
        assert {item["spec"]["group"] for item in crd.definitions(group)} == {group}


def test_all_definitions_must_be_those_of_all_groups() -> None:
    names = [item["metadata"]["name"] for item in crd.definitions()]
    assert names == [i["metadata"]["name"] for group in crd.groups() for i in crd.definitions(group)]
    assert names
