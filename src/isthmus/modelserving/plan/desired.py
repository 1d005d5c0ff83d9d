"""One ModelServing and its stored revisions -> Desired: templates decoded and named, partitions resolved.

Called by the store once per change of the spec or of a stored revision, since hashing is the dearest step of
planning. The name of the present revision is that of a stored one which holds the same templates, whoever
stored it, so that a cluster taken over from upstream's controller is not rolled for the sake of another hash
(MS-440). A name that stands for something else is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from isthmus.api.modelserving import ModelServing, Role, Spec
from isthmus.api.names import revision_name
from isthmus.api.pods import ControllerRevision
from isthmus.modelserving.plan import numbers
from isthmus.modelserving.plan.model import Desired, Revision, RoleTemplate
from isthmus.modelserving.plan.revision import canonical, hash_of, meaning, template_of

_MAX_COLLISIONS = 16


def desired(
    serving: ModelServing, revisions: Iterable[ControllerRevision], taken: Iterable[str] = ()
) -> Desired:
    """What `serving` asks for. `revisions` are the ControllerRevisions that it owns; unreadable ones are
    passed over, as if lost. `taken` are names of ControllerRevisions that others own. `serving.spec` must be
    a Spec."""
    spec = serving.spec
    assert isinstance(spec, Spec)
    revisions = list(revisions)
    stored = {
        revision.name: revision
        for revision in (_stored_revision(each) for each in revisions)
        if revision is not None
    }
    names = {*taken, *(each.metadata.name for each in revisions)}
    present = _present_revision(serving.metadata.name, spec, stored, names)
    strategy = spec.rollout_strategy
    by_role = strategy is not None and strategy.type == "RoleRollingUpdate"
    rolling = strategy.rolling_update_configuration if strategy is not None and not by_role else None
    return Desired(
        uid=serving.metadata.uid,
        namespace=serving.metadata.namespace,
        name=serving.metadata.name,
        generation=serving.metadata.generation,
        spec=spec,
        status=serving.status,
        revision=present,
        stored=stored,
        group_partition=numbers.partition(rolling.partition if rolling else None, spec.replicas),
        by_role=by_role,
    )


def _present_revision(serving: str, spec: Spec, stored: dict[str, Revision], names: set[str]) -> Revision:
    raw_roles = [_raw_role(role) for role in spec.template.roles]
    fresh = {
        role.name: _role_template(role, raw) for role, raw in zip(spec.template.roles, raw_roles, strict=True)
    }
    for revision in sorted(stored.values(), key=lambda each: (-each.number, each.name)):
        if list(revision.roles) == list(fresh) and all(
            same_template(revision.roles[name], template) for name, template in fresh.items()
        ):
            adopted = {
                name: replace(template, hash=revision.roles[name].hash, foreign=revision.roles[name].foreign)
                for name, template in fresh.items()
            }
            return Revision(revision.name, revision.number, adopted)
    form = canonical([template_of(raw) for raw in raw_roles])
    name = next(
        candidate
        for candidate in (hash_of(form, collision) for collision in range(_MAX_COLLISIONS))
        if candidate not in stored and revision_name(serving, candidate) not in names
    )
    return Revision(name, 0, fresh)


def same_template(one: RoleTemplate, other: RoleTemplate) -> bool:
    """Whether two templates of a role make the same pods. What another controller stored is recognised by
    its meaning; of our own, each difference counts."""
    if one.meaning != other.meaning:
        return False
    return one.hash == other.hash or one.foreign or other.foreign


def _role_template(role: _AnyRole, raw_role: dict[str, Any], *, foreign: bool = False) -> RoleTemplate:
    template = template_of(raw_role)
    return RoleTemplate(
        name=role.name,
        replicas=role.replicas,
        workers=role.worker_replicas if role.worker_template is not None else 0,
        raw=raw_role,
        hash=hash_of(canonical(template)),
        meaning=meaning(template),
        max_unavailable=role.max_unavailable,
        partition=role.partition,
        foreign=foreign,
    )


def _raw_role(role: Role) -> dict[str, Any]:
    """The role as the CRD writes it, with defaults, as it is stored and hashed."""
    raw: dict[str, Any] = {
        "name": role.name,
        "replicas": role.replicas,
        "entryTemplate": msgspec.json.decode(role.entry_template),
        "workerReplicas": role.worker_replicas,
    }
    if role.worker_template is not None:
        raw["workerTemplate"] = msgspec.json.decode(role.worker_template)
    if role.max_unavailable is not None:
        raw["maxUnavailable"] = role.max_unavailable
    if role.partition is not None:
        raw["partition"] = role.partition
    return raw


def _stored_revision(revision: ControllerRevision) -> Revision | None:
    """A stored revision with its roles, also from a bare list of them (MS-77); None where it cannot be
    read."""
    try:
        raw = msgspec.json.decode(revision.data)
        raw_roles = raw["data"] if isinstance(raw, dict) else raw
        roles = msgspec.convert(raw_roles, list[_StoredRole])
    except (msgspec.MsgspecError, KeyError, TypeError, UnicodeDecodeError):
        return None
    name = revision.metadata.labels.revision
    if not name:
        return None
    form = canonical([template_of(raw) for raw in raw_roles])
    foreign = name not in (hash_of(form, collision) for collision in range(_MAX_COLLISIONS))
    templates = {
        role.name: _role_template(role, raw, foreign=foreign)
        for role, raw in zip(roles, raw_roles, strict=True)
    }
    return Revision(name, revision.revision, templates)


class _StoredRole(msgspec.Struct, frozen=True, rename="camel"):
    """A role inside a ControllerRevision."""

    name: str
    entry_template: dict[str, Any] = {}
    replicas: int = 1
    worker_replicas: int = 0
    worker_template: dict[str, Any] | None = None
    max_unavailable: int | str | None = None
    partition: int | str | None = None


_AnyRole = Role | _StoredRole
