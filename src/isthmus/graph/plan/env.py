"""Environment of a component's containers: whose value wins, and in which order they are written (GD-36,
GD-37).

pods.py calls `merged` with layers from the weakest to the strongest. The result is sorted by name, so that
the order of a map never causes a rollout, except that what a value refers to comes before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from isthmus.api.meta import Raw

_REFERENCE: Final = re.compile(r"\$\(([^()$]+)\)")
Layer = Iterable[Raw]


def plain(values: Mapping[str, str]) -> list[Raw]:
    """Variables of these names and values; empty ones are left out."""
    return [{"name": name, "value": value} for name, value in values.items() if value]


def from_field(name: str, path: str) -> Raw:
    """A variable that holds a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def merged(*layers: Layer) -> list[Raw]:
    """See the module. Of a name that is there twice, the last one of the strongest layer counts."""
    found = {variable["name"]: variable for layer in layers for variable in layer}
    return in_order(found)


def in_order(variables: Mapping[str, Raw]) -> list[Raw]:
    """By name, each after those that its value refers to; of a circle the first by name comes first."""
    written: dict[str, Raw] = {}
    for start in sorted(variables):
        stack = [(start, iter(_references(variables[start], variables)))]
        open_names = {start}
        while stack:
            name, rest = stack[-1]
            inner = next((each for each in rest if each not in open_names), None)
            if inner is None:
                written.setdefault(name, variables[name])
                stack.pop()
            else:
                open_names.add(inner)
                stack.append((inner, iter(_references(variables[inner], variables))))
    return list(written.values())


def _references(variable: Raw, known: Mapping[str, Raw]) -> list[str]:
    value = str(variable.get("value") or "")
    return sorted({name for name in _REFERENCE.findall(value) if name in known})
