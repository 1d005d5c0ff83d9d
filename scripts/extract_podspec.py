#!/usr/bin/env python3
"""Turn a Kubernetes API server's OpenAPI document into the pod template schema that the CRDs embed.

    P=src/isthmus/api/crd/podspec.json
    kubectl get --raw /openapi/v3/api/v1 | python3 scripts/extract_podspec.py > $P

The output is a table of structural schemas, `{"definitions": {name: schema}, "kubernetes": version}`,
reachable from PodSpec, with `{"$ref": name}` between them and without descriptions: about 50 kB, where the
document has 1.6 MB. src/isthmus/api/crd/podspec.py expands it. A test against a real API server runs this
again and compares.
"""

from __future__ import annotations

import json
import sys
from typing import Any

Schema = dict[str, Any]
ROOT = "io.k8s.api.core.v1.PodSpec"
KEPT = ("type", "format", "required", "enum")
EXTENSIONS = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
QUANTITY: Schema = {
    "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    "x-kubernetes-int-or-string": True,
}
INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True}
# Set by the API server alone; nobody writes them into a template.
DROPPED = {"ObjectMeta": ("managedFields", "selfLink")}


def short(name: str) -> str:
    """`io.k8s.api.core.v1.PodSpec` -> `PodSpec`; the names that PodSpec reaches are unique without the
    rest."""
    return name.rsplit(".", 1)[1]


def reference(schema: Schema) -> str:
    """The full name that a property refers to, bare or as a single allOf; empty if it refers to none."""
    parts = [schema, *schema.get("allOf", [])]
    return next((part["$ref"].rsplit("/", 1)[1] for part in parts if "$ref" in part), "")


def structural(schema: Schema, reached: list[str]) -> Schema:
    """One schema as a CRD wants it; the names that it refers to are appended to `reached`."""
    name = reference(schema)
    if name:
        reached.append(name)
        kept: Schema = {"$ref": short(name)}
    else:
        kept = {key: schema[key] for key in KEPT if key in schema}
    kept |= {key: schema[key] for key in EXTENSIONS if key in schema}
    if schema.get("format") == "int-or-string":
        return dict(INT_OR_STRING)
    if "items" in schema:
        kept["items"] = structural(schema["items"], reached)
    if isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = structural(schema["additionalProperties"], reached)
    if "properties" in schema:
        required = schema.get("required", [])
        kept["properties"] = {
            key: with_default(structural(value, reached), value, key in required)
            for key, value in schema["properties"].items()
        }
    return kept


def with_default(kept: Schema, schema: Schema, required: bool) -> Schema:
    """Add the default of an optional field; that of a required one is Go's zero value, and means nothing.

    An optional field with an enum also takes "": core types read it as absent, so manifests have it.
    """
    if not required:
        if schema.get("default", {}) != {}:
            kept["default"] = schema["default"]
        if "enum" in kept and "" not in kept["enum"]:
            kept["enum"] = ["", *kept["enum"]]
    return kept


def extract(document: Schema) -> Schema:
    """The whole table from an `/openapi/v3/api/v1` document."""
    schemas = document["components"]["schemas"]
    definitions: dict[str, Schema] = {}
    todo = [ROOT]
    while todo:
        full = todo.pop()
        name = short(full)
        if name in definitions:
            continue
        if name == "Quantity":
            definitions[name] = QUANTITY
        elif name == "IntOrString":
            definitions[name] = INT_OR_STRING
        else:
            source = schemas[full]
            if name in DROPPED:
                properties = {k: v for k, v in source["properties"].items() if k not in DROPPED[name]}
                source = source | {"properties": properties}
            definitions[name] = structural(source, todo)
    # MS-7: two host aliases with one address are legal.
    for key in EXTENSIONS:
        definitions["PodSpec"]["properties"]["hostAliases"].pop(key, None)
    version = document.get("info", {}).get("version", "")
    return {"definitions": dict(sorted(definitions.items())), "kubernetes": version}


if __name__ == "__main__":
    json.dump(extract(json.load(sys.stdin)), sys.stdout, separators=(",", ":"), sort_keys=True)
    sys.stdout.write("\n")
