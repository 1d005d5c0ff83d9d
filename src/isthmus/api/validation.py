"""What is wrong with a ModelServing that the API server's present CRD would have refused (MS-12 to MS-20).

The CRD refuses these at admission; objects that came in under an older CRD, or by a direct write to etcd, are
found here, so that the controller can say in status what a person must change. The rules are those of
crd/rules.py and of its schema, and a test holds the two together on a real API server. Two rules that the CRD
has only for new values are left out, since scaling leads there in good order: a percentage that comes to no
group, and minimums above a role's replicas. Pure; call it once per generation, since it reads pod templates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from isthmus.api import labels
from isthmus.api.meta import Frozen
from isthmus.api.modelserving import MAX_ROLE_NAME, MAX_ROLES, PLUGIN_NAMES, IntOrPercent, Plugin, Role, Spec
from isthmus.api.names import INT32_MAX, RoleSize, is_dns_label, name_budget
from isthmus.api.percent import is_valid, resolve
from isthmus.api.plugins import POD_TWEAKS, pod_tweaks


class Problem(NamedTuple):
    """One thing that is wrong, where, and whether it keeps objects from being made or named safely."""

    path: str
    text: str
    blocking: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class _Metadata(Frozen, frozen=True, kw_only=True):
    labels: dict[str, str] = {}


class _Variable(Frozen, frozen=True, kw_only=True):
    name: str = ""


class _Container(Frozen, frozen=True, kw_only=True):
    image: str = ""
    env: tuple[_Variable, ...] = ()


class _PodSpec(Frozen, frozen=True, kw_only=True):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()


class _Template(Frozen, frozen=True, kw_only=True):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec | None = None


_decode_template: Final = msgspec.json.Decoder(_Template)


def problems(name: str, spec: Spec) -> tuple[Problem, ...]:
    """Everything that is wrong with a ModelServing of this name, in the order of the manifest."""
    return tuple(_problems(name, spec))


def _problems(name: str, spec: Spec) -> Iterator[Problem]:
    yield from _names(name, spec)
    yield from _count("spec.replicas", spec.replicas)
    for index, plugin in enumerate(spec.plugins):
        yield from _plugin(f"spec.plugins[{index}]", plugin)
    yield from _gang(spec)
    roles = spec.template.roles
    if not 1 <= len(roles) <= MAX_ROLES:
        text = f"there must be 1 to {MAX_ROLES} roles; there are {len(roles)}"
        yield Problem("spec.template.roles", text, blocking=not roles)
    for role_name, times in Counter(role.name for role in roles).items():
        if times > 1:
            yield Problem(
                "spec.template.roles", f"role names must be unique; {role_name} is not", blocking=True
            )
    by_role = _by_role(spec)
    for index, role in enumerate(roles):
        yield from _role(f"spec.template.roles[{index}]", role, by_role=by_role)
    yield from _rollout(spec)


def _count(path: str, number: int) -> Iterator[Problem]:
    if not 0 <= number <= INT32_MAX:
        yield Problem(path, f"must be 0 to {INT32_MAX}; is {number}", blocking=True)


def _by_role(spec: Spec) -> bool:
    return spec.rollout_strategy is not None and spec.rollout_strategy.type == "RoleRollingUpdate"


def _names(name: str, spec: Spec) -> Iterator[Problem]:
    roles = [RoleSize(role.name, role.replicas, role.worker_replicas) for role in spec.template.roles]
    budget = name_budget(spec.replicas, roles)
    if not is_dns_label(name):
        yield Problem(
            "metadata.name",
            f"must be a DNS-1035 label, since Services are named after it; is {name}",
            blocking=True,
        )
    if len(name) > budget:
        yield Problem(
            "metadata.name",
            f"has {len(name)} characters and may have at most {budget} with these roles and counts, since "
            "pods are named after it in at most 63 characters",
            blocking=True,
        )


def _plugin(path: str, plugin: Plugin) -> Iterator[Problem]:
    """All of these block: a pod must not be made without what a plugin was to change (MS-107)."""
    if plugin.name not in PLUGIN_NAMES:
        text = f"unknown plugin {plugin.name}; there are: {', '.join(PLUGIN_NAMES)}"
        yield Problem(f"{path}.name", text, blocking=True)
    if plugin.type != "BuiltIn":
        yield Problem(f"{path}.type", f"must be BuiltIn; is {plugin.type}", blocking=True)
    if plugin.name == POD_TWEAKS:
        try:
            pod_tweaks(plugin)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            yield Problem(f"{path}.config", str(error).replace("$", f"{path}.config", 1), blocking=True)


def _gang(spec: Spec) -> Iterator[Problem]:
    """Minimums above a role's replicas are not among them: they come with scaling down, and are clamped."""
    path = "spec.template.gangPolicy.minRoleReplicas"
    names = {role.name for role in spec.template.roles}
    gang = spec.template.gang_policy
    for role, minimum in gang.min_role_replicas.items() if gang is not None else ():
        if role not in names:
            yield Problem(path, f"names {role}, which is no role")
        if minimum < 0:
            yield Problem(path, f"must be 0 or more; is {minimum} for {role}")


def _role(path: str, role: Role, *, by_role: bool) -> Iterator[Problem]:
    if len(role.name) > MAX_ROLE_NAME or not is_dns_label(role.name):
        text = f"must be a DNS-1035 label of at most {MAX_ROLE_NAME} characters; is {role.name}"
        yield Problem(f"{path}.name", text, blocking=not is_dns_label(role.name))
    for field, number in (("replicas", role.replicas), ("workerReplicas", role.worker_replicas)):
        yield from _count(f"{path}.{field}", number)
    yield from _pod_template(f"{path}.entryTemplate", role.entry_template, needed=True)
    if role.worker_template is not None:
        needed = role.worker_replicas > 0
        yield from _pod_template(f"{path}.workerTemplate", role.worker_template, needed=needed)
    elif role.worker_replicas > 0:
        yield Problem(f"{path}.workerTemplate", "is required when workerReplicas is more than 0")
    yield from _bounds(path, role.max_unavailable, role.partition)
    if role.partition is not None and not by_role:
        yield Problem(f"{path}.partition", "needs rolloutStrategy.type RoleRollingUpdate")
    value = role.max_unavailable
    if by_role and role.replicas > 0 and value is not None and is_valid(value):
        count = resolve(value, role.replicas)
        if not 1 <= count <= role.replicas:
            text = (
                f"{value} of {role.replicas} replicas comes to {count}; it must come to 1 to {role.replicas}"
            )
            yield Problem(f"{path}.maxUnavailable", text)


def _pod_template(path: str, raw_template: msgspec.Raw, *, needed: bool) -> Iterator[Problem]:
    try:
        template = _decode_template.decode(raw_template)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        yield Problem(path, str(error).replace("$", path, 1), blocking=True)
        return
    taken = [key for key in labels.ALL if key in template.metadata.labels]
    if taken:
        yield Problem(f"{path}.metadata.labels", f"the controller sets {', '.join(taken)}")
    spec = template.spec or _PodSpec()
    if needed and not spec.containers:
        yield Problem(f"{path}.spec.containers", "must have at least one container")
    for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            ours = [each.name for each in container.env if each.name in labels.ENV]
            if ours:
                yield Problem(f"{path}.spec.{field}[{index}].env", f"the controller sets {', '.join(ours)}")
            image = container.image
            if image and (" " in image or not image.strip(" \t\n\f\r")):
                where = f"{path}.spec.{field}[{index}].image"
                yield Problem(where, f"must not be blank or have a space in it; is {image!r}")


def _bounds(
    path: str, max_unavailable: IntOrPercent | None, partition: IntOrPercent | None
) -> Iterator[Problem]:
    for field, value in (("maxUnavailable", max_unavailable), ("partition", partition)):
        if value is not None and not is_valid(value):
            text = f"must be an integer of 0 or more, or a percentage from 0% to 100%; is {value}"
            yield Problem(f"{path}.{field}", text)


def _rollout(spec: Spec) -> Iterator[Problem]:
    strategy = spec.rollout_strategy
    if strategy is None:
        return
    path = "spec.rolloutStrategy.rollingUpdateConfiguration"
    configuration = strategy.rolling_update_configuration
    if _by_role(spec):
        if spec.recovery_policy == "ServingGroupRecreate":
            text = "RoleRollingUpdate cannot go with recoveryPolicy ServingGroupRecreate"
            yield Problem("spec.rolloutStrategy.type", text)
        if configuration is not None:
            yield Problem(path, "belongs to ServingGroupRollingUpdate")
    if configuration is None:
        return
    value = configuration.max_unavailable
    yield from _bounds(path, value, configuration.partition)
    if not _by_role(spec) and is_valid(value) and resolve(value, 100) == 0:
        yield Problem(f"{path}.maxUnavailable", f"must come to at least 1 group; is {value}")
