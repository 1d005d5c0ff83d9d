"""The sandbox's operator may do what the published roles allow."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from isthmus.api.meta import Raw
from isthmus.sandbox import places, rbac


def permissions(rules: Iterable[Raw]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_operator_must_have_the_rights_that_are_published_and_no_other() -> None:
    path = places.clone() / "examples" / "operator" / "rbac.yaml"
    roles = [raw for raw in yaml.safe_load_all(path.read_text()) if raw["kind"] in ("ClusterRole", "Role")]
    published = set[tuple[str, str, str]]().union(*(permissions(role["rules"]) for role in roles))
    assert permissions(rbac.operator_role()["rules"]) == published
