"""CustomResourceDefinitions, built from Python definitions: what `isthmus crds`, the chart and tests install.

`definitions()` gives them as plain dictionaries ready to be sent. Schemas, defaults, bounds and CEL rules
live in one module per kind; the pod template's schema comes from podspec.json, which
scripts/extract_podspec.py takes from a real API server. The operator's process never imports this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from isthmus.api.crd import dynamo, modelserving, poolrelay
from isthmus.api.meta import Raw

CRDS: Final[tuple[tuple[str, Callable[[], Raw]], ...]] = (
    (modelserving.GROUP, modelserving.definition),
    (dynamo.GROUP, dynamo.definition),
    (poolrelay.GROUP, poolrelay.definition),
)
"""Rows of (API group, builder)."""


def groups() -> tuple[str, ...]:
    """The API groups that have a CRD here, in the order in which they are printed."""
    return tuple(dict.fromkeys(group for group, _ in CRDS))


def definitions(group: str | None = None) -> list[Raw]:
    """Every CRD, or those of one API group; new dictionaries on each call."""
    return [build() for of, build in CRDS if group is None or of == group]
