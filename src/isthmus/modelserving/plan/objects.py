"""Pods, headless Services and ControllerRevisions as JSON, ready to be sent.

Called by the controller for each creating action, and by `isthmus plan`. What a template says wins over
nothing of ours: our labels and env cannot be overwritten (MS-415), since the store would then track another
group. Each pod gets lists and maps of its own (MS-425).
"""

from __future__ import annotations

from typing import Any

import msgspec

from isthmus.api import labels as keys
from isthmus.api import names
from isthmus.api.modelserving import MODEL_SERVINGS
from isthmus.api.podgroups import POD_GROUPS, PodGroupSpec
from isthmus.modelserving.plan import plugins
from isthmus.modelserving.plan.model import Desired, Revision, RoleTemplate


def owner_reference(desired: Desired, *, blocking: bool = True) -> dict[str, Any]:
    """The reference that makes a ModelServing the controller of what it owns (MS-28); `blocking`: a
    foreground deletion waits for that, as for all but PodGroups."""
    return {
        "apiVersion": MODEL_SERVINGS.api_version,
        "kind": MODEL_SERVINGS.kind,
        "name": desired.name,
        "uid": desired.uid,
        "controller": True,
        **({"blockOwnerDeletion": True} if blocking else {}),
    }


def service_selector(group: str, role: str, role_id: str) -> dict[str, str]:
    """What selects the entry pod of one instance (MS-32)."""
    return {keys.GROUP_NAME: group, keys.ROLE: role, keys.ROLE_ID: role_id, keys.ENTRY: "true"}


def service(desired: Desired, group: str, role: str, ordinal: int) -> dict[str, Any]:
    """The headless Service of one instance; its name is the entry pod's (MS-22, MS-32)."""
    role_id = names.role_id(role, ordinal)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.service_name(group, role_id),
            "namespace": desired.namespace,
            "labels": {
                keys.NAME: desired.name,
                keys.GROUP_NAME: group,
                keys.ROLE: role,
                keys.ROLE_ID: role_id,
            },
            "ownerReferences": [owner_reference(desired)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": service_selector(group, role, role_id),
        },
    }


def pod_group(desired: Desired, group: str, spec: PodGroupSpec) -> dict[str, Any]:
    """The PodGroup of a group, which has its name (MS-91)."""
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": group,
            "namespace": desired.namespace,
            "labels": {keys.NAME: desired.name, keys.GROUP_NAME: group},
            "annotations": {keys.GANG_GROUP: group},
            "ownerReferences": [owner_reference(desired, blocking=False)],
        },
        "spec": {field: value for field, value in _pod_group_fields(spec).items() if value is not None},
    }


def pod_group_change(stored: PodGroupSpec, wanted: PodGroupSpec) -> dict[str, Any]:
    """The merge patch that makes a PodGroup's spec say what it should, and leaves all other fields alone."""
    return {"spec": _merge(_pod_group_fields(stored), _pod_group_fields(wanted))}


def _pod_group_fields(spec: PodGroupSpec) -> dict[str, Any]:
    """What we write of a PodGroup's spec; None for what is absent."""
    raw = msgspec.to_builtins(spec)
    return {**raw, "queue": spec.queue or None, "subGroupPolicy": raw["subGroupPolicy"] or None}


def _merge(old: Any, new: Any) -> Any:
    """`new` as a merge patch of `old`: what is not there any more is null."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {key: _merge(old.get(key), new.get(key)) for key in {**old, **new}}


def controller_revision(desired: Desired, revision: Revision, number: int) -> dict[str, Any]:
    """A revision as it is stored: all roles in full, by which it can be read without its ModelServing
    (MS-77)."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": names.revision_name(desired.name, revision.name),
            "namespace": desired.namespace,
            "labels": {keys.NAME: desired.name, keys.REVISION: revision.name},
            "ownerReferences": [owner_reference(desired)],
        },
        "data": {"data": [role.raw for role in revision.roles.values()]},
        "revision": number,
    }


def encode_revision(raw_revision: dict[str, Any]) -> bytes:
    """A ControllerRevision as the API server itself would write it: keys sorted, HTML's characters escaped.

    Its data may never change, and the API server compares it as bytes after writing it anew, so that in any
    other form nobody could change its metadata: the garbage collector could not orphan it, for one.
    """
    text = msgspec.json.encode(raw_revision, order="sorted")
    for character in "<>&\u2028\u2029":
        text = text.replace(character.encode(), b"\\u%04x" % ord(character))
    return text


def pod(  # noqa: PLR0913 - what a CreatePod says
    desired: Desired,
    group: str,
    template: RoleTemplate,
    revision: str,
    ordinal: int,
    index: int,
    *,
    ganged: bool = False,
) -> dict[str, Any]:
    """One pod of an instance, in the order of MS-26; index 0 is the entry. `ganged`: it belongs to the
    PodGroup of its group (MS-30)."""
    role_id = names.role_id(template.name, ordinal)
    raw_template = template.pod_template(index)
    raw_metadata = raw_template.get("metadata") or {}
    labels = dict(raw_metadata.get("labels") or {})
    labels.pop(keys.ENTRY, None)
    labels |= {
        keys.NAME: desired.name,
        keys.GROUP_NAME: group,
        keys.ROLE: template.name,
        keys.ROLE_ID: role_id,
        keys.REVISION: revision,
        keys.ROLE_TEMPLATE_HASH: template.hash,
    }
    if index == 0:
        labels[keys.ENTRY] = "true"
    metadata: dict[str, Any] = {
        "name": names.pod_name(group, role_id, index),
        "namespace": desired.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(desired)],
    }
    annotations = dict(raw_metadata.get("annotations") or {})
    if ganged:
        annotations |= {keys.GANG_GROUP: group, keys.TASK_SPEC: role_id}
    if annotations:
        metadata["annotations"] = annotations
    spec = dict(raw_template.get("spec") or {})
    spec["schedulerName"] = desired.spec.scheduler_name
    values = (str(template.size), f"{names.pod_name(group, role_id, 0)}.{desired.namespace}", str(index))
    env = [{"name": name, "value": value} for name, value in zip(keys.ENV, values, strict=True)]
    for field in ("containers", "initContainers"):
        if spec.get(field):
            spec[field] = [plugins.with_env(container, env) for container in spec[field]]
    raw_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    place = plugins.Place(group, template.name, index, desired.leader_worker_set)
    plugins.change(raw_pod, desired.spec.plugins, place)
    return raw_pod
