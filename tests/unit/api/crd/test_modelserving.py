from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from isthmus.api import modelserving as types
from isthmus.api.crd.modelserving import definition
from isthmus.api.crd.schema import Schema

CLIENT_SIDE_APPLY_LIMIT = 256 * 1024
"""Bytes of the annotation in which `kubectl apply` without --server-side keeps the whole object."""

POD_TEMPLATES = ("entryTemplate", "workerTemplate")


def version() -> dict[str, Any]:
    (only,) = definition()["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def root() -> Schema:
    schema: Schema = version()["schema"]["openAPIV3Schema"]
    return schema


def at(*path: str) -> Schema:
    """The schema of a field; `[]` steps into the items of a list."""
    schema = root()
    for step in path:
        schema = schema["items"] if step == "[]" else schema["properties"][step]
    return schema


def walk(value: object, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from walk(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from walk(item, f"{path}[]")


@pytest.mark.covers("MS-1")
def test_names_must_be_upstreams() -> None:
    crd = definition()
    assert crd["metadata"]["name"] == "modelservings.workload.serving.volcano.sh"
    assert crd["spec"]["scope"] == "Namespaced"
    assert crd["spec"]["names"] == {
        "kind": "ModelServing",
        "listKind": "ModelServingList",
        "plural": "modelservings",
        "singular": "modelserving",
    }
    assert (version()["name"], version()["served"], version()["storage"]) == ("v1alpha1", True, True)


@pytest.mark.covers("MS-2")
def test_scale_must_read_and_write_replicas() -> None:
    assert version()["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.labelSelector",
        },
    }


@pytest.mark.covers("MS-3")
def test_printer_columns_must_be_upstreams() -> None:
    assert [(c["name"], c["type"], c["jsonPath"]) for c in version()["additionalPrinterColumns"]] == [
        ("Replicas", "integer", ".status.replicas"),
        ("Available", "integer", ".status.availableReplicas"),
        ("Updated", "integer", ".status.updatedReplicas"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]


@pytest.mark.covers("MS-5")
@pytest.mark.parametrize(
    ("path", "kind", "default"),
    [
        (("spec", "replicas"), "integer", 1),
        (("spec", "schedulerName"), "string", "volcano"),
        (("spec", "plugins"), "array", None),
        (("spec", "plugins", "[]", "type"), "string", "BuiltIn"),
        (("spec", "plugins", "[]", "scope", "roles"), "array", None),
        (("spec", "template"), "object", None),
        (("spec", "template", "restartGracePeriodSeconds"), "integer", 0),
        (("spec", "template", "gangPolicy", "minRoleReplicas"), "object", None),
        (("spec", "template", "networkTopology", "groupPolicy", "mode"), "string", "hard"),
        (("spec", "template", "networkTopology", "rolePolicy", "mode"), "string", "hard"),
        (("spec", "template", "networkTopology", "groupPolicy", "highestTierAllowed"), "integer", None),
        (("spec", "template", "networkTopology", "groupPolicy", "highestTierName"), "string", None),
        (("spec", "template", "roles"), "array", None),
        (("spec", "template", "roles", "[]", "replicas"), "integer", 1),
        (("spec", "template", "roles", "[]", "workerReplicas"), "integer", None),
        (("spec", "template", "roles", "[]", "maxUnavailable"), None, 1),
        (("spec", "template", "roles", "[]", "partition"), None, None),
        (("spec", "rolloutStrategy", "type"), "string", "ServingGroupRollingUpdate"),
        (("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxUnavailable"), None, 1),
        (("spec", "rolloutStrategy", "rollingUpdateConfiguration", "partition"), None, None),
        (("spec", "recoveryPolicy"), "string", "RoleRecreate"),
    ],
)
def test_field_must_have_upstreams_type_and_default(
    path: tuple[str, ...], kind: str | None, default: object
) -> None:
    schema = at(*path)
    assert schema.get("default") == default
    if kind is None:
        assert schema["x-kubernetes-int-or-string"] is True
    else:
        assert schema["type"] == kind


@pytest.mark.covers("MS-427")
def test_plugin_target_must_be_one_of_three_and_default_to_all() -> None:
    target = at("spec", "plugins", "[]", "scope", "target")
    assert (target["enum"], target["default"]) == (["All", "Entry", "Worker"], "All")


@pytest.mark.covers("MS-5")
def test_required_fields_must_be_upstreams() -> None:
    assert at()["required"] == ["spec"]
    assert at("spec")["required"] == ["template"]
    assert at("spec", "template")["required"] == ["roles"]
    assert at("spec", "plugins", "[]")["required"] == ["name", "type"]
    assert at("spec", "rolloutStrategy")["required"] == ["type"]
    role = at("spec", "template", "roles", "[]")
    assert role["required"] == ["name", "entryTemplate", "workerReplicas"]


@pytest.mark.covers("MS-447")
def test_entry_template_must_need_a_container_but_a_worker_template_must_not() -> None:
    role = at("spec", "template", "roles", "[]")["properties"]
    assert role["entryTemplate"]["required"] == ["spec"]
    assert role["entryTemplate"]["properties"]["spec"]["properties"]["containers"]["minItems"] == 1
    assert "required" not in role["workerTemplate"]
    assert "minItems" not in role["workerTemplate"]["properties"]["spec"]["properties"]["containers"]


@pytest.mark.covers("MS-8")
def test_status_must_have_upstreams_fields() -> None:
    status = at("status")["properties"]
    numbers = {name for name, schema in status.items() if schema["type"] == "integer"}
    assert numbers == {
        "observedGeneration",
        "replicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    }
    ours = {"recoveries"}
    assert set(status) - numbers - ours == {
        "currentRevision",
        "updateRevision",
        "labelSelector",
        "conditions",
    }


@pytest.mark.covers("MS-4")
def test_crd_must_fit_a_client_side_apply_too() -> None:
    assert len(json.dumps(definition(), separators=(",", ":"))) < CLIENT_SIDE_APPLY_LIMIT


def test_schema_must_be_structural() -> None:
    for path, schema in walk(root()):
        assert "$ref" not in schema, path
        in_schema = not path.endswith((".properties", ".default"))
        if in_schema and ("properties" in schema or "items" in schema):
            assert "type" in schema, path


def test_our_own_fields_must_be_described() -> None:
    spec = at("spec")
    for name in POD_TEMPLATES:
        role = spec["properties"]["template"]["properties"]["roles"]["items"]["properties"]
        role[name] = {"description": role[name]["description"]}
    for path, schema in walk(spec):
        if "type" in schema and not path.endswith((".additionalProperties", ".properties")):
            assert schema.get("description"), path


def test_definition_must_be_new_on_each_call() -> None:
    definition()["spec"]["versions"].clear()
    assert version()["name"] == "v1alpha1"


STRUCTS: list[tuple[type[msgspec.Struct], tuple[str, ...]]] = [
    (types.Spec, ("spec",)),
    (types.Plugin, ("spec", "plugins", "[]")),
    (types.PluginScope, ("spec", "plugins", "[]", "scope")),
    (types.Template, ("spec", "template")),
    (types.GangPolicy, ("spec", "template", "gangPolicy")),
    (types.NetworkTopology, ("spec", "template", "networkTopology")),
    (types.TopologyPolicy, ("spec", "template", "networkTopology", "groupPolicy")),
    (types.TopologyPolicy, ("spec", "template", "networkTopology", "rolePolicy")),
    (types.Role, ("spec", "template", "roles", "[]")),
    (types.RolloutStrategy, ("spec", "rolloutStrategy")),
    (types.RollingUpdateConfiguration, ("spec", "rolloutStrategy", "rollingUpdateConfiguration")),
    (types.Status, ("status",)),
    (types.Condition, ("status", "conditions", "[]")),
]


@pytest.mark.parametrize(("struct", "path"), STRUCTS, ids=[".".join(path) for _, path in STRUCTS])
def test_decoded_type_must_have_the_fields_and_defaults_of_the_schema(
    struct: type[msgspec.Struct], path: tuple[str, ...]
) -> None:
    properties = at(*path)["properties"]
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    assert set(fields) == set(properties)
    for name, schema in properties.items():
        # maxUnavailable of a role stays None where an older CRD has set no default; the planner takes 1.
        if "default" in schema and (struct, name) != (types.Role, "maxUnavailable"):
            default = fields[name].default
            assert default in (schema["default"], msgspec.NODEFAULT), name
