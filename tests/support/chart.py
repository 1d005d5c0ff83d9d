"""charts/isthmus rendered with real Helm, as objects."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from isthmus.api.meta import Raw
from isthmus.sandbox.programs import HELM

CHART = Path(__file__).resolve().parents[2] / "charts" / "isthmus"
RELEASE = "rel"
NAMESPACE = "isthmus-system"
FULLNAME = "rel-isthmus"
CLUSTER_NAME = f"{FULLNAME}-{NAMESPACE}"
Right = tuple[str, str, str]
"""(API group, resource with its subresource, verb)."""


class Refused(Exception):
    """What Helm said instead of rendering."""


def render(
    values: Raw | None = None,
    *,
    chart: Path = CHART,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    crds: bool = False,
) -> list[Raw]:
    """The objects that `helm template` prints for these values. Raises Refused."""
    return list(_render(json.dumps(values or {}), chart, release, namespace, crds))


@cache
def _render(values: str, chart: Path, release: str, namespace: str, crds: bool) -> tuple[Raw, ...]:
    done = subprocess.run(
        [
            *(str(HELM.find()), "template", release, str(chart), "--namespace", namespace, "--values", "-"),
            *(["--include-crds"] if crds else []),
        ],
        input=values,
        capture_output=True,
        text=True,
        timeout=15,
    )
    if done.returncode != 0:
        raise Refused(done.stderr)
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def of_kind(objects: list[Raw], *kinds: str) -> list[Raw]:
    """Those of these kinds."""
    return [each for each in objects if each["kind"] in kinds]


def one(objects: list[Raw], kind: str, name: str = "") -> Raw:
    """The only one of a kind, or of a kind and name."""
    (found,) = (each for each in of_kind(objects, kind) if not name or each["metadata"]["name"] == name)
    return found


def config_text(objects: list[Raw]) -> str:
    """The operator's configuration file."""
    text: str = one(objects, "ConfigMap")["data"]["config.yaml"]
    return text


def rights(*roles: Raw) -> set[Right]:
    """Everything that these roles grant."""
    return set(_rights(roles))


def _rights(roles: tuple[Raw, ...]) -> Iterator[Right]:
    for role in roles:
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from ((group, resource, verb) for verb in rule["verbs"])


def exporting(**values: Any) -> Raw:
    """Values with exports turned on, and others."""
    return {"dynamo": {"multiCluster": {"mcsImplementation": "mcs"}}} | values
