#!/usr/bin/env python3
"""Write the pages of docs/reference from the CRDs' own definitions.

    .venv/bin/python scripts/generate_reference.py

Fields, types, defaults, bounds and rules are read from the schemas that `isthmus crds` prints; the text
before them is in <page>_intro.md beside this file. A test compares the committed pages with what this writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isthmus.api.crd import dynamo, modelserving, poolrelay
from isthmus.api.crd.podspec import kubernetes_version
from isthmus.api.names import INT32_MAX

Schema = dict[str, Any]
EMBEDDED = (
    *("entryTemplate.spec", "workerTemplate.spec", "spec.resources", "spec.env", "spec.envs"),
    *("podTemplate.spec", "envs", "extraPodSpec", "livenessProbe", "readinessProbe"),
)
"""Parts that are Kubernetes' own, of which only the name is listed."""

PAGES = {"modelserving": modelserving.schema, "graph": dynamo.schema, "poolrelay": poolrelay.schema}
FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


def kind_of(field: Schema) -> str:
    """The type in a word or two."""
    if field.get("x-kubernetes-int-or-string"):
        return "quantity" if "pattern" in field else "integer or percentage"
    if field.get("x-kubernetes-preserve-unknown-fields"):
        return "any JSON"
    if field["type"] == "array":
        return f"list of {kind_of(field['items'])}"
    if "additionalProperties" in field:
        return f"map to {kind_of(field['additionalProperties'])}"
    return str(field.get("format") if str(field.get("format")).startswith("int") else field["type"])


def bounds_of(field: Schema) -> str:
    """The bounds that the schema sets, in words."""
    words = []
    if "enum" in field:
        words.append(", ".join(f"`{value}`" for value in field["enum"]))
    if "minimum" in field:
        words.append(f"at least {field['minimum']}")
    if field.get("maximum", INT32_MAX) != INT32_MAX:
        words.append(f"at most {field['maximum']}")
    for key, word in (("minItems", "at least {} items"), ("maxItems", "at most {} items")):
        if key in field:
            words.append(word.format(field[key]))
    if "maxLength" in field:
        words.append(f"at most {field['maxLength']} characters")
    if "maxProperties" in field:
        words.append(f"at most {field['maxProperties']} entries")
    return "; ".join(words)


def walk(field: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Every field below this one, with its path and whether it is required."""
    required = field.get("required", [])
    for name, child in field.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        yield below, child, name in required
        if not below.endswith(EMBEDDED):
            yield from walk(_of_each(child), below + _items(child))


def _items(field: Schema) -> str:
    return "[]" if field.get("type") == "array" else ".*" if "additionalProperties" in field else ""


def _of_each(field: Schema) -> Schema:
    """What is below a field: of a list or a map each entry's schema."""
    found: Schema = field.get("items") or field.get("additionalProperties") or field
    return found


def rules_of(field: Schema, path: str) -> Iterator[tuple[str, str]]:
    """Every rule on this field and below: the field at fault and the text."""
    for rule in field.get("x-kubernetes-validations", []):
        yield f"{path}{rule.get('fieldPath', '')}".lstrip("."), rule["message"]
    for name, child in field.get("properties", {}).items():
        if name != "spec" or not path:
            yield from rules_of(child, f"{path}.{name}".lstrip("."))
    if _items(field):
        yield from rules_of(_of_each(field), f"{path}{_items(field)}")


def cell(text: str) -> str:
    """Text that cannot break a table."""
    return text.replace("|", "\\|")


def render(page: str) -> str:
    """The whole page of one kind."""
    root = PAGES[page]()
    lines = [
        Path(__file__).with_name(f"{page}_intro.md").read_text().replace("{version}", kubernetes_version()),
        "### Rules",
        "",
        "| Field | Rule |",
        "|---|---|",
    ]
    lines += [f"| `{path}` | {cell(text)} |" for path, text in rules_of(root, "")]
    for part in ("spec", "status"):
        lines += ["", f"## {part}", "", root["properties"][part]["description"], ""]
        lines += ["| Field | Type | Required | Default | Bounds | Meaning |", "|---|---|---|---|---|---|"]
        for path, field, required in walk(root["properties"][part], part):
            default = f"`{field['default']}`" if "default" in field else ""
            needed = "yes" if required else ""
            meaning = cell(field.get("description", ""))
            row = (f"`{path}`", kind_of(field), needed, default, bounds_of(field), meaning)
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / f"{name}.md").write_text(render(name))
