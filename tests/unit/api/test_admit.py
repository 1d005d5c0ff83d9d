"""Defaults and bounds of a schema, told without an API server."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.api.admit import admit
from isthmus.api.crd import modelserving

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^[a-z]+$"},
        "count": {"type": "integer", "minimum": 0, "maximum": 9, "default": 1},
        "share": {"x-kubernetes-int-or-string": True, "default": 1},
        "on": {"type": "boolean"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "inner": {"type": "object", "properties": {"x": {"type": "string", "default": "y"}}, "default": {}},
        "items": {"type": "array", "maxItems": 1, "items": {"type": "object", "required": ["k"]}},
        "word": {"type": "string", "enum": ["a", "b"]},
    },
}


def test_defaults_must_be_put_in_at_every_depth_and_not_over_what_is_there() -> None:
    assert admit({"name": "a", "count": None}, SCHEMA) == (
        {"name": "a", "count": 1, "share": 1, "inner": {"x": "y"}},
        [],
    )
    assert admit({"name": "a", "count": 0, "inner": {"x": "z"}}, SCHEMA)[0]["inner"] == {"x": "z"}


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("name", "", "name: must have 1 characters at least, not 0"),
        ("name", "abcd", "name: must have 3 characters at most, not 4"),
        ("name", "A", "name: 'A' must match ^[a-z]+$"),
        ("name", 1, "name: must be a string, not an integer"),
        ("count", 10, "count: must be 9 at most, not 10"),
        ("count", True, "count: must be an integer, not true"),
        ("count", 1.5, "count: must be an integer, not a number"),
        ("share", [], "share: must be a number or text, not a list"),
        ("on", 1, "on: must be true or false, not an integer"),
        ("labels", {"a": 1}, "labels.a: must be a string, not an integer"),
        ("items", [{}], "items[0].k: is required"),
        ("items", [{"k": 1}, {"k": 2}], "items: must have 1 items at most, not 2"),
        ("word", "c", "word: must be one of a, b, not 'c'"),
        ("other", 1, "other: there is no such field"),
    ],
)
def test_what_the_schema_refuses_must_be_told_with_its_path(field: str, value: Any, problem: str) -> None:
    assert problem in admit({"name": "a", field: value}, SCHEMA)[1]


def test_what_the_schema_allows_must_pass() -> None:
    raw = {"name": "abc", "share": "5%", "on": False, "labels": {"a": "b"}, "free": {"x": [1]}, "word": "b"}
    assert admit(raw, SCHEMA)[1] == []
    assert admit({}, SCHEMA)[1] == ["name: is required"]


def test_modelserving_must_get_the_defaults_of_its_crd() -> None:
    role = {"name": "p", "workerReplicas": 0, "entryTemplate": {"spec": {"containers": [{"name": "c"}]}}}
    raw = {"metadata": {"name": "a"}, "spec": {"template": {"roles": [role]}}}
    made, wrong = admit(raw, modelserving.schema())
    assert wrong == []
    assert (made["spec"]["replicas"], made["spec"]["schedulerName"]) == (1, "volcano")
    assert made["spec"]["template"]["roles"][0]["maxUnavailable"] == 1
