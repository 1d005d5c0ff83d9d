"""Actions of a plan -> requests to the API server, each with the preconditions on which it was decided.

Called by controller.py. Actions come sorted by phase and the phases are done one after the other, each with
bounded concurrency: revisions, then adoptions, Services and PodGroups, then deletions, then pods. A failure
does not stop its own phase, and stops the later ones only where they need it: nothing is created before its
revision is stored (MS-54), and no pod before its PodGroup (MS-96). Every write is noted with the
expectations, so that the next plan sees it; every deletion is announced to the store before it leaves, so
that its end is not taken for a loss (MS-88).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from isthmus.api.meta import Key, Resource
from isthmus.api.names import role_id
from isthmus.api.podgroups import POD_GROUPS
from isthmus.api.pods import (
    CONTROLLER_REVISIONS,
    SERVING_PODS,
    SERVING_SERVICES,
    ServingLabels,
    ServingPod,
)
from isthmus.errors import IsthmusError, WorldError
from isthmus.kube.client import Client, PatchKind
from isthmus.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound, ServerError, WriteRefused
from isthmus.modelserving.gangapi import GangApi
from isthmus.modelserving.plan import objects
from isthmus.modelserving.plan.model import (
    Action,
    Adopt,
    CreatePod,
    CreatePodGroup,
    CreateService,
    DeletePod,
    DeletePodGroup,
    DeleteService,
    Desired,
    DropRevision,
    PersistRevision,
    RepairPodGroup,
    RepairService,
)
from isthmus.modelserving.plan.reconcile import phase
from isthmus.modelserving.store import Caches, Store
from isthmus.runtime.cache import AnyCache
from isthmus.runtime.expect import Expectations
from isthmus.runtime.writes import at_once

CONCURRENCY = 24
"""Requests of one key that may be under way at once; the client bounds those of all keys."""

ADOPTABLE: dict[str, Resource[Any]] = {
    "pods": SERVING_PODS,
    "services": SERVING_SERVICES,
    "controllerrevisions": CONTROLLER_REVISIONS,
    "podgroups": POD_GROUPS,
}


_CREATIONS = CreatePod | CreatePodGroup | CreateService | PersistRevision
_ON_POD_GROUPS = CreatePodGroup | RepairPodGroup | DeletePodGroup
_GOING = "custom resource definition is terminating"
"""What a refused create says while its API is being removed."""


class ApiGone(WorldError):
    """The PodGroup API is going or gone. Whoever watches for that has been told; no pod waits for it."""


class NameTaken(WorldError):
    """An object has the name that one of ours must have. Only its owner can mend that; tried again with
    backoff."""


class Executor:
    """See the module."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        store: Store,
        expectations: Expectations,
        gang: GangApi,
    ) -> None:
        self._client = client
        self._caches = caches
        self._store = store
        self._expectations = expectations
        self._gang = gang
        self._ending: dict[Key, str] = {}

    async def carry_out(self, desired: Desired, actions: Sequence[Action]) -> list[IsthmusError]:
        """Do it all; return what failed. Raises WriteRefused at once where this process may not write any
        more.

        Nothing can be created any more in a namespace that is being deleted, and the ModelServing will go
        with it, so that this is no failure, and creating is not tried again.
        """
        failed: list[IsthmusError] = []
        lacking: set[str] = set()
        for number, group in groupby(actions, key=phase):
            left = [each for each in group if not (isinstance(each, CreatePod) and each.group in lacking)]
            errors = await self._at_once(desired, left, lacking)
            failed += errors
            if errors and number == 0:
                break
        return failed

    def forget(self, key: Key) -> None:
        """The ModelServing is gone."""
        self._ending.pop(key, None)

    async def _at_once(
        self, desired: Desired, actions: Sequence[Action], lacking: set[str]
    ) -> list[IsthmusError]:
        """Do these; `lacking` gets the names of groups whose PodGroup could not be made."""
        failed: list[IsthmusError] = []
        for action, error in await at_once(actions, lambda each: self._one(desired, each), most=CONCURRENCY):
            if error is None:
                continue
            if isinstance(action, _ON_POD_GROUPS) and _says_no_api(error):
                self._gang.gone()
                failed.append(ApiGone(str(error)))
                continue
            failed.append(error)
            if isinstance(action, CreatePodGroup):
                lacking.add(action.group)
        return failed

    async def _one(self, desired: Desired, action: Action) -> None:
        if isinstance(action, _CREATIONS) and self._ending.get(_key(desired)) == desired.uid:
            return
        match action:
            case CreatePod(group, template, revision, instance, index, ganged):
                body = objects.pod(desired, group, template, revision, instance, index, ganged=ganged)
                await self._create(desired, SERVING_PODS, body)
            case DeletePod(pod, _, with_group):
                await self._delete_pod(desired, pod, with_group)
            case CreateService(group, role, instance):
                await self._create(desired, SERVING_SERVICES, objects.service(desired, group, role, instance))
            case DeleteService(service):
                metadata = service.metadata
                await self._delete(
                    desired, SERVING_SERVICES, metadata.name, metadata.uid, metadata.resource_version
                )
            case RepairService(group, role, instance, service):
                selector: dict[str, str | None] = dict.fromkeys(service.spec.selector)
                selector |= objects.service_selector(group, role, role_id(role, instance))
                await self._patch(
                    desired,
                    SERVING_SERVICES,
                    service.metadata.name,
                    service.metadata.uid,
                    service.metadata.resource_version,
                    {"spec": {"selector": selector}},
                )
            case CreatePodGroup() | RepairPodGroup() | DeletePodGroup():
                await self._pod_group(desired, action)
            case PersistRevision(revision):
                number = 1 + max((stored.number for stored in desired.stored.values()), default=0)
                body = objects.controller_revision(desired, revision, number)
                encoded = objects.encode_revision(body)
                await self._create(desired, CONTROLLER_REVISIONS, body, encoded)
            case DropRevision(name, uid, resource_version):
                await self._delete(desired, CONTROLLER_REVISIONS, name, uid, resource_version)
            case Adopt(kind, name, uid, resource_version):
                reference = objects.owner_reference(desired, blocking=kind != POD_GROUPS.plural)
                owner = {"metadata": {"ownerReferences": [reference]}}
                await self._patch(desired, ADOPTABLE[kind], name, uid, resource_version, owner)

    async def _pod_group(
        self, desired: Desired, action: CreatePodGroup | RepairPodGroup | DeletePodGroup
    ) -> None:
        """With the UID alone as a precondition: Volcano writes the status of PodGroups all the time, and
        nothing here is decided on that."""
        match action:
            case CreatePodGroup(group, spec):
                await self._create(desired, POD_GROUPS, objects.pod_group(desired, group, spec))
            case RepairPodGroup(pod_group, spec):
                change = objects.pod_group_change(pod_group.spec, spec)
                metadata = pod_group.metadata
                version = await self._patch(desired, POD_GROUPS, metadata.name, metadata.uid, None, change)
                if version == metadata.resource_version:
                    self._gang.doubt()
            case DeletePodGroup(pod_group):
                metadata = pod_group.metadata
                await self._delete(desired, POD_GROUPS, metadata.name, metadata.uid, None)

    async def _create(
        self, desired: Desired, resource: Resource[Any], body: dict[str, Any], encoded: bytes | None = None
    ) -> None:
        key = _key(desired)
        try:
            written = await self._client.create(resource, desired.namespace, encoded or body)
        except AlreadyExists:
            await self._explain_existing(desired, resource, body["metadata"])
            return
        except Forbidden as error:
            if not error.namespace_ends:
                raise
            self._ending[key] = desired.uid
            return
        self._expectations.wrote(key, resource.name, written.resource_version)

    async def _explain_existing(
        self, desired: Desired, resource: Resource[Any], raw_metadata: dict[str, Any]
    ) -> None:
        """The cache has no such object of ours, the server has one: ours from a create whose answer was lost,
        or another's, or one whose labels somebody changed, so that the store sees it elsewhere or not at all
        (MS-35, MS-445). Raises NameTaken for the latter two."""
        name = raw_metadata["name"]
        found = await self._client.get(resource, desired.namespace, name)
        owner = found.metadata.controller()
        labels, meant = found.metadata.labels, msgspec.convert(raw_metadata["labels"], ServingLabels)
        if owner is not None and owner.uid == desired.uid and _place(labels) == _place(meant):
            self._expectations.wrote(_key(desired), resource.name, found.metadata.resource_version)
            return
        whose = f"belongs to {owner.kind} {owner.name}" if owner is not None else "belongs to nobody"
        raise NameTaken(f"{resource.kind} {name} exists and {whose}, with labels of something else")

    async def _delete_pod(self, desired: Desired, pod: ServingPod, with_group: bool) -> None:
        key = _key(desired)
        metadata = pod.metadata
        self._store.intend(key, pod, with_group=with_group)
        try:
            await self._delete(desired, SERVING_PODS, metadata.name, metadata.uid, metadata.resource_version)
        except (ApiError, WriteRefused) as error:
            if not isinstance(error, ServerError):  # else, or without an answer, it may have been done
                self._store.repent(key, pod)
            raise

    async def _delete(
        self, desired: Desired, resource: Resource[Any], name: str, uid: str, resource_version: str | None
    ) -> None:
        key: Key = _key(desired)
        caches: dict[str, AnyCache] = {
            SERVING_PODS.name: self._caches.pods,
            SERVING_SERVICES.name: self._caches.services,
            CONTROLLER_REVISIONS.name: self._caches.revisions,
            POD_GROUPS.name: self._caches.pod_groups,
        }
        with contextlib.suppress(NotFound):
            await self._client.delete(
                resource, desired.namespace, name, uid=uid, resource_version=resource_version
            )
        self._expectations.deleted(key, caches[resource.name], (desired.namespace, name), uid)

    async def _patch(
        self,
        desired: Desired,
        resource: Resource[Any],
        name: str,
        uid: str,
        resource_version: str | None,
        change: dict[str, Any],
    ) -> str:
        """The resourceVersion that it has now: still the same where nothing was changed."""
        identity = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body = {**change, "metadata": {**change.get("metadata", {}), **identity}}
        written = await self._client.patch(
            resource, desired.namespace, name, msgspec.json.encode(body), kind=PatchKind.MERGE
        )
        self._expectations.wrote(_key(desired), resource.name, written.resource_version)
        return written.resource_version


def _says_no_api(error: IsthmusError) -> bool:
    """Whether a resource is not served any more, or about not to be."""
    if isinstance(error, Forbidden):
        return _GOING in error.message
    return isinstance(error, ApiError) and error.status in (404, 405)


def _key(desired: Desired) -> Key:
    return desired.namespace, desired.name


def _place(labels: ServingLabels) -> tuple[str, str, str, str]:
    return labels.name, labels.group_name, labels.role, labels.role_id
