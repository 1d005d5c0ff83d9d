"""Settings of the built-in plugins (MS-109), as `spec.plugins[].config` has them.

Read by modelserving/plan/plugins.py when a pod is built, and by validation.py before, so that settings that
cannot be read are told in the status instead of failing each pod.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from isthmus.api.meta import Frozen
from isthmus.api.modelserving import Plugin

POD_TWEAKS: Final = "demo-pod-tweaks"
LWS_LABELS: Final = "lws-standard-labels"


class EnvVar(msgspec.Struct, frozen=True, gc=False):
    """What must be true of an environment variable; the rest is passed on as it is."""

    name: str


class PodTweaks(Frozen, frozen=True, kw_only=True):
    """Settings of demo-pod-tweaks. `env` are environment variables as in a container."""

    runtime_class_name: str = ""
    annotations: dict[str, str] = {}
    env: tuple[dict[str, Any], ...] = ()


def pod_tweaks(plugin: Plugin) -> PodTweaks:
    """The settings of a demo-pod-tweaks; nothing to do where there are none. Raises msgspec.ValidationError,
    with the path from `$`, for what cannot be read."""
    if plugin.config is None:
        return PodTweaks()
    found = msgspec.json.decode(plugin.config, type=PodTweaks)
    msgspec.convert(found.env, tuple[EnvVar, ...])
    return found
