"""A service of v1alpha1 -> the pod template that v1beta1 would have in its place (section 3).

normalise.py calls it. The pod's own fields win over the service's short forms of them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from isthmus.api.dynamo.graphs import BothResources, Resources, Service
from isthmus.api.dynamo.model import MAIN
from isthmus.api.dynamo.template import with_claim
from isthmus.api.meta import Raw

GPU = "nvidia.com/gpu"


def service_template(service: Service) -> Raw:
    """See the module. Raises msgspec.ValidationError where extraPodSpec or its like is no such thing."""
    raw_pod = _decoded(service.extra_pod_spec, dict[str, Any]) or {}
    raw_main = msgspec.convert(raw_pod.pop("mainContainer", None) or {}, dict[str, Any])
    sidecars = msgspec.convert(raw_pod.pop("containers", None) or [], list[dict[str, Any]])
    containers = [_main(service, raw_main), *sidecars] if raw_main else sidecars
    raw_template: Raw = {"spec": {**raw_pod, "containers": containers}}
    extra = service.extra_pod_metadata
    raw_metadata = {
        "labels": {**service.labels, **extra.labels},
        "annotations": {**service.annotations, **extra.annotations},
    }
    if found := {key: value for key, value in raw_metadata.items() if value}:
        raw_template["metadata"] = found
    for mount in service.volume_mounts:
        raw_template = with_claim(raw_template, mount.name, mount.mount_point)
    return raw_template


def _main(service: Service, raw_main: Raw) -> Raw:
    raw_container = {**raw_main, "name": MAIN}
    env = merged_env(_env(service.envs), msgspec.convert(raw_main.get("env") or [], list[dict[str, Any]]))
    if env:
        raw_container["env"] = env
    if service.env_from_secret:
        secret = {"secretRef": {"name": service.env_from_secret}}
        raw_container["envFrom"] = [secret, *(raw_main.get("envFrom") or [])]
    own = msgspec.convert(raw_main.get("resources") or {}, dict[str, Any])
    if resources := _resources(service.resources, own):
        raw_container["resources"] = resources
    for field, raw_probe in (
        ("livenessProbe", service.liveness_probe),
        ("readinessProbe", service.readiness_probe),
    ):
        if raw_probe is not None and field not in raw_container:
            raw_container[field] = msgspec.json.decode(raw_probe)
    return raw_container


def _env(raw_env: msgspec.Raw | None) -> list[Raw]:
    return _decoded(raw_env, list[dict[str, Any]]) or []


def merged_env(*layers: list[Raw]) -> list[Raw]:
    """Variables by name, those of a later layer in place of an earlier one's."""
    found: dict[Any, Raw] = {}
    for layer in layers:
        for variable in layer:
            found[msgspec.convert(variable.get("name"), str)] = variable
    return list(found.values())


def _resources(resources: BothResources | None, own: Raw) -> Raw:
    if resources is None:
        return own
    made: Raw = dict(own)
    for field, side in (("requests", resources.requests), ("limits", resources.limits)):
        quantities = {**_side(side), **msgspec.convert(own.get(field) or {}, dict[str, Any])}
        if quantities:
            made[field] = quantities
    if resources.claims is not None and "claims" not in made:
        made["claims"] = msgspec.json.decode(resources.claims)
    return made


def _side(side: Resources | None) -> Raw:
    if side is None:
        return {}
    rows = (("cpu", side.cpu), ("memory", side.memory), (side.gpu_type or GPU, side.gpu))
    named = {name: str(value) for name, value in rows if value is not None}
    return {**named, **{name: str(value) for name, value in side.custom.items()}}


def _decoded(raw: msgspec.Raw | None, shape: Any) -> Any:
    return None if raw is None else msgspec.json.decode(raw, type=shape)
