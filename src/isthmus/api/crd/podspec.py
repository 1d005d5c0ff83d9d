"""The core PodSpec as a structural schema, for CRDs that embed a pod template.

crd/modelserving.py embeds it twice. It is expanded from podspec.json, which scripts/extract_podspec.py takes
from a real API server, only when a CRD is built; the operator never loads it. What a template needs beyond
the core schema (an image that is no blank text, some container in it, none of the controller's variables) is
added here (MS-14, MS-29, MS-447).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

from isthmus.api.crd.cel import said
from isthmus.api.crd.schema import Schema, rule, ruled

IMAGE_PATTERN: Final = r"^$|^[^ ]*[^\s][^ ]*$"
"""An image is absent, or has something in it that is not blank, and no space (MS-14)."""


MAX_CONTAINERS: Final = 100
MAX_ENV: Final = 1000
MAX_NAME: Final = 4096
"""Containers of a pod, variables of a container and characters of a variable's name: far above what there is,
and needed for the API server to see that a rule on each variable is cheap."""


@cache
def table() -> dict[str, Any]:
    """podspec.json as it is, with references; not to be changed."""
    text = resources.files("isthmus.api.crd").joinpath("podspec.json").read_text("utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def kubernetes_version() -> str:
    """The version of the API server that the schema was taken from."""
    return str(table()["kubernetes"])


def _expand(value: Any) -> Any:
    """A copy of `value` with every reference replaced by what it names."""
    if isinstance(value, list):
        return [_expand(item) for item in value]
    if not isinstance(value, dict):
        return value
    expanded = {key: _expand(item) for key, item in value.items() if key != "$ref"}
    if "$ref" in value:
        return _expand(table()["definitions"][value["$ref"]]) | expanded
    return expanded


def pod_spec(description: str, *, containers: int, reserved: Sequence[str] = ()) -> Schema:
    """A new copy of the schema, for a template with at least this many containers, none of which may set the
    `reserved` environment variables."""
    schema: Schema = _expand({"$ref": "PodSpec"}) | {"description": description}
    properties = schema["properties"]
    for field in ("containers", "initContainers"):
        container = properties[field]["items"]["properties"]
        container["image"]["pattern"] = IMAGE_PATTERN
        if reserved:
            properties[field]["maxItems"] = MAX_CONTAINERS
            container["env"]["maxItems"] = MAX_ENV
            variable = container["env"]["items"]["properties"]
            variable["name"] = ruled(variable["name"] | {"maxLength": MAX_NAME}, _other_than(reserved))
    if containers:
        properties["containers"]["minItems"] = containers
    return schema


def _other_than(reserved: Sequence[str]) -> Schema:
    return rule(
        f"!(self in [{', '.join(map(repr, reserved))}])",
        message="the controller sets this environment variable itself",
        explain=said(
            "%s is set by the controller in every container; give this variable another name", "self"
        ),
    )
