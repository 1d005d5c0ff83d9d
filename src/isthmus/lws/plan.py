"""A LeaderWorkerSet -> the ModelServing that runs it, and what to do about the one that there is.

Called by controller.py. Pure. Only what is carried over is owned (`replicas`, `plugins`, the roles, labels
and annotations); whatever else somebody sets in the ModelServing stays, and what the API server fills in is
no difference (MS-438). A field that is taken out of the LeaderWorkerSet leaves no trace in what is stored, so
a digest of what was carried over last is kept in an annotation. A ModelServing of the name that is not the
LeaderWorkerSet's own is left alone.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from isthmus.api.leaderworkerset import LEADER_WORKER_SETS, LeaderWorkerSet, LwsStatus
from isthmus.api.meta import Raw
from isthmus.api.modelserving import MODEL_SERVINGS, ModelServing, Role, Spec
from isthmus.api.plugins import LWS_LABELS

ROLE: Final = "default"
DIGEST: Final = "isthmus.dev/leaderworkerset-digest"
"""The annotation of a ModelServing that says what was carried over last."""
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class Create(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Make the ModelServing."""

    body: Raw


class Update(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Bring the ModelServing in line, by a merge patch that is conditional on what was seen."""

    patch: Raw


class Taken(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The name is another's: why, for people. `lasting` where only a person can mend it."""

    why: str
    lasting: bool


Step = Create | Update | Taken
"""What to do next."""


def plan(lws: LeaderWorkerSet, serving: ModelServing | None) -> Step | None:
    """What brings the ModelServing of the same name in line with `lws`; None where it is."""
    wanted = model_serving(lws)
    if serving is None:
        return Create(wanted)
    owner = serving.metadata.controller()
    if owner is None or owner.uid != lws.metadata.uid:
        return _taken(lws, serving)
    if serving.metadata.terminating:
        return Taken("is being deleted", lasting=False)
    if _holds(serving, wanted):
        return None
    identity = {"uid": serving.metadata.uid, "resourceVersion": serving.metadata.resource_version}
    carried = {key: wanted["metadata"][key] for key in ("labels", "annotations")}
    return Update({"metadata": {**identity, **carried}, "spec": wanted["spec"]})


def status(serving: ModelServing | None) -> LwsStatus:
    """The status of a LeaderWorkerSet that `serving` runs (MS-112)."""
    if serving is None:
        return LwsStatus()
    found = serving.status
    return LwsStatus(replicas=found.replicas, ready_replicas=found.available_replicas)


def model_serving(lws: LeaderWorkerSet) -> Raw:
    """The ModelServing that runs `lws`, ready to be created (MS-111)."""
    template, metadata = lws.spec.leader_worker_template, lws.metadata
    raw_worker = _pod_template(template.worker_template)
    raw_leader = (
        _pod_template(template.leader_template) if template.leader_template is not None else raw_worker
    )
    role = {
        "name": ROLE,
        "replicas": 1,
        "workerReplicas": max(0, (1 if template.size is None else template.size) - 1),
        "entryTemplate": raw_leader,
        "workerTemplate": raw_worker,
    }
    spec: Raw = {
        "replicas": 1 if lws.spec.replicas is None else lws.spec.replicas,
        "plugins": [{"name": LWS_LABELS, "type": "BuiltIn"}],
        "template": {"roles": [role]},
    }
    scheduler = (raw_leader.get("spec") or {}).get("schedulerName")
    if scheduler:
        spec["schedulerName"] = scheduler
    annotations = {key: text for key, text in metadata.annotations.items() if key != _LAST_APPLIED}
    labels = dict(metadata.labels)
    digest = hashlib.sha256(msgspec.json.encode([spec, labels, annotations], order="sorted")).hexdigest()[:16]
    return {
        "apiVersion": MODEL_SERVINGS.api_version,
        "kind": MODEL_SERVINGS.kind,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": {**annotations, DIGEST: digest},
            "ownerReferences": [
                {
                    "apiVersion": LEADER_WORKER_SETS.api_version,
                    "kind": LEADER_WORKER_SETS.kind,
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def _pod_template(raw_template: msgspec.Raw) -> Raw:
    """The template with what a ModelServing's has: labels, annotations and the pod's spec."""
    raw: Raw = msgspec.json.decode(raw_template)
    metadata = {
        field: value
        for field in ("labels", "annotations")
        if (value := (raw.get("metadata") or {}).get(field))
    }
    return {**({"metadata": metadata} if metadata else {}), "spec": raw.get("spec") or {}}


def _taken(lws: LeaderWorkerSet, serving: ModelServing) -> Taken:
    owner = serving.metadata.controller()
    if owner is not None and (owner.kind, owner.name) == (LEADER_WORKER_SETS.kind, lws.metadata.name):
        return Taken(
            "was made for a former LeaderWorkerSet of this name, and is being collected", lasting=False
        )
    whose = f"belongs to {owner.kind} {owner.name}" if owner is not None else "is nobody's"
    return Taken(f"{whose}, and is left alone", lasting=True)


def _holds(serving: ModelServing, wanted: Raw) -> bool:
    """Whether the stored object has all that is wanted, and what was carried over last is what is wanted."""
    spec, metadata = serving.spec, serving.metadata
    if not isinstance(spec, Spec):
        return False
    stored: Raw = {
        "replicas": spec.replicas,
        "plugins": [{"name": each.name, "type": each.type} for each in spec.plugins],
        "template": {"roles": [_role(each) for each in spec.template.roles]},
        "schedulerName": spec.scheduler_name,
    }
    return (
        wanted["metadata"]["labels"].items() <= metadata.labels.items()
        and wanted["metadata"]["annotations"].items() <= metadata.annotations.items()
        and _is_part(wanted["spec"], stored)
    )


def _role(role: Role) -> Raw:
    raw = {"name": role.name, "replicas": role.replicas, "workerReplicas": role.worker_replicas}
    worker = role.worker_template
    return {
        **raw,
        "entryTemplate": msgspec.json.decode(role.entry_template),
        "workerTemplate": msgspec.json.decode(worker) if worker is not None else None,
    }


def _is_part(wanted: Any, stored: Any) -> bool:
    """Whether `stored` says all that `wanted` says; it may say more in maps, never in lists."""
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(
            value is None or (key in stored and _is_part(value, stored[key])) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(stored, list) and len(wanted) == len(stored) and all(map(_is_part, wanted, stored))
    return bool(wanted == stored)
