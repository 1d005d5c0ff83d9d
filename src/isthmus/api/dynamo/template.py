"""The parts of a pod template that are touched here, as types to hold a dictionary against.

What the API server's schema has let through always fits; what came past it is refused by `misfit` before
anything works on the dictionary. Everything else of a template passes through as it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from isthmus.api.dynamo.model import MAIN
from isthmus.api.meta import Frozen, Raw


class _Env(Frozen, frozen=True, kw_only=True):
    name: str
    value: str = ""


class _Port(Frozen, frozen=True, kw_only=True):
    container_port: int
    name: str = ""


class _Mount(Frozen, frozen=True, kw_only=True):
    name: str
    mount_path: str


class _Named(Frozen, frozen=True, kw_only=True):
    name: str


class _Container(Frozen, frozen=True, kw_only=True):
    name: str
    image: str = ""
    command: list[str] = []
    args: list[str] = []
    env: list[_Env] = []
    env_from: list[dict[str, Any]] = []
    ports: list[_Port] = []
    volume_mounts: list[_Mount] = []


class _PodSpec(Frozen, frozen=True, kw_only=True):
    containers: list[_Container] = []
    volumes: list[_Named] = []
    security_context: dict[str, Any] | None = None


class _Metadata(Frozen, frozen=True, kw_only=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Template(Frozen, frozen=True, kw_only=True):
    """A pod template."""

    metadata: _Metadata = _Metadata()
    spec: _PodSpec = _PodSpec()


EnvList = list[_Env]
"""A list of environment variables."""


def misfit(found: Any, shape: Any) -> str:
    """Why `found` is not of this shape; empty where it is."""
    try:
        msgspec.convert(found, shape)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def main_container(raw_template: Raw) -> Raw | None:
    """The container that is the component, if there is one."""
    for raw_container in raw_template.get("spec", {}).get("containers", ()):
        if raw_container["name"] == MAIN:
            found: Raw = raw_container
            return found
    return None


def with_claim(raw_template: Raw, claim: str, path: str) -> Raw:
    """The template with a claim mounted into its main container, unless something is mounted there."""
    spec = raw_template.get("spec", {})
    main = main_container(raw_template)
    if main is None or any(mount["mountPath"] == path for mount in main.get("volumeMounts", ())):
        return raw_template
    mounted = {**main, "volumeMounts": [*main.get("volumeMounts", ()), {"name": claim, "mountPath": path}]}
    volumes = list(spec.get("volumes", ()))
    if all(volume["name"] != claim for volume in volumes):
        volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
    containers = [mounted if each is main else each for each in spec["containers"]]
    return {**raw_template, "spec": {**spec, "containers": containers, "volumes": volumes}}
