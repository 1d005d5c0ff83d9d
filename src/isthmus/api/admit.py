"""A manifest as the API server would store it, told without one: CRD defaults put in, and what its schema
refuses.

`isthmus plan` calls `admit` with a decoded manifest and a schema of api/crd. Checked is what a structural
schema says of a field by itself; CEL rules are left to api/validation.py, which has the same ones for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from isthmus.api.meta import Raw

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def admit(raw: Raw, schema: Raw) -> tuple[Raw, list[str]]:
    """`raw` with the schema's defaults, as a new object, and what is wrong with it: one line per field, its
    path first. Metadata is not the schema's."""
    problems: list[str] = []
    fields = {**schema.get("properties", {}), "metadata": {}}
    return _object(raw, {**schema, "properties": fields}, "", problems), problems


def _value(value: Any, schema: Raw, path: str, problems: list[str]) -> Any:
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            problems.append(f"{path}: must be a number or text, not {_name(value)}")
        return value
    if kind and (not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        problems.append(f"{path}: must be {_article(kind)}, not {_name(value)}")
        return value
    problems.extend(f"{path}: {text}" for text in _bounds(value, schema))
    if isinstance(value, dict):
        return _object(value, schema, path, problems)
    if isinstance(value, list) and "items" in schema:
        return [_value(each, schema["items"], f"{path}[{n}]", problems) for n, each in enumerate(value)]
    return value


def _object(raw: Raw, schema: Raw, path: str, problems: list[str]) -> Raw:
    fields: dict[str, Raw] = schema.get("properties", {})
    others = schema.get("additionalProperties")
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("type") != "object"
    made: Raw = {}
    for key, value in raw.items():
        here = f"{path}.{key}" if path else str(key)
        if value is None and key in fields:
            continue  # the API server takes null for absent
        if key in fields:
            made[key] = _value(value, fields[key], here, problems)
        elif isinstance(others, dict):
            made[key] = _value(value, others, here, problems)
        else:
            made[key] = value
            if not (free or others or not fields):
                problems.append(f"{here}: there is no such field")
    for key, field in fields.items():
        if key not in made and "default" in field:
            made[key] = _value(field["default"], field, f"{path}.{key}", problems)
    for key in schema.get("required", ()):
        if key not in made:
            problems.append(f"{path}.{key}: is required" if path else f"{key}: is required")
    return made


def _bounds(value: Any, schema: Raw) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"must be one of {', '.join(map(str, schema['enum']))}, not {value!r}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in schema and value < schema["minimum"]:
            yield f"must be {schema['minimum']} at least, not {value}"
        if "maximum" in schema and value > schema["maximum"]:
            yield f"must be {schema['maximum']} at most, not {value}"
    size = len(value) if isinstance(value, str | list | dict) else 0
    for word, key in (("characters", "Length"), ("items", "Items"), ("keys", "Properties")):
        if f"min{key}" in schema and size < schema[f"min{key}"]:
            yield f"must have {schema[f'min{key}']} {word} at least, not {size}"
        if f"max{key}" in schema and size > schema[f"max{key}"]:
            yield f"must have {schema[f'max{key}']} {word} at most, not {size}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{value!r} must match {schema['pattern']}"


def _article(kind: str) -> str:
    return {
        "object": "an object",
        "array": "a list",
        "integer": "an integer",
        "boolean": "true or false",
    }.get(kind, f"a {kind}")


def _name(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    for kind in ("object", "array", "string", "integer", "number"):
        if isinstance(value, _TYPES[kind]):
            return _article(kind)
    return "null"
