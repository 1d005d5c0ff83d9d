"""Words for writing a structural OpenAPI schema: objects, lists, numbers, text, and CEL rules on them.

The modules beside this one compose them into CRDs. Each word returns a new dictionary in the form that the
API server stores, descriptions included; none checks what it is given, since a test installs the result.
"""

from __future__ import annotations

from typing import Any

from isthmus.api.meta import Raw, Resource
from isthmus.api.names import INT32_MAX

Schema = Raw


def struct(description: str, properties: dict[str, Schema], *, required: tuple[str, ...] = ()) -> Schema:
    """An object with these fields and no others."""
    schema: Schema = {"type": "object", "description": description, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


def mapping(description: str, values: Schema, *, most: int | None = None) -> Schema:
    """An object with free keys; `most` bounds their number."""
    schema: Schema = {"type": "object", "description": description, "additionalProperties": values}
    return schema | ({} if most is None else {"maxProperties": most})


def array(description: str, items: Schema, *, least: int | None = None, most: int | None = None) -> Schema:
    """A list that is replaced as a whole by an apply."""
    schema: Schema = {"type": "array", "description": description, "items": items}
    schema["x-kubernetes-list-type"] = "atomic"
    return (
        schema | ({} if least is None else {"minItems": least}) | ({} if most is None else {"maxItems": most})
    )


def text(description: str, *, default: str | None = None, most: int | None = None) -> Schema:
    """A string; `most` bounds its characters."""
    schema: Schema = {"type": "string", "description": description}
    return (
        schema
        | ({} if default is None else {"default": default})
        | ({} if most is None else {"maxLength": most})
    )


def choice(description: str, *values: str, default: str | None = None) -> Schema:
    """One of these words."""
    return text(description, default=default) | {"enum": list(values)}


def count(description: str, *, default: int | None = None, least: int | None = 0, bits: int = 32) -> Schema:
    """An integer that fits 32 or 64 bits; `least` None allows negative ones."""
    schema: Schema = {"type": "integer", "description": description, "format": f"int{bits}"}
    if bits == 32:
        schema["maximum"] = INT32_MAX
    return (
        schema
        | ({} if default is None else {"default": default})
        | ({} if least is None else {"minimum": least})
    )


def int_or_percent(description: str, *, default: int | None = None) -> Schema:
    """A number or text; rules say which text."""
    schema: Schema = {"description": description, "x-kubernetes-int-or-string": True}
    return schema | ({} if default is None else {"default": default})


def quantity(description: str) -> Schema:
    """An amount, as `8Gi`, `500m` or `2`."""
    pattern = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$"
    either = [{"type": "integer"}, {"type": "string"}]
    kind: Schema = {"anyOf": either, "pattern": pattern, "x-kubernetes-int-or-string": True}
    return {"description": description} | kind


def anything(description: str) -> Schema:
    """Any JSON, kept as it is."""
    return {"description": description, "x-kubernetes-preserve-unknown-fields": True}


def rule(
    expression: str,
    *,
    message: str,
    explain: str = "",
    path: str = "",
    reason: str = "",
    optional_old: bool = False,
) -> Schema:
    """One x-kubernetes-validations entry.

    `message` is fixed text, for servers and people that read no more; `explain` is a CEL expression for the
    text with this object's numbers; `path` the field at fault, from the one that has the rule; with
    `optional_old` the rule also runs where there is no old object, and `oldSelf` is an optional.
    """
    entry: Schema = {"rule": " ".join(expression.split()), "message": message}
    if explain:
        entry["messageExpression"] = " ".join(explain.split())
    if path:
        entry["fieldPath"] = path
    if reason:
        entry["reason"] = reason
    if optional_old:
        entry["optionalOldSelf"] = True
    return entry


def ruled(schema: Schema, *rules: Schema) -> Schema:
    """The schema with these CEL rules on it."""
    return schema | {"x-kubernetes-validations": list(rules)}


def column(name: str, kind: str, path: str) -> Schema:
    """A printer column: what `kubectl get` shows of an object, by a JSON path without braces."""
    return {"name": name, "type": kind, "jsonPath": path}


def root(description: str, spec: Schema, status: Schema) -> Schema:
    """A whole object: what the API server itself reads of it, and these two."""
    properties: dict[str, Schema] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
        "spec": spec,
        "status": status,
    }
    return struct(description, properties, required=("spec",))


def version(
    name: str, schema: Schema, *columns: Schema, scale: Schema | None = None, old: bool = False
) -> Schema:
    """A served version with a status subresource; `old` is deprecated and not the one that is stored."""
    return {
        "name": name,
        "served": True,
        "storage": not old,
        **({"deprecated": True} if old else {}),
        "subresources": {"status": {}} | ({} if scale is None else {"scale": scale}),
        "additionalPrinterColumns": list(columns),
        "schema": {"openAPIV3Schema": schema},
    }


def crd(resource: Resource[Any], *versions: Schema, short: str = "") -> Raw:
    """The CustomResourceDefinition of a namespaced kind; `short` is its short name."""
    names: Raw = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": resource.group,
            "names": names | ({"shortNames": [short]} if short else {}),
            "scope": "Namespaced",
            "versions": list(versions),
        },
    }
